//! A store that fails as told: by script, or by the roll of a seeded die.
//!
//! A [`FaultStore`] wraps any store. Each operation is matched against the rules in the order
//! they were given; the first rule that has uses left decides. Give each writer of a test its own
//! `FaultStore` over one shared inner store, and one writer's network can fail alone.
#![allow(clippy::expect_used, dead_code, unreachable_pub, reason = "tests may panic, and each uses its own part")]

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Put,
    Get,
    List,
    Delete,
}

/// What happens to an operation.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing: the operation goes through. Useful before another rule.
    Pass,
    /// It fails and has no effect.
    FailBefore,
    /// It takes effect and its answer is lost.
    FailAfter,
    /// A put that fails now and takes effect at [`FaultStore::apply_late_puts`].
    Late,
    /// It waits at the gate, then goes through.
    Hold(Gate),
    /// It goes through and its answer waits at the gate.
    HoldAnswer(Gate),
    /// "Already exists", whatever is there (a store's 409).
    AlreadyExists,
    /// "Precondition failed", whatever is there.
    Precondition,
    /// "Not found", whatever is there.
    NotFound,
    /// The store says that we may not.
    PermissionDenied,
    /// The store's disk is full.
    DiskFull,
    /// A read ends after this many bytes.
    ShortRead(usize),
    /// A read has one bit flipped in this byte (counted around the object's end).
    BitFlip { byte: usize, bit: u8 },
    /// The store's client panics.
    Panic,
    /// A list lacks the names that contain one of these texts.
    HideFromList(Vec<String>),
}

/// Holds operations until it is opened. Once open it stays open.
#[derive(Clone, Debug)]
pub struct Gate {
    waiting: watch::Sender<u64>,
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { waiting: watch::Sender::new(0), open: watch::Sender::new(false) }
    }
}

impl Gate {
    /// Lets all through.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Resolves once `operations` have come to the gate.
    pub async fn reached(&self, operations: u64) {
        let mut waiting = self.waiting.subscribe();
        waiting.wait_for(|count| *count >= operations).await.expect("the gate holds the sender");
    }

    async fn pass(&self) {
        self.waiting.send_modify(|count| *count += 1);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.expect("the gate holds the sender");
    }
}

/// How often each fault strikes, out of a thousand operations of its kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    pub fail_before: u64,
    pub fail_after: u64,
    pub late: u64,
    pub conflict_without_object: u64,
    pub not_found: u64,
    pub short_read: u64,
    pub bit_flip: u64,
}

/// What a crash of the store's machine leaves of objects that were not synced.
#[derive(Clone, Copy, Debug)]
pub enum Remains {
    /// No object.
    Nothing,
    /// The first bytes.
    Prefix(usize),
    /// The full length, zeros behind the first bytes.
    Zeros(usize),
}

/// One operation that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub op: Op,
    pub path: String,
    /// The fault that struck, as `Debug` shows it.
    pub fault: Option<String>,
}

#[derive(Debug)]
struct Rule {
    op: Op,
    path: String,
    skip: u64,
    uses: u64,
    fault: Fault,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    log: Vec<Operation>,
    late: Vec<(Path, PutPayload, PutOptions)>,
    unsynced: Option<Vec<Path>>,
    odds: Odds,
    die: u64,
    partitioned: bool,
}

/// A store with faults. Clones share rules, log and inner store.
#[derive(Clone, Debug)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    state: Arc<Mutex<State>>,
}

/// A rule being written: `store.on(Op::Put, "wal/").skip(2).times(1, Fault::FailAfter)`.
#[must_use]
pub struct RuleFor<'a> {
    store: &'a FaultStore,
    op: Op,
    path: String,
    skip: u64,
}

