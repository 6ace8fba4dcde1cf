//! Output of events: lines of text, lines of JSON, or none.

use std::io::IsTerminal as _;

use faircast_base::escaped;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::args::WatchOptions;
use crate::error::{Result, note, print};

pub(crate) struct Output {
    mode: Mode,
    bar: Option<ProgressBar>,
    progress_at: Option<std::time::Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Text,
    Json,
    Quiet,
}

impl Output {
    pub(crate) fn new(watch: &WatchOptions) -> Self {
        let mode = match (watch.json, watch.quiet) {
            (true, _) => Mode::Json,
            (false, true) => Mode::Quiet,
            (false, false) => Mode::Text,
        };
        let bar = (mode == Mode::Text && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(1000);
            bar.set_style(style(0, ""));
            bar
        });
        Self { mode, bar, progress_at: None }
    }

    /// Reports an event: `text` for people, `event` with the fields of `json` for programs.
    pub(crate) fn tell(&self, event: &str, text: &str, json: Value) -> Result {
        match (self.mode, &self.bar) {
            (Mode::Quiet, _) => Ok(()),
            (Mode::Json, _) => print(&json_line(event, &json)),
            (Mode::Text, _) if text.is_empty() => Ok(()),
            (Mode::Text, Some(bar)) => bar.suspend(|| print(&format!("{text}\n"))),
            (Mode::Text, None) => print(&format!("{text}\n")),
        }
    }

    pub(crate) fn waiting(&self, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_message(escaped(&text()).into_owned());
        }
    }

    pub(crate) fn warn(&self, text: &str) -> Result {
        match (self.mode, &self.bar) {
            (Mode::Json, _) => {
                print(&json_line("warning", &serde_json::json!({ "text": text })))?;
            }
            (_, Some(bar)) => bar.suspend(|| note(text)),
            (_, None) => note(text),
        }
        Ok(())
    }

    pub(crate) fn progress(
        &mut self,
        share: f64,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) -> Result {
        if let Some(bar) = &self.bar {
            let text = escaped(&text()).into_owned();
            let (_, columns) = console::Term::stderr().size();
            bar.set_style(style(columns.into(), &text));
            bar.set_position((share * 1000.0) as u64);
            bar.set_message(text);
            return Ok(());
        }
        let interval = if self.mode == Mode::Json { JSON_INTERVAL_S } else { TEXT_INTERVAL_S };
        let now = std::time::Instant::now();
        let last = *self.progress_at.get_or_insert(now);
        if self.mode == Mode::Quiet || now.duration_since(last).as_secs_f64() < interval {
            return Ok(());
        }
        self.progress_at = Some(now);
        match self.mode {
            Mode::Json => print(&json_line("progress", &json())),
            _ => print(&format!("{:>4.0} %  {}\n", share * 100.0, text())),
        }
    }

    /// Reports the result, even with `--quiet`. Long JSON is made while it is printed.
    pub(crate) fn result(&mut self, event: &str, text: &str, json: &impl Serialize) -> Result {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        match self.mode {
            Mode::Json => print(&json_line(event, json)),
            Mode::Text | Mode::Quiet => print(text),
        }
    }
}

fn style(columns: usize, text: &str) -> ProgressStyle {
    ProgressStyle::with_template(&template(columns, text)).expect("the template is valid")
}

fn template(columns: usize, text: &str) -> String {
    let room = columns.saturating_sub(text.chars().count() + PERCENT_COLUMNS + 1);
    match room.min(BAR_COLUMNS_MAX) {
        0..BAR_COLUMNS_MIN => "{percent:>3} %  {wide_msg}".to_string(),
        bar => format!("{{bar:{bar}}} {{percent:>3}} %  {{wide_msg}}"),
    }
}

const PERCENT_COLUMNS: usize = 7;
const BAR_COLUMNS_MIN: usize = 5;
const BAR_COLUMNS_MAX: usize = 30;

fn json_line(event: &str, json: &impl Serialize) -> String {
    let fields = serde_json::to_string(json).expect("keys are texts");
    match fields.strip_prefix('{') {
        Some("}") | None => format!("{{\"event\":\"{event}\"}}\n"),
        Some(fields) => format!("{{\"event\":\"{event}\",{fields}\n"),
    }
}

const TEXT_INTERVAL_S: f64 = 5.0;
const JSON_INTERVAL_S: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_gives_way_to_the_text() {
        for (columns, text, bar) in [
            (80, 30, Some(30)),
            (80, 60, Some(12)),
            (80, 67, Some(5)),
            (80, 68, None),
            (0, 9, None),
        ] {
            let template = template(columns, &"x".repeat(text));
            let want = bar.map(|bar| format!("{{bar:{bar}}} "));
            assert_eq!(template.starts_with("{bar"), bar.is_some(), "{text}: {template}");
            assert!(want.is_none_or(|want| template.starts_with(&want)), "{text}: {template}");
            let used = bar.map_or(0, |bar| bar + 1) + PERCENT_COLUMNS + text;
            assert!(used <= columns || bar.is_none(), "{text}");
        }
    }
}
