//! Host of programs for real networks: compiles in its own thread, and limits processor time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};

use faircast_proto::credit::{Loaded, PendingLoad, ProgramHost};

use crate::clock::Clock;
use crate::host::{Limits, WasmHost};
use crate::signature::{ProgramError, Signers};

/// Most programs that wait for the compiler; further ones are refused.
const JOBS_MAX: usize = 64;
const COMPILER_STACK_BYTES: usize = 8 << 20;

/// Host with a compiler thread that a relay polls. Calls are also limited by processor time.
#[derive(Debug)]
pub struct LiveHost {
    jobs: SyncSender<Job>,
}

struct Job {
    code: Vec<u8>,
    /// Destination of the result; gone if nobody waits any more.
    result: Weak<OnceLock<Loaded>>,
}

impl LiveHost {
    /// Creates a host for programs that `signers` allow; fails without support or threads.
    pub fn new(limits: Limits, signers: Signers) -> Result<Self, ProgramError> {
        let no_thread = |error: std::io::Error| ProgramError::Host(error.to_string());
        let mut host = WasmHost::new(limits, signers)?;
        host.clock = Some(Clock::start(host.engine.clone()).map_err(no_thread)?);
        let (jobs, next) = sync_channel(JOBS_MAX);
        let thread =
            std::thread::Builder::new().name("programs".into()).stack_size(COMPILER_STACK_BYTES);
        thread.spawn(move || compile(&host, &next)).map_err(no_thread)?;
        Ok(Self { jobs })
    }
}

fn compile(host: &WasmHost, jobs: &Receiver<Job>) {
    for Job { code, result } in jobs {
        if result.strong_count() == 0 {
            continue;
        }
        let loaded = catch_unwind(AssertUnwindSafe(|| host.load_now(&code)));
        let loaded = loaded.unwrap_or_else(|_| Err("the compiler failed".to_string()));
        if let Some(result) = result.upgrade() {
            _ = result.set(loaded);
        }
    }
}

impl ProgramHost for LiveHost {
    fn load(&self, code: &[u8]) -> PendingLoad {
        let result = Arc::new(OnceLock::new());
        let job = Job { code: code.to_vec(), result: Arc::downgrade(&result) };
        if self.jobs.try_send(job).is_err() {
            _ = result.set(Err("too many programs wait for the compiler".to_string()));
        }
        Box::new(move |_| result.get().cloned())
    }
}
