//! stub
use crate::actors::lifecycle::Status;
use crate::config::CpuPool;
use crate::error::Result;
use crate::ids::Seq;
use crate::memtable::MemtableReader;
use crate::spec::ValidatedSpec;
use crate::value::Key;
use arrow_array::RecordBatch;
use std::sync::Arc;
use tokio::sync::Semaphore;
/// v
pub(crate) struct View {
    m: Vec<MemtableReader>,
}
impl View {
    pub(crate) fn of_memtable(m: MemtableReader) -> Self {
        View { m: vec![m] }
    }
    pub(crate) fn oldest_snapshot(&self) -> Seq {
        Seq::ZERO
    }
}
#[derive(Clone)]
pub(crate) struct Reading {
    spec: Arc<ValidatedSpec>,
    status: Arc<Status>,
}
impl Reading {
    pub(crate) fn new(spec: Arc<ValidatedSpec>, status: Arc<Status>, _p: Arc<dyn CpuPool>, _g: Arc<Semaphore>) -> Self {
        Reading { spec, status }
    }
}
/// s
#[derive(Clone)]
pub struct Snapshot {
    view: Arc<View>,
    seq: Seq,
    r: Reading,
}
/// l
#[derive(Debug, Clone)]
pub enum Lookup {
    /// f
    Found(RecordBatch),
    /// d
    Deleted,
    /// m
    Missing,
}
impl Lookup {
    /// r
    pub fn row(&self) -> Option<&RecordBatch> {
        if let Lookup::Found(r) = self { Some(r) } else { None }
    }
}
/// l
#[derive(Debug)]
pub struct Lookups;
/// r
pub struct RowStream;
/// s
#[derive(Debug, Clone)]
pub struct Scan;
impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("s")
    }
}
impl Snapshot {
    /// s
    pub fn seq(&self) -> Seq {
        self.seq
    }
    pub(crate) fn new(view: Arc<View>, seq: Seq, r: Reading) -> Self {
        Snapshot { view, seq, r }
    }
    /// g
    pub fn get(&self, key: impl Into<Key>) -> Result<Lookup> {
        self.r.status.check_readable()?;
        let m = &self.view.m[0];
        let pk = m.primary_key().unwrap();
        let k = pk.encoder().encode_key(&key.into())?;
        Ok(match pk.newest(&k, self.seq) {
            None => Lookup::Missing,
            Some(s) => {
                let row = m.rows().row(s).unwrap();
                let t = arrow_array::cast::AsArray::as_boolean(row.column(self.r.spec.tombstone_column()).as_ref())
                    .value(0);
                if t { Lookup::Deleted } else { Lookup::Found(row) }
            }
        })
    }
    /// m
    pub fn get_many(&self, _k: &[Key]) -> Result<Lookups> {
        self.r.status.check_readable()?;
        Ok(Lookups)
    }
    /// s
    pub fn scan(&self, _s: Scan) -> Result<RowStream> {
        Ok(RowStream)
    }
}
