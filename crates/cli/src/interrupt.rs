//! Ctrl-C, and the progress line of long runs.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as WallDuration, Instant};

use faircast_base::{Duration, Time};
use faircast_sim::Observer;
use indicatif::{ProgressBar, ProgressStyle};

/// Whether Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes the first Ctrl-C end the work at its next event; a second one kills the program.
pub(crate) fn listen() {
    let on_signal = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without a handler Ctrl-C kills the program at once, which is worse but not wrong.
    let _ = ctrlc::set_handler(on_signal);
}

/// Whether Ctrl-C was pressed.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Ends a run on Ctrl-C, and shows on a terminal how far it is once it has taken a second.
pub(crate) struct Watch {
    started: Instant,
    end: Time,
    bar: Option<ProgressBar>,
    shown: bool,
}

impl Watch {
    /// Watches a run of this length; `show` allows the progress line.
    pub(crate) fn new(duration: Duration, show: bool) -> Self {
        let bar = (show && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::hidden();
            let style = "{bar:40} {percent:>3} %  {msg}  {elapsed} gone, {eta} left";
            bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
            bar.set_length(1000);
            bar
        });
        Self { started: Instant::now(), end: Time::ZERO + duration, bar, shown: false }
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Watch {
    fn observe(&mut self, now: Time, _events: u64) -> ControlFlow<()> {
        if interrupted() {
            return ControlFlow::Break(());
        }
        if let Some(bar) = &self.bar {
            if !self.shown && self.started.elapsed() > WallDuration::from_secs(1) {
                bar.set_draw_target(indicatif::ProgressDrawTarget::stderr_with_hz(5));
                self.shown = true;
            }
            let share = now.as_secs_f64() / self.end.as_secs_f64();
            bar.set_position((share * 1000.0) as u64);
            bar.set_message(format!("{:.1} s of the run", now.as_secs_f64()));
        }
        ControlFlow::Continue(())
    }
}
