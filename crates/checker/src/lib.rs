//! Checker of traces of group communication with extended virtual synchrony (Moser, Amir,
//! Melliar-Smith, Agarwal: "Extended virtual synchrony", ICDCS 1994).
//!
//! [`check`] takes time nearly linear in the trace. Each rule's function lists the exclusions.
//!
//! - *Incarnation*: a process from its start to its end.
//! - *Stay*: the time of an incarnation in a regular view and the transitional view that closes it.
//!   Incarnations *stay together* if they move to the same next view, or are quiet in one view.
//! - *Tenure*: the part of a stay as a member of a group; a *full* one is the whole stay.
//! - *Ordered* items: agreed and safe messages, and changes of groups.
//! - *Cut*: loss of events. It hides the view and the membership changes asked for.

macro_rules! wrong {
    ($found:expr, $rule:ident, $places:expr, $($text:tt)+) => {
        $found.add($crate::Rule::$rule, &$places, format!($($text)+))
    };
}

mod atomicity;
mod model;
mod order;
mod trace;
mod walk;

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

pub use trace::Trace;

use model::{Model, Place};
use walk::Walk;

/// Rule of extended virtual synchrony.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Rule {
    /// Integrity: each delivery has one earlier send with the same hash, and is the only one
    R1,
    /// One view per message
    R2,
    /// Views: identifiers grow and have one list of members, the own daemon among them
    R3,
    /// Transitional sets: all daemons that moved together, and no other
    R4,
    /// Failure atomicity: processes that stay together deliver equal sets
    R5,
    /// Self delivery
    R6,
    /// FIFO order, without swaps and gaps
    R7,
    /// Causal order, without inversions and gaps
    R8,
    /// Agreed order, without cycles and holes
    R9,
    /// Safe delivery: all members of the view deliver, or crash
    R10,
    /// Groups: members are a function of the order
    R11,
    /// Virtual synchrony: delivery in the view of the send
    R12,
    /// Cut-off: the announced range is missing, and nothing else
    R13,
    /// Liveness: one view, equal tables and empty queues after a quiet period
    R14,
}

/// Violation of a rule by a trace, with the place and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Violated rule.
    pub rule: Rule,
    /// Processes, each with its incarnation: `c1@d1/1`. The text is about the first one.
    pub processes: Vec<String>,
    /// Lines of the trace that show the violation: `file:line`.
    pub lines: Vec<String>,
    /// Description of the violation: a sentence without its subject, the first process.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (processes, lines) = (self.processes.join(", "), self.lines.join(", "));
        write!(f, "{:?}: {processes}: {} [{lines}]", self.rule, self.text)
    }
}

/// Checks a trace against all rules. Returns the violations sorted by rule.
pub fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Findings { trace, found: Vec::new() };
    let mut model = Model { lives: &trace.lives, ..Model::default() };
    (0..trace.lives.len()).for_each(|life| model.sends(life, &mut found));
    (0..trace.lives.len()).for_each(|life| Walk::run(&mut model, &mut found, life));
    model.settle_refusals();
    Walk::lost(&model, &mut found);
    model.clocks = order::clocks(&model, &mut found);
    model.order = order::order(&model);
    order::cycles(&model, &mut found);
    atomicity::missing(&model, &mut found);
    atomicity::epochs(&model, &mut found);
    found.found.sort_by_key(|it| it.rule);
    found.found
}

struct Findings<'t> {
    trace: &'t Trace,
    found: Vec<Violation>,
}

impl Findings<'_> {
    fn add(&mut self, rule: Rule, places: &[Place], text: String) {
        let places = places.iter().map(|it| (&self.trace.lives[it.life], it.line));
        let mut processes: Vec<String> = places.clone().map(|it| it.0.name.clone()).collect();
        processes.dedup();
        let lines = places.map(|(life, line)| life.lines[line].at.clone()).collect();
        self.found.push(Violation { rule, processes, lines, text });
    }
}
