//! Progress of runs: a bar on a terminal, elsewhere lines for several runs.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faircast_base::Time;
use faircast_sim::Observer;
use faircast_study::{Monitor, Runs};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::note;
use crate::interrupt::interrupted;

const LINE_EVERY: Duration = Duration::from_secs(20);
const LINE_EVERY_VARIABLE: &str = "FAIRCAST_PROGRESS_S";

/// Longest time that a single run is not shown: 1 s, because most runs are shorter.
const HIDDEN_AT_FIRST: Duration = Duration::from_secs(1);
const RUN_BAR_LENGTH: u64 = 1000;

/// Returns a bar that is not drawn yet, because a draw target shows the empty bar at once.
fn hidden_bar(style: &str, length: u64) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        bar.with_style(ProgressStyle::with_template(style).expect("the template is valid"))
    })
}

pub(crate) struct Watch {
    started: Instant,
    end: Time,
    bar: Option<ProgressBar>,
    is_shown: bool,
}

impl Watch {
    pub(crate) fn new(duration: faircast_base::Duration, show: bool) -> Self {
        let style = "{bar:40} {percent:>3} %  {msg}  {elapsed} gone, {eta} left";
        let bar = if show { hidden_bar(style, RUN_BAR_LENGTH) } else { None };
        Self { started: Instant::now(), end: Time::ZERO + duration, bar, is_shown: false }
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
            if !self.is_shown && self.started.elapsed() > HIDDEN_AT_FIRST {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
                self.is_shown = true;
            }
            let share = now.as_secs_f64() / self.end.as_secs_f64();
            bar.set_position((share * RUN_BAR_LENGTH as f64) as u64);
            bar.set_message(format!("{:.1} s of the run", now.as_secs_f64()));
        }
        ControlFlow::Continue(())
    }
}

/// Monitor of several runs, which shows their progress and stops them on Ctrl-C. Contains the
/// present runs, between [`begin`](Monitor::begin) and [`finish`](Monitor::finish).
#[derive(Default)]
pub(crate) struct RunsMonitor(Mutex<Option<RunsState>>);

struct RunsState {
    name: String,
    run_count: usize,
    ended_count: usize,
    total_weight: u64,
    ended_weight: u64,
    started: Instant,
    line_every: Duration,
    line_at: Instant,
    bar: Option<ProgressBar>,
}

impl RunsMonitor {
    fn state(&self) -> MutexGuard<'_, Option<RunsState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Monitor for RunsMonitor {
    fn begin(&self, runs: Runs<'_>) {
        let style =
            format!("{} {{bar:40}} {{msg}} runs  {{elapsed}} gone, {{eta}} left", runs.name);
        let bar = hidden_bar(&style, runs.weight.max(1));
        if let Some(bar) = &bar {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(2));
            bar.set_message(format!("0 of {}", runs.count));
        }
        // Each long run that ends gets a line.
        let default = if runs.long { Duration::ZERO } else { LINE_EVERY };
        let line_every = match std::env::var(LINE_EVERY_VARIABLE) {
            Err(std::env::VarError::NotPresent) => default,
            value => line_interval(&value.unwrap_or_default()).unwrap_or_else(|| {
                note(&format!(
                    "{LINE_EVERY_VARIABLE} is not a whole number of seconds, and is ignored"
                ));
                default
            }),
        };
        let started = Instant::now();
        let state = RunsState {
            name: runs.name.to_string(),
            run_count: runs.count,
            ended_count: 0,
            total_weight: runs.weight,
            ended_weight: 0,
            started,
            line_every,
            line_at: started + line_every,
            bar,
        };
        *self.state() = Some(state);
    }

    fn ended(&self, weight: u64) {
        if let Some(state) = &mut *self.state() {
            state.run_ended(weight);
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.state().take().and_then(|state| state.bar) {
            bar.finish_and_clear();
        }
    }

    fn note(&self, text: &str) {
        note(text);
    }

    fn is_to_stop(&self) -> bool {
        interrupted()
    }
}

impl RunsState {
    fn run_ended(&mut self, weight: u64) {
        self.ended_count += 1;
        self.ended_weight += weight;
        let message = format!("{} of {}", self.ended_count, self.run_count);
        match &self.bar {
            Some(bar) => {
                bar.set_message(message);
                bar.inc(weight);
            }
            None if Instant::now() >= self.line_at => {
                self.line_at = Instant::now() + self.line_every;
                let elapsed = self.started.elapsed();
                let remaining = remaining(elapsed, self.ended_weight, self.total_weight);
                let [gone_s, left_s] = [elapsed, remaining].map(|span| span.as_secs());
                let name = &self.name;
                note(&format!("{name}: {message} runs, {gone_s} s gone, about {left_s} s left"));
            }
            None => {}
        }
    }
}

fn line_interval(text: &str) -> Option<Duration> {
    text.parse().ok().map(|seconds: u32| Duration::from_secs(u64::from(seconds)))
}

fn remaining(elapsed: Duration, ended_weight: u64, total_weight: u64) -> Duration {
    let share = total_weight.saturating_sub(ended_weight) as f64 / ended_weight.max(1) as f64;
    Duration::from_secs_f64((elapsed.as_secs_f64() * share).min(1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        let of = |elapsed_s, ended, total| {
            remaining(Duration::from_secs(elapsed_s), ended, total).as_secs()
        };
        assert_eq!(of(10, 25, 100), 30);
        assert_eq!(of(10, 100, 100), 0);
        assert_eq!(of(10, 0, 100), 1000);
        assert_eq!(of(u64::MAX / 2, 1, u64::MAX), 1_000_000_000, "no overflow");
    }

    #[test]
    fn intervals_of_lines_are_whole_seconds() {
        assert_eq!(line_interval("0"), Some(Duration::ZERO));
        assert_eq!(line_interval("90"), Some(Duration::from_secs(90)));
        for malformed in ["", "20 s", "-1", "0.5"] {
            assert_eq!(line_interval(malformed), None, "{malformed}");
        }
    }
}
