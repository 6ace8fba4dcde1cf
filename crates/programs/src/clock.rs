//! Clock that interrupts calls to programs, to limit the processor time of each call.
//!
//! A limit of real time would end correct programs on a stopped relay or a busy machine.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use wasmtime::Engine;

/// Interval between interrupts of running programs.
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
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Number of running programs.
    running: Mutex<usize>,
    /// Signalled when a program starts, and at the end of the clock.
    started: Condvar,
}

impl State {
    fn running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a running program: the clock ticks while one exists.
pub(crate) struct RunningGuard(Arc<State>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        *self.0.running() -= 1;
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.state.started.notify_one();
    }
}

impl Clock {
    pub(crate) fn start(engine: Engine) -> std::io::Result<Arc<Self>> {
        let clock = Arc::new(Self { state: Arc::default() });
        let (state, alive) = (clock.state.clone(), Arc::downgrade(&clock));
        let run = move || tick(&engine, &state, &alive);
        std::thread::Builder::new().name("programs-clock".into()).spawn(run)?;
        Ok(clock)
    }

    /// Starts interrupts, which continue until the result is dropped.
    pub(crate) fn program(self: &Arc<Self>) -> RunningGuard {
        *self.state.running() += 1;
        self.state.started.notify_one();
        RunningGuard(self.state.clone())
    }
}

fn tick(engine: &Engine, state: &State, alive: &Weak<Clock>) {
    while alive.strong_count() > 0 {
        engine.increment_epoch();
        let running = state.running();
        let idle = *running == 0;
        let wait = if idle { IDLE } else { TICK };
        // A spurious wake-up causes one more tick, which is harmless.
        drop(state.started.wait_timeout(running, wait));
    }
}

/// Interval at which the idle thread checks whether its clock still exists.
const IDLE: Duration = Duration::from_secs(1);
