//! Plot: its lines and marks, and their style.

use serde::Serialize;

/// Plot with lines over time, and rows of marks above them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Name in files and anchors.
    pub key: &'static str,
    /// Title.
    pub title: &'static str,
    /// Description, as part of a sentence.
    pub about: String,
    /// Label of the vertical axis.
    pub axis: &'static str,
    /// Unit of the vertical axis.
    pub unit: Unit,
    /// Lines in drawing order; the last ones are on top.
    pub lines: Vec<Line>,
    /// Marks; each row has a lane of its own above the lines, so that none covers a line.
    pub marks: Vec<MarkRow>,
    /// Row names of a plot of names, from below; empty for all others.
    pub names: Vec<String>,
    /// True if the legend lists the numerous flows or links apart from the kinds of lines.
    pub crowd: bool,
}

/// Unit of a plot's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Growing number of packets.
    #[default]
    Count,
    /// Packets.
    Packets,
    /// Bits per second.
    Rate,
    /// Seconds.
    Span,
    /// Receivers.
    Receivers,
    /// Index in a list of names.
    Name,
}

/// Line of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Legend text.
    pub label: String,
    /// Flow, link or group of flows.
    pub owner: String,
    /// Protocol of the flow or group; empty for links.
    pub protocol: String,
    /// Quantity: `sent`, `mean`.
    pub kind: &'static str,
    /// Times in seconds and values; `None` at a gap of the line.
    pub points: Vec<(f64, Option<f64>)>,
    /// Range of the values whose mean the line is, at the times of `points`.
    pub range: Option<Vec<(f64, f64)>>,
    /// Connection of the points.
    pub shape: Shape,
    /// Index of the colour in the palette: one for each protocol, or link.
    pub colour: usize,
    /// Index of the dashes: one for each flow of a protocol.
    pub dash: usize,
    /// Weight of the line.
    pub weight: Weight,
    /// True if initially hidden.
    pub hidden: bool,
}

pub(super) type Points = Vec<(f64, Option<f64>)>;

/// Connection of a line's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Straight lines.
    #[default]
    Straight,
    /// Steps: each value holds until the next.
    Step,
}

/// Weight of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// Mean of several lines.
    Bold,
    /// Default.
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

/// Marks of one kind in one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarkRow {
    /// Legend text.
    pub label: String,
    /// Flow, link or group of flows.
    pub owner: String,
    /// Protocol of the flow or group; empty for links.
    pub protocol: String,
    /// Kind of event: `NAK`, `cut`, `drop`.
    pub kind: &'static str,
    /// Times in seconds, number of events at that time, and height of the first event on its line.
    pub points: Vec<(f64, u64, f64)>,
    /// Total number of events.
    pub total: u64,
    /// Index of the colour in the palette.
    pub colour: usize,
    /// True if drawn as vertical lines through the whole plot, without a lane.
    pub upright: bool,
    /// True if initially hidden.
    pub hidden: bool,
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
    pub fn lanes(&self) -> impl Iterator<Item = &MarkRow> {
        self.marks.iter().filter(|row| !row.upright && !row.hidden)
    }
}
