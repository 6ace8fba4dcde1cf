//! Ctrl-C, and the progress of runs: a bar on a terminal, elsewhere lines for several runs.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use faircast_base::Time;
use faircast_sim::Observer;
use faircast_study::{Monitor, Runs};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::{Failure, note};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Interval between lines without a terminal: 20 s.
const LINE_EVERY: Duration = Duration::from_secs(20);
/// Variable that replaces [`LINE_EVERY`], in seconds; with 0 each run that ends gets a line.
const LINE_EVERY_VARIABLE: &str = "FAIRCAST_PROGRESS_S";

/// Installs the handler: the first Ctrl-C ends the work at its next event, a second kills.
pub(crate) fn listen() {
    let on_signal = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    let _ = ctrlc::set_handler(on_signal);
}

pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

pub(crate) fn with_jobs<T: Send>(
    jobs: Option<u16>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.map_or(0, usize::from));
    let pool = pool.build().map_err(|error| Failure::Work(format!("--jobs: {error}")))?;
    Ok(pool.install(work))
}

fn bar(style: &str, length: u64) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        bar.with_style(ProgressStyle::with_template(style).expect("the template is valid"))
    })
}

/// Watch of a single run: ends it on Ctrl-C, and shows its progress on a terminal after 1 s.
pub(crate) struct Watch {
    started: Instant,
    end: Time,
    bar: Option<ProgressBar>,
    shown: bool,
}

impl Watch {
    pub(crate) fn new(duration: faircast_base::Duration, show: bool) -> Self {
        let style = "{bar:40} {percent:>3} %  {msg}  {elapsed} gone, {eta} left";
        let bar = if show { bar(style, 1000) } else { None };
        Self { started: Instant::now(), end: Time::ZERO + duration, bar, shown: false }
    }

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
            if !self.shown && self.started.elapsed() > Duration::from_secs(1) {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
                self.shown = true;
            }
            let share = now.as_secs_f64() / self.end.as_secs_f64();
            bar.set_position((share * 1000.0) as u64);
            bar.set_message(format!("{:.1} s of the run", now.as_secs_f64()));
        }
        ControlFlow::Continue(())
    }
}

/// Progress of several runs, weighted by their costs. Ctrl-C stops them.
#[derive(Default)]
pub(crate) struct Terminal(Mutex<Option<Progress>>);

/// Progress of many runs on the terminal: a bar, or lines at intervals.
struct Progress {
    name: String,
    runs: usize,
    weight: u64,
    total: u64,
    done: usize,
    started: Instant,
    line_every: Duration,
    line_at: Instant,
    bar: Option<ProgressBar>,
}

impl Terminal {
    fn change(&self, change: impl FnOnce(&mut Option<Progress>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Monitor for Terminal {
    fn begin(&self, runs: Runs<'_>) {
        let Runs { name, count, weight: total, long } = runs;
        let style = format!("{name} {{bar:40}} {{msg}} runs  {{elapsed}} gone, {{eta}} left");
        let bar = bar(&style, total.max(1));
        if let Some(bar) = &bar {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(2));
            bar.set_message(format!("0 of {count}"));
        }
        let wanted = std::env::var(LINE_EVERY_VARIABLE).ok().and_then(|text| text.parse().ok());
        let line_every = match long {
            true => Duration::ZERO,
            false => wanted.map_or(LINE_EVERY, Duration::from_secs),
        };
        let (name, started) = (name.to_string(), Instant::now());
        let line_at = started + line_every;
        let (runs, weight, done) = (count, 0, 0);
        let progress =
            Progress { name, runs, weight, total, done, started, line_every, line_at, bar };
        self.change(|state| *state = Some(progress));
    }

    fn ended(&self, weight: u64) {
        self.change(|state| {
            if let Some(progress) = state {
                progress.ended(weight);
            }
        });
    }

    fn finish(&self) {
        self.change(|state| {
            if let Some(bar) = state.take().and_then(|progress| progress.bar) {
                bar.finish_and_clear();
            }
        });
    }

    fn note(&self, text: &str) {
        note(text);
    }

    fn is_to_stop(&self) -> bool {
        interrupted()
    }
}

impl Progress {
    fn ended(&mut self, weight: u64) {
        self.done += 1;
        self.weight += weight;
        let message = format!("{} of {}", self.done, self.runs);
        match &self.bar {
            Some(bar) => {
                bar.set_message(message);
                bar.inc(weight);
            }
            None if Instant::now() >= self.line_at => {
                self.line_at = Instant::now() + self.line_every;
                let gone = self.started.elapsed();
                let left = left(gone, self.weight, self.total);
                let [gone, left] = [gone, left].map(|span| span.as_secs());
                note(&format!("{}: {message} runs, {gone} s gone, about {left} s left", self.name));
            }
            None => {}
        }
    }
}

fn left(gone: Duration, done: u64, total: u64) -> Duration {
    let share = total.saturating_sub(done) as f64 / done.max(1) as f64;
    Duration::from_secs_f64((gone.as_secs_f64() * share).min(1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        let of = |gone, done, total| left(Duration::from_secs(gone), done, total).as_secs();
        assert_eq!(of(10, 25, 100), 30);
        assert_eq!(of(10, 100, 100), 0);
        assert_eq!(of(10, 0, 100), 1000);
        assert_eq!(of(u64::MAX / 2, 1, u64::MAX), 1_000_000_000, "no overflow");
    }
}
