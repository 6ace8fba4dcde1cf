//! How far several runs are: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::note;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(20);
/// Another number of seconds instead; with 0 each run that ends gets a line.
const LINE_EVERY_VARIABLE: &str = "FAIRCAST_PROGRESS_S";

/// The progress of several runs, of which some take longer than others.
pub(crate) struct Progress {
    name: String,
    runs: usize,
    line_every: Duration,
    state: Mutex<State>,
    bar: Option<ProgressBar>,
}

struct State {
    started: Instant,
    line_at: Instant,
    done: usize,
    /// Of `total`, in a unit of its own.
    weight: u64,
    total: u64,
}

impl Progress {
    /// Of so many runs with so much work in all.
    pub(crate) fn new(name: &str, runs: usize, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(2);
            let bar = ProgressBar::with_draw_target(Some(total.max(1)), target);
            let style = format!("{name} {{bar:40}} {{msg}} runs  {{elapsed}} gone, {{eta}} left");
            bar.set_style(ProgressStyle::with_template(&style).expect("the template is valid"));
            bar.set_message(format!("0 of {runs}"));
            bar
        });
        let started = Instant::now();
        let wanted = std::env::var(LINE_EVERY_VARIABLE).ok().and_then(|text| text.parse().ok());
        let line_every = wanted.map_or(LINE_EVERY, Duration::from_secs);
        let state = State { started, line_at: started + line_every, done: 0, weight: 0, total };
        Self { name: name.to_string(), runs, line_every, state: Mutex::new(state), bar }
    }

    /// The same with a line for each run where there is no terminal: runs are long.
    pub(crate) fn for_long_runs(mut self) -> Self {
        self.line_every = Duration::ZERO;
        self.state.get_mut().expect("nobody panics with it").line_at = Instant::now();
        self
    }

    /// One run more has ended.
    pub(crate) fn ended(&self, weight: u64) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.done += 1;
        state.weight += weight;
        let message = format!("{} of {}", state.done, self.runs);
        match &self.bar {
            Some(bar) => {
                bar.set_message(message);
                bar.inc(weight);
            }
            None if Instant::now() >= state.line_at => {
                state.line_at = Instant::now() + self.line_every;
                let gone = state.started.elapsed();
                let left = left(gone, state.weight, state.total);
                let [gone, left] = [gone, left].map(|span| span.as_secs());
                note(&format!("{}: {message} runs, {gone} s gone, about {left} s left", self.name));
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How long the rest takes where what is done took `gone`.
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
