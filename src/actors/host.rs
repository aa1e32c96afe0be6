//! The threads one shard runs on.
//!
//! The library brings its own actix `System`, so nothing asks the embedder to run one: an
//! address handed out works from any tokio runtime, from an actix-web service, and from plain
//! threads.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use actix_rt::{Arbiter, ArbiterHandle, System};
use tokio::runtime::{self, Runtime};

use crate::error::{Error, Operation, Result};

/// Two threads of I/O keep one entry being encoded while another waits for the store.
const IO_THREADS: usize = 2;

/// A system with an arbiter for writes and one for reads, and a runtime for I/O. Actors hold it,
/// so the threads end after the last of them.
#[derive(Debug)]
pub(crate) struct Host {
    system: System,
    write: ArbiterHandle,
    read: ArbiterHandle,
    io: runtime::Handle,
    /// Taken once, by the drop. Nothing else locks it.
    io_runtime: Mutex<Option<Runtime>>,
}

impl Host {
    /// Starts the threads. Works inside any runtime, and outside of all.
    pub(crate) fn start() -> Result<Arc<Self>> {
        let failed = |error: io::Error| Error::io(Operation::StartThreads, "a shard", 1, error);
        let io_runtime = runtime::Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .thread_name("tidewal-io")
            .enable_all()
            .build()
            .map_err(failed)?;
        let (ready, started) = mpsc::sync_channel(1);
        thread::Builder::new().name("tidewal-write".to_owned()).spawn(move || run_system(&ready)).map_err(failed)?;
        let (system, write, read) = started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread ended before its system had started")))
            .map_err(failed)?;
        let io = io_runtime.handle().clone();
        Ok(Arc::new(Host { system, write, read, io, io_runtime: Mutex::new(Some(io_runtime)) }))
    }

    /// Where WalAppender and IndexApplier run.
    pub(crate) fn write_arbiter(&self) -> ArbiterHandle {
        self.write.clone()
    }

    /// Where the Reader and the Herald run.
    pub(crate) fn read_arbiter(&self) -> ArbiterHandle {
        self.read.clone()
    }

    /// Where the store is spoken to.
    pub(crate) fn io(&self) -> runtime::Handle {
        self.io.clone()
    }
}

type Started = io::Result<(System, ArbiterHandle, ArbiterHandle)>;

/// The life of the system's thread, which is the arbiter for writes.
fn run_system(ready: &mpsc::SyncSender<Started>) {
    // Building the runtime first keeps its failure an error: actix would panic on it.
    let write_runtime = runtime::Builder::new_current_thread().enable_all().build();
    let read_runtime = runtime::Builder::new_current_thread().enable_all().build();
    let (write_runtime, read_runtime) = match (write_runtime, read_runtime) {
        (Ok(write), Ok(read)) => (write, read),
        (Err(error), _) | (_, Err(error)) => {
            // Losing it is harmless: the starter then reports that the thread ended.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let runner = System::with_tokio_rt(move || write_runtime);
    let system = System::current();
    let read = Arbiter::with_tokio_rt(move || read_runtime).handle();
    let started = Ok((system.clone(), system.arbiter().clone(), read));
    if ready.send(started).is_ok()
        && let Err(error) = runner.run()
    {
        tracing::warn!(%error, "a shard's system did not end cleanly");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Only signals, so that the last actor may drop it on one of the threads it ends.
        self.system.stop();
        let runtime = self.io_runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            // A plain drop would wait, and waiting is forbidden inside a runtime.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on the arbiter and says on which thread.
    fn thread_of(arbiter: &ArbiterHandle) -> String {
        let (name, named) = mpsc::channel();
        arbiter.spawn_fn(move || {
            name.send(thread::current().name().unwrap_or_default().to_owned()).expect("the test waits");
        });
        named.recv().expect("the arbiter runs")
    }

    #[test]
    fn a_host_starts_from_a_plain_thread_and_runs_writes_and_reads_apart() {
        let host = Host::start().expect("threads");
        assert_eq!(thread_of(&host.write_arbiter()), "tidewal-write");
        assert_ne!(thread_of(&host.read_arbiter()), "tidewal-write");
    }

    #[test]
    fn a_host_starts_and_ends_inside_a_runtime_and_inside_another_system() {
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async { drop(Host::start().expect("threads")) });
        System::new().block_on(async { drop(Host::start().expect("threads")) });
    }

    #[test]
    fn c3_a_host_may_be_dropped_on_its_own_threads() {
        for own in [Host::write_arbiter, Host::read_arbiter] {
            let host = Host::start().expect("threads");
            let arbiter = own(&host);
            let (done, ended) = mpsc::channel();
            arbiter.spawn_fn(move || {
                drop(host);
                done.send(()).expect("the test waits");
            });
            ended.recv().expect("the drop returned");
        }
        let host = Host::start().expect("threads");
        let (done, ended) = mpsc::channel();
        host.io().clone().spawn(async move {
            drop(host);
            done.send(()).expect("the test waits");
        });
        ended.recv().expect("the drop returned");
    }
}
