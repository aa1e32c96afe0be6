//! The components a shard gets unless it is given others: the machine's clock, randomness and
//! cores.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::config::{BoxFuture, Clock, Components, CpuPool, Entropy, Job};

impl Default for Components {
    /// The machine's clock and randomness, and a pool of one thread per core that every shard
    /// of the process shares.
    #[expect(clippy::disallowed_methods, reason = "this is the one clock that may use the machine's")]
    fn default() -> Self {
        static POOL: LazyLock<Arc<dyn CpuPool>> = LazyLock::new(ThreadPool::one_per_core);
        Components {
            clock: Arc::new(MachineClock { start: Instant::now() }),
            entropy: Arc::new(MachineEntropy),
            cpu_pool: Arc::clone(&POOL),
        }
    }
}

#[derive(Debug)]
struct MachineClock {
    start: Instant,
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one clock that may use the machine's")]
    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[derive(Debug)]
struct MachineEntropy;

impl Entropy for MachineEntropy {
    #[expect(clippy::disallowed_methods, reason = "this is the one source that may use the machine's")]
    fn draw(&self) -> u128 {
        let mut bytes = [0; 16];
        if getrandom::fill(&mut bytes).is_ok() {
            return u128::from_le_bytes(bytes);
        }
        // Without the system's randomness two hashers with their own keys still differ between
        // openings, which is all a nonce has to do.
        use std::hash::{BuildHasher, RandomState};
        let half = || u128::from(RandomState::new().hash_one(std::process::id()));
        half() << 64 | half()
    }
}

/// A pool that runs every job at once on the caller's thread: for tests that want one order of
/// events, and for processes that may not start threads.
#[derive(Debug)]
pub struct InlinePool;

impl CpuPool for InlinePool {
    fn spawn(&self, job: Job<'static>) {
        job();
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

#[derive(Debug)]
struct ThreadPool(rayon::ThreadPool);

impl ThreadPool {
    fn one_per_core() -> Arc<dyn CpuPool> {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|at| format!("tidewal-cpu-{at}"))
            // A job that panics reports it itself, by dropping what its asker waits on. The
            // default would end the embedder's process.
            .panic_handler(|_| ())
            .build();
        match pool {
            Ok(pool) => Arc::new(ThreadPool(pool)),
            // A process at its thread limit still works, slower.
            Err(_) => Arc::new(InlinePool),
        }
    }
}

impl CpuPool for ThreadPool {
    fn spawn(&self, job: Job<'static>) {
        self.0.spawn(job);
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        self.0.in_place_scope(|scope| {
            for job in jobs {
                scope.spawn(move |_| job());
            }
        });
    }
}
