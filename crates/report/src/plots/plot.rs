//! A plot: its lines and marks, and how they are drawn.

use serde::Serialize;

/// One plot: lines over time, and rows of marks above them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Its name in files and anchors.
    pub key: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it shows, in half a sentence.
    pub about: String,
    /// What is on the vertical axis.
    pub axis: &'static str,
    /// In which unit that is.
    pub unit: Unit,
    /// Its lines, those that are drawn last at the end.
    pub lines: Vec<Line>,
    /// Its marks; each row has a lane of its own above the lines, so that none covers a line.
    pub marks: Vec<MarkRow>,
    /// The rows of a plot of names, from below; empty for all others.
    pub names: Vec<String>,
    /// Whether there are so many flows or links that a legend names them and kinds of lines apart.
    pub crowd: bool,
}

/// The unit of a plot's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number of packets that only grows.
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
    /// Places in a list of names.
    Name,
}

/// One line of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name in a legend.
    pub label: String,
    /// The flow or link that it is of, or the group of flows.
    pub owner: String,
    /// The protocol of that flow or group; empty for links.
    pub protocol: String,
    /// What of it: `sent`, `mean`.
    pub kind: &'static str,
    /// Times in seconds and values; `None` where the line is broken.
    pub points: Vec<(f64, Option<f64>)>,
    /// Between which values those lie of which this is the mean, at the times of `points`.
    pub range: Option<Vec<(f64, f64)>>,
    /// How points are joined.
    pub shape: Shape,
    /// Place of its colour in the palette: one for each protocol, or link.
    pub colour: usize,
    /// Place of its dashes: one for each flow of a protocol.
    pub dash: usize,
    /// How it is drawn.
    pub weight: Weight,
    /// Whether it is hidden until it is asked for.
    pub hidden: bool,
}

/// Times in seconds and values; `None` where a line is broken.
pub(super) type Points = Vec<(f64, Option<f64>)>;

/// How the points of a line are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// By straight lines.
    #[default]
    Straight,
    /// By steps: each value holds until the next.
    Step,
}

/// How strongly a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// A mean of many.
    Bold,
    /// As lines are.
    #[default]
    Normal,
    /// One of many, or beside another.
    Light,
}

impl Weight {
    /// The width of a line on a page; in a picture it has half as many points.
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
    /// Its name in a legend.
    pub label: String,
    /// The flow or link that it is of, or the group of flows.
    pub owner: String,
    /// The protocol of that flow or group; empty for links.
    pub protocol: String,
    /// What happened: `NAK`, `cut`, `drop`.
    pub kind: &'static str,
    /// Times in seconds, how many happened there, and at which height of its line the first one did.
    pub points: Vec<(f64, u64, f64)>,
    /// How many there were in all.
    pub total: u64,
    /// Place of its colour in the palette.
    pub colour: usize,
    /// Whether it is drawn as lines through the whole plot, where there is no lane for it.
    pub upright: bool,
    /// Whether it is hidden until it is asked for.
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

    /// The rows of marks that have a lane, those that are shown to begin with.
    pub fn lanes(&self) -> impl Iterator<Item = &MarkRow> {
        self.marks.iter().filter(|row| !row.upright && !row.hidden)
    }
}
