//! Clock that interrupts calls to programs, to limit the processor time of each call.
//!
//! A limit of real time would end correct programs on a stopped relay or a busy machine.

use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use wasmtime::Engine;

const TICK: Duration = Duration::from_millis(10);
/// Most processor time of a call: 50 ms. Chosen: 100 times the time of the allowed instructions.
const CALL_TIME_MAX: Duration = Duration::from_millis(50);

/// Processor time of the calling thread at the first interrupt of a call.
#[derive(Debug, Default)]
pub(crate) struct Spent(Option<Duration>);

impl Spent {
    /// True if the call may continue. Called at each interrupt by the thread that runs the program.
    pub(crate) fn has_time_left(&mut self) -> bool {
        // Without this clock, the first interrupt ends the call.
        let clock = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let Ok(now) = clock.map(Duration::from) else { return false };
        now.saturating_sub(*self.0.get_or_insert(now)) < CALL_TIME_MAX
    }
}

/// Clock of an engine. Its thread sleeps while no program runs, and ends with the clock.
pub(crate) struct Clock {
    /// One reference for each running program, and one of the clock.
    running: Arc<()>,
    thread: Thread,
}

/// Guard of a running program: the clock ticks while one exists.
pub(crate) struct RunningGuard(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Drop for Clock {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

impl Clock {
    pub(crate) fn start(engine: Engine) -> std::io::Result<Arc<Self>> {
        let running = Arc::new(());
        let references = Arc::downgrade(&running);
        let run = move || tick(&engine, &references);
        let thread = std::thread::Builder::new().name("programs-clock".into()).spawn(run)?;
        Ok(Arc::new(Self { running, thread: thread.thread().clone() }))
    }

    /// Starts interrupts, which continue until the result is dropped.
    pub(crate) fn program(&self) -> RunningGuard {
        let guard = RunningGuard(self.running.clone());
        self.thread.unpark();
        guard
    }
}

fn tick(engine: &Engine, references: &Weak<()>) {
    loop {
        engine.increment_epoch();
        // A wake-up without a reason causes one more tick, which is harmless.
        match references.strong_count() {
            0 => return,
            1 => std::thread::park_timeout(IDLE),
            _ => std::thread::park_timeout(TICK),
        }
    }
}

/// Interval at which the idle thread checks whether its clock still exists.
const IDLE: Duration = Duration::from_secs(1);