impl RuleFor<'_> {
    /// Lets this many matching operations through first.
    pub fn skip(mut self, operations: u64) -> Self {
        self.skip = operations;
        self
    }

    /// Strikes this many matching operations.
    pub fn times(self, uses: u64, fault: Fault) {
        let rule = Rule { op: self.op, path: self.path, skip: self.skip, uses, fault };
        self.store.state().rules.push(rule);
    }

    /// Strikes once.
    pub fn once(self, fault: Fault) {
        self.times(1, fault);
    }

    /// Strikes every time.
    pub fn always(self, fault: Fault) {
        self.times(u64::MAX, fault);
    }
}

impl FaultStore {
    /// A store without faults so far.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        FaultStore { inner, state: Arc::default() }
    }

    /// A store whose faults are rolled from a seed. Print the seed.
    pub fn random(inner: Arc<dyn ObjectStore>, seed: u64, odds: Odds) -> Self {
        let store = Self::new(inner);
        store.set_odds(seed, odds);
        store
    }

    /// Changes the odds from here on.
    pub fn set_odds(&self, seed: u64, odds: Odds) {
        let mut state = self.state();
        state.die = seed;
        state.odds = odds;
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    /// Begins a rule for operations of a kind on paths that contain a text.
    pub fn on(&self, op: Op, path: impl Into<String>) -> RuleFor<'_> {
        RuleFor { store: self, op, path: path.into(), skip: 0 }
    }

    /// Forgets all rules and odds.
    pub fn heal(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.odds = Odds::default();
        state.partitioned = false;
    }

    /// From here on everything fails without effect, until [`FaultStore::heal`].
    pub fn partition(&self) {
        self.state().partitioned = true;
    }

    /// All operations so far, in the order they were asked for.
    pub fn log(&self) -> Vec<Operation> {
        self.state().log.clone()
    }

    /// How many operations of a kind named a path that contains the text.
    pub fn count(&self, op: Op, path: &str) -> usize {
        self.state().log.iter().filter(|done| done.op == op && done.path.contains(path)).count()
    }

    /// Forgets the log.
    pub fn clear_log(&self) {
        self.state().log.clear();
    }

    /// Carries out the puts that failed with [`Fault::Late`]; how many took effect.
    pub async fn apply_late_puts(&self) -> usize {
        let late = std::mem::take(&mut self.state().late);
        let mut applied = 0;
        for (path, payload, options) in late {
            applied += usize::from(self.inner.put_opts(&path, payload, options).await.is_ok());
        }
        applied
    }

    /// From here on objects are not synced, and [`FaultStore::crash`] damages them.
    pub fn stop_syncing(&self) {
        self.state().unsynced.get_or_insert_default();
    }

    /// Everything written so far survives a crash.
    pub fn sync(&self) {
        if let Some(unsynced) = &mut self.state().unsynced {
            unsynced.clear();
        }
    }

    /// The store's machine goes down and comes back. Of each object that was not synced the
    /// remains are left; returns their names.
    pub async fn crash(&self, remains: Remains) -> Vec<Path> {
        let unsynced = self.state().unsynced.as_mut().map(std::mem::take).unwrap_or_default();
        for path in &unsynced {
            self.damage(path, remains).await;
        }
        unsynced
    }

    /// Leaves only the remains of one object.
    pub async fn damage(&self, path: &Path, remains: Remains) {
        let (keep, zeros) = match remains {
            Remains::Nothing => {
                self.inner.delete(path).await.expect("the inner store works");
                return;
            }
            Remains::Prefix(keep) => (keep, false),
            Remains::Zeros(keep) => (keep, true),
        };
        let bytes = self.read(path).await;
        let mut left = bytes[..keep.min(bytes.len())].to_vec();
        if zeros {
            left.resize(bytes.len(), 0);
        }
        self.overwrite(path, left).await;
    }

    /// The bytes of an object, without faults.
    pub async fn read(&self, path: &Path) -> Bytes {
        self.inner.get(path).await.expect("the object exists").bytes().await.expect("the inner store works")
    }

    /// Replaces an object, without faults.
    pub async fn overwrite(&self, path: &Path, bytes: impl Into<Bytes>) {
        self.inner.put(path, bytes.into().into()).await.expect("the inner store works");
    }

    /// The names below a prefix in order, without faults.
    pub async fn names(&self, prefix: &str) -> Vec<Path> {
        let prefix = Path::from(prefix);
        let mut names: Vec<Path> =
            self.inner.list(Some(&prefix)).map_ok(|object| object.location).try_collect().await.expect("it lists");
        names.sort();
        names
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the store")
    }

    /// Decides what happens to an operation, and notes it.
    fn strike(&self, op: Op, path: &str) -> Fault {
        let mut state = self.state();
        let fault = if state.partitioned {
            Some(Fault::FailBefore)
        } else {
            state.rule_for(op, path).or_else(|| state.roll(op))
        };
        let shown = fault.as_ref().filter(|fault| !matches!(fault, Fault::Pass)).map(|fault| format!("{fault:?}"));
        state.log.push(Operation { op, path: path.to_owned(), fault: shown });
        fault.unwrap_or(Fault::Pass)
    }
}

