//! Plot: its lines and marks, and their style.

use serde::Serialize;

/// Plot with lines over time, and rows of marks above them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    pub key: &'static str,
    pub(crate) title: &'static str,
    /// Description, as part of a sentence.
    pub(crate) about: String,
    pub(crate) axis: &'static str,
    pub(crate) unit: Unit,
    /// Lines in drawing order; the last ones are on top.
    pub(crate) lines: Vec<Line>,
    /// Marks; each row has a lane of its own above the lines, so that none covers a line.
    pub(crate) marks: Vec<MarkRow>,
    /// Row names of a plot of names, from below; empty for all others.
    pub(crate) names: Vec<String>,
    /// True if the legend lists the numerous flows or links apart from the kinds of lines.
    pub(crate) crowd: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    #[default]
    Count,
    Packets,
    Rate,
    Span,
    Receivers,
    /// Index in a list of names.
    Name,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Flow, link or group of flows.
    pub(crate) owner: String,
    /// Protocol of the flow or group; empty for links.
    pub(crate) protocol: String,
    /// Quantity: `sent`, `mean`.
    pub(crate) kind: &'static str,
    pub(crate) points: Points,
    /// Range of the values whose mean the line is, at the times of `points`.
    pub(crate) range: Option<Vec<(f64, f64)>>,
    pub(crate) shape: Shape,
    /// Index of the colour in the palette: one for each protocol, or link.
    pub(crate) colour: usize,
    /// Index of the dashes: one for each flow of a protocol.
    pub(crate) dash: usize,
    pub(crate) weight: Weight,
    pub(crate) hidden: bool,
}

/// Times in seconds and values; `None` at a gap of the line.
pub(super) type Points = Vec<(f64, Option<f64>)>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    #[default]
    Straight,
    /// Each value holds until the next.
    Step,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Mean of several lines.
    Bold,
    #[default]
    Normal,
    /// One line of many, or a secondary line.
    Light,
}

impl Weight {
    /// Returns the width of a line on a page in pixels; a picture has half as many points.
    pub(crate) fn pixels(self) -> f64 {
        match self {
            Self::Bold => 2.75,
            Self::Normal => 2.0,
            Self::Light => 1.25,
        }
    }
}

/// Marks of one kind in one lane; fields as those of [`Line`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MarkRow {
    pub(crate) label: String,
    pub(crate) owner: String,
    pub(crate) protocol: String,
    /// Kind of event: `NAK`, `cut`, `drop`.
    pub(crate) kind: &'static str,
    /// Times in seconds, number of events at that time, and height of the first event on its line.
    pub(crate) points: Vec<(f64, u64, f64)>,
    pub(crate) total: u64,
    pub(crate) colour: usize,
    /// True if drawn as vertical lines through the whole plot, without a lane.
    pub(crate) upright: bool,
    pub(crate) hidden: bool,
}

impl Plot {
    pub(super) fn new(
        key: &'static str,
        title: &'static str,
        axis: &'static str,
        unit: Unit,
    ) -> Self {
        Self { key, title, axis, unit, ..Self::default() }
    }

    /// Returns the rows of marks with a lane that are visible initially.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &MarkRow> {
        self.marks.iter().filter(|row| !row.upright && !row.hidden)
    }
}
