//! The figures by which a matrix compares schemes.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::text::significant;

/// What every cell of a matrix tells of a scheme in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// How evenly it shares with whom the case names: their rate over its own.
    Fairness,
    /// What share of the bottlenecks' time is used.
    Utilisation,
    /// Seconds until its rate has settled.
    SettledS,
    /// How much its rate varies: see [`Rates::variation`](crate::Rates::variation).
    RateVariation,
    /// Packets a second that come back to the sender.
    FeedbackPerS,
    /// Its rate as a share of what it has with the slowest receiver alone.
    SlowestShare,
    /// Repairs for each packet with new data.
    Repairs,
}

/// A figure in words, and how its values are judged.
#[derive(Deserialize)]
struct Told {
    id: String,
    title: String,
    about: String,
    best: Good,
    /// Steps from worst to best; of fairness at factors of 5, 3, 2 and 1.25 from 1.
    steps: [f64; 4],
}

/// In the order of [`Figure::ALL`].
static TOLD: LazyLock<Vec<Told>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("figures.json")).expect("a test reads the figures")
});

impl Figure {
    /// All figures, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Fairness,
        Self::Utilisation,
        Self::SettledS,
        Self::RateVariation,
        Self::FeedbackPerS,
        Self::SlowestShare,
        Self::Repairs,
    ];

    fn told(self) -> &'static Told {
        &TOLD[self as usize]
    }

    /// Its key in JSON and in anchors.
    pub fn id(self) -> &'static str {
        &self.told().id
    }

    /// Its name for people, with its unit.
    pub fn title(self) -> &'static str {
        &self.told().title
    }

    /// What it is, in a sentence or two.
    pub fn about(self) -> &'static str {
        &self.told().about
    }

    /// How good a value is, to compare: more is better.
    fn merit(self, value: f64) -> f64 {
        match self.told().best {
            Good::More => value,
            Good::Less => -value,
            // A session with nothing beside others is starved; nothing over nothing says nothing.
            Good::One if value > 0.0 => value.min(1.0 / value),
            Good::One => 0.0,
        }
    }

    /// The worse of two values, the first where they are as good.
    pub fn worse(self, a: f64, b: f64) -> f64 {
        if self.merit(b) < self.merit(a) { b } else { a }
    }

    /// Which side of what is fair a value is on, where this figure has two.
    pub(crate) fn lean(self, value: f64) -> Option<Lean> {
        // The one is others' rate over the session's, the other the session's own.
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

    /// How good a value is, in five steps from 0 to 4, for colours.
    pub(crate) fn step(self, value: f64) -> usize {
        let reached = |from: &&f64| self.merit(value) >= self.merit(**from);
        self.told().steps.iter().filter(reached).count()
    }

    /// A value as people read it.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::SettledS if value.is_infinite() => "never".into(),
            // Of who has nothing.
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
    /// The greater.
    More,
    Less,
    /// Those near 1: a half is as far from it as 2.
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