impl State {
    fn rule_for(&mut self, op: Op, path: &str) -> Option<Fault> {
        for rule in self.rules.iter_mut().filter(|rule| rule.op == op && path.contains(&rule.path)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.uses > 0 {
                rule.uses -= 1;
                return Some(rule.fault.clone());
            }
        }
        None
    }

    fn roll(&mut self, op: Op) -> Option<Fault> {
        let Odds { fail_before, fail_after, late, conflict_without_object, not_found, short_read, bit_flip } =
            self.odds;
        let byte = self.throw(1 << 16) as usize;
        let faults = match op {
            Op::Put => vec![
                (fail_before, Fault::FailBefore),
                (fail_after, Fault::FailAfter),
                (late, Fault::Late),
                (conflict_without_object, Fault::AlreadyExists),
            ],
            Op::Get => vec![
                (fail_before, Fault::FailBefore),
                (not_found, Fault::NotFound),
                (short_read, Fault::ShortRead(byte)),
                (bit_flip, Fault::BitFlip { byte, bit: (byte % 8) as u8 }),
            ],
            Op::List | Op::Delete => vec![(fail_before, Fault::FailBefore)],
        };
        let mut left = self.throw(1000);
        for (odds, fault) in faults {
            if left < odds {
                return Some(fault);
            }
            left -= odds;
        }
        None
    }

