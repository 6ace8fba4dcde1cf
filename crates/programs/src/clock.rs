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
const QUESTION_MAX: Duration = Duration::from_millis(50);

/// Processor time of the calling thread at the first interrupt of a call.
#[derive(Debug, Default)]
pub(crate) struct Spent(Option<Duration>);

impl Spent {
    /// True if the call may continue. Called at each interrupt by the thread that runs the program.
    pub(crate) fn has_time_left(&mut self) -> bool {
        // Without this clock, the first interrupt ends the call.
        let clock = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let Ok(now) = clock.map(Duration::from) else { return false };
        now.saturating_sub(*self.0.get_or_insert(now)) < QUESTION_MAX
    }
}

/// Clock of an engine. Its thread sleeps while no program runs, and ends with the clock.
pub(crate) struct Clock {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    at_work: Mutex<usize>,
    begins: Condvar,
}

impl State {
    fn at_work(&self) -> MutexGuard<'_, usize> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Asked(Arc<State>);

impl Drop for Asked {
    fn drop(&mut self) {
        *self.0.at_work() -= 1;
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.state.begins.notify_one();
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
    pub(crate) fn asked(self: &Arc<Self>) -> Asked {
        *self.state.at_work() += 1;
        self.state.begins.notify_one();
        Asked(self.state.clone())
    }
}

fn tick(engine: &Engine, state: &State, alive: &Weak<Clock>) {
    while alive.strong_count() > 0 {
        engine.increment_epoch();
        let at_work = state.at_work();
        let idle = *at_work == 0;
        let wait = if idle { IDLE } else { TICK };
        // A spurious wake-up causes one more tick, which is harmless.
        drop(state.begins.wait_timeout(at_work, wait));
    }
}

/// Interval at which the idle thread checks whether its clock still exists.
const IDLE: Duration = Duration::from_secs(1);
