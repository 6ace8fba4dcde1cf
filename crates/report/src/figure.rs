//! Figures by which a matrix compares schemes.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::text::significant;

/// Figure of a scheme in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Fairness to the competitors that the case names: their rate over the scheme's.
    Fairness,
    /// Share of the bottlenecks' time in use.
    Utilisation,
    /// Seconds until the rate has settled.
    SettledS,
    /// Variation of the rate: see [`Rates::variation`](crate::Rates::variation).
    RateVariation,
    /// Feedback packets per second at the sender.
    FeedbackPerS,
    /// Rate as a share of the rate with the slowest receiver alone.
    SlowestShare,
    /// Repairs for each packet with new data.
    Repairs,
}

/// Texts and thresholds of a figure, from `figures.json`.
#[derive(Deserialize)]
struct FigureTexts {
    id: String,
    title: String,
    about: String,
    best: Good,
    /// Thresholds from worst to best; for fairness factors of 5, 3, 2 and 1.25 from 1.
    steps: [f64; 4],
}

static TEXTS: LazyLock<Vec<FigureTexts>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("figures.json")).expect("a test reads the figures")
});

impl Figure {
    /// All figures, in display order.
    pub const ALL: [Self; 7] = [
        Self::Fairness,
        Self::Utilisation,
        Self::SettledS,
        Self::RateVariation,
        Self::FeedbackPerS,
        Self::SlowestShare,
        Self::Repairs,
    ];

    fn texts(self) -> &'static FigureTexts {
        &TEXTS[self as usize]
    }

    /// Returns the figure's key in JSON and in anchors.
    pub fn id(self) -> &'static str {
        &self.texts().id
    }

    /// Returns the figure's title with its unit.
    pub fn title(self) -> &'static str {
        &self.texts().title
    }

    /// Describes the figure in one or two sentences.
    pub fn about(self) -> &'static str {
        &self.texts().about
    }

    fn merit(self, value: f64) -> f64 {
        match self.texts().best {
            Good::More => value,
            Good::Less => -value,
            // A session without any rate beside others is starved; 0/0 has no merit.
            Good::One if value > 0.0 => value.min(1.0 / value),
            Good::One => 0.0,
        }
    }

    /// Returns the worse of two values, or the first if they are equally good.
    pub fn worse(self, a: f64, b: f64) -> f64 {
        if self.merit(b) < self.merit(a) { b } else { a }
    }

    pub(crate) fn lean(self, value: f64) -> Option<Lean> {
        // Fairness is others' rate over the session's; `SlowestShare` is the session's own share.
        let takes_more = match self {
            Self::Fairness => value < 1.0,
            Self::SlowestShare => value > 1.0,
            _ => return None,
        };
        Some(match (self.step(value), takes_more) {
            (4, _) => Lean::Fair,
            (_, true) => Lean::TooMuch,
            (_, false) => Lean::TooLittle,
        })
    }

    pub(crate) fn step(self, value: f64) -> usize {
        let is_passed = |threshold: &&f64| self.merit(value) >= self.merit(**threshold);
        self.texts().steps.iter().filter(is_passed).count()
    }

    /// Formats a value for display.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::SettledS if value.is_infinite() => "never".into(),
            _ if value.is_infinite() => "∞".into(),
            Self::SettledS => format!("{value:.0}"),
            Self::FeedbackPerS if value >= 10.0 => format!("{value:.0}"),
            Self::FeedbackPerS => format!("{value:.1}"),
            _ if value.is_finite() && value.abs() < 100.0 => format!("{value:.2}"),
            _ => significant(value),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lean {
    TooMuch,
    Fair,
    TooLittle,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Good {
    More,
    Less,
    /// A value near 1 is better: 0.5 is as far from 1 as 2.
    One,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_values_have_higher_steps() {
        for figure in Figure::ALL {
            let values = match figure {
                Figure::SettledS => [f64::INFINITY, 100.0, 50.0, 20.0, 5.0],
                Figure::FeedbackPerS => [5000.0, 500.0, 200.0, 50.0, 5.0],
                Figure::RateVariation | Figure::Repairs => [1.1, 0.6, 0.4, 0.16, 0.01],
                Figure::Fairness => [f64::INFINITY, 3.0, 0.6, 1.2, 1.0],
                _ => [0.0, 0.45, 0.75, 0.9, 1.0],
            };
            let steps: Vec<usize> = values.iter().map(|value| figure.step(*value)).collect();
            assert_eq!(serde_json::to_value(figure).unwrap(), figure.id());
            assert!(steps.is_sorted(), "{}: {steps:?}", figure.id());
            assert_eq!((steps[0], steps[4]), (0, 4), "{}", figure.id());
        }
    }

    #[test]
    fn a_session_that_takes_too_much_is_told_from_one_that_gets_too_little() {
        for (figure, value, want) in [
            (Figure::Fairness, 0.49, Lean::TooMuch),
            (Figure::Fairness, 0.0, Lean::TooMuch),
            (Figure::Fairness, 0.9, Lean::Fair),
            (Figure::Fairness, 1.2, Lean::Fair),
            (Figure::Fairness, 1.5, Lean::TooLittle),
            (Figure::Fairness, f64::INFINITY, Lean::TooLittle),
            (Figure::SlowestShare, 0.0, Lean::TooLittle),
            (Figure::SlowestShare, 1.5, Lean::TooMuch),
        ] {
            assert_eq!(figure.lean(value), Some(want), "{} {value}", figure.id());
        }
        assert_eq!(Figure::Utilisation.lean(0.1), None);
    }
}