    /// SplitMix64: small, and the same on every machine.
    fn throw(&mut self, sides: u64) -> u64 {
        self.die = self.die.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.die;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

fn generic(why: &'static str) -> Error {
    Error::Generic { store: "FaultStore", source: why.into() }
}

/// The error of a fault that has no effect on the inner store.
fn refusal(fault: &Fault, path: &str) -> Option<Error> {
    let path = path.to_owned();
    match fault {
        Fault::FailBefore => Some(generic("the request was lost")),
        Fault::AlreadyExists => Some(Error::AlreadyExists { path, source: "409 conflict".into() }),
        Fault::Precondition => Some(Error::Precondition { path, source: "412 precondition failed".into() }),
        Fault::NotFound => Some(Error::NotFound { path, source: "404 not found".into() }),
        Fault::PermissionDenied => Some(Error::PermissionDenied { path, source: "403 forbidden".into() }),
        Fault::DiskFull => Some(generic("no space left on device")),
        Fault::Panic => panic!("the store's client panics, as the test wants"),
        _ => None,
    }
}

async fn changed(read: GetResult, change: impl FnOnce(&mut Vec<u8>)) -> Result<GetResult> {
    let (meta, range, attributes, extensions) =
        (read.meta.clone(), read.range.clone(), read.attributes.clone(), read.extensions.clone());
    let mut bytes = read.bytes().await?.to_vec();
    change(&mut bytes);
    let payload = GetResultPayload::Stream(stream::once(async move { Ok(Bytes::from(bytes)) }).boxed());
    Ok(GetResult { payload, meta, range, attributes, extensions })
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let fault = self.strike(Op::Put, path.as_ref());
        if let Some(error) = refusal(&fault, path.as_ref()) {
            return Err(error);
        }
        match &fault {
            Fault::Late => {
                self.state().late.push((path.clone(), payload, options));
                return Err(generic("the request timed out"));
            }
            Fault::Hold(gate) => gate.pass().await,
            _ => {}
        }
        let creates = matches!(options.mode, PutMode::Create | PutMode::Overwrite);
        let answer = self.inner.put_opts(path, payload, options).await;
        if answer.is_ok()
            && creates
            && let Some(unsynced) = &mut self.state().unsynced
        {
            unsynced.push(path.clone());
        }
        match &fault {
            Fault::FailAfter => answer.and_then(|_| Err(generic("the answer was lost"))),
            Fault::HoldAnswer(gate) => {
                gate.pass().await;
                answer
            }
            _ => answer,
        }
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        match refusal(&self.strike(Op::Put, path.as_ref()), path.as_ref()) {
            Some(error) => Err(error),
            None => self.inner.put_multipart_opts(path, options).await,
        }
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.strike(Op::Get, path.as_ref());
        if let Some(error) = refusal(&fault, path.as_ref()) {
            return Err(error);
        }
        if let Fault::Hold(gate) = &fault {
            gate.pass().await;
        }
        let read = self.inner.get_opts(path, options).await?;
        match fault {
            Fault::FailAfter | Fault::Late => Err(generic("the answer was lost")),
            Fault::HoldAnswer(gate) => {
                // What was read stays what it was when it was read.
                let read = changed(read, |_| ()).await?;
                gate.pass().await;
                Ok(read)
            }
            Fault::ShortRead(keep) => changed(read, |bytes| bytes.truncate(keep % bytes.len().max(1))).await,
            Fault::BitFlip { byte, bit } => {
                changed(read, |bytes| {
                    let at = byte % bytes.len().max(1);
                    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
                })
                .await
            }
            _ => Ok(read),
        }
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match refusal(&self.strike(Op::Get, path.as_ref()), path.as_ref()) {
            Some(error) => Err(error),
            None => self.inner.get_ranges(path, ranges).await,
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let each = paths.and_then(move |path| {
            let store = store.clone();
            async move {
                let fault = store.strike(Op::Delete, path.as_ref());
                if let Some(error) = refusal(&fault, path.as_ref()) {
                    return Err(error);
                }
                if let Fault::Hold(gate) = &fault {
                    gate.pass().await;
                }
                store.inner.delete(&path).await?;
                match fault {
                    Fault::FailAfter | Fault::Late => Err(generic("the answer was lost")),
                    _ => Ok(path),
                }
            }
        });
        each.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let prefix = prefix.cloned();
        let names = async move {
            let shown = prefix.as_ref().map(ToString::to_string).unwrap_or_default();
            let fault = store.strike(Op::List, &shown);
            if let Some(error) = refusal(&fault, &shown) {
                return stream::once(async move { Err(error) }).boxed();
            }
            if let Fault::Hold(gate) = &fault {
                gate.pass().await;
            }
            let names = store.inner.list(prefix.as_ref());
            match fault {
                Fault::HideFromList(texts) => names
                    .try_filter(move |object| {
                        let shown = !texts.iter().any(|text| object.location.as_ref().contains(text));
                        async move { shown }
                    })
                    .boxed(),
                Fault::HoldAnswer(gate) => {
                    let names: Vec<_> = names.collect().await;
                    gate.pass().await;
                    stream::iter(names).boxed()
                }
                _ => names,
            }
        };
        stream::once(names).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let shown = prefix.map(ToString::to_string).unwrap_or_default();
        match refusal(&self.strike(Op::List, &shown), &shown) {
            Some(error) => Err(error),
            None => self.inner.list_with_delimiter(prefix).await,
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        match refusal(&self.strike(Op::Put, to.as_ref()), to.as_ref()) {
            Some(error) => Err(error),
            None => self.inner.copy_opts(from, to, options).await,
        }
    }
}
