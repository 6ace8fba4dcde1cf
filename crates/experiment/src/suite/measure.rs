//! What a row measures: a small expression over what a run gave.

use faircast_proto::options::did_you_mean;
use faircast_report::{FlowSummary, LinkSummary, Summary};
use faircast_scenario::Scenario;
use serde::Deserialize;

use super::probe::{BIN_S, FlowProbe, Probe};

/// `TERM`, or `TERM / TERM`. A term is `[sum|mean|min|max] QUANTITY TARGET`: the target of a
/// flow's quantity is its name, or a prefix with `*` for all flows that begin so, or several of
/// these with commas between (their mean where nothing else is said); that of a link's is
/// `from>to`. `throughput_bps@180..300` counts from 180 s to 300 s only, in whole tens of seconds, and so
/// do `switches@` and `first_switch_s@`.
/// `docs/research.md` says what each quantity means.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Measure {
    /// As it was written.
    text: String,
    numerator: Term,
    denominator: Option<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    fold: Fold,
    quantity: Quantity,
    target: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fold {
    Sum,
    Mean,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    Flow(FlowQuantity),
    Link(LinkQuantity),
    /// Jain's index over the flows that match.
    Jain,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum FlowQuantity {
    ThroughputBps,
    ThroughputKbps,
    SentBps,
    Between { what: Spanned, from_s: u32, to_s: u32 },
    ThroughputVariation,
    PacketsPerS,
    Packets,
    Timeouts,
    Cuts,
    Switches,
    Repairs,
    FeedbackPackets,
    WindowMean,
    WindowMin,
    WindowMax,
    WindowAtOne,
    WindowAbove,
    SwitchPairs,
    CutsPerSwitchPair,
    SwitchPairsCutOften,
    CompletedS,
    GoodputMinBps,
}

/// What can be counted within a part of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spanned {
    ThroughputBps,
    Switches,
    FirstSwitchS,
}

const SPANNED: &[(&str, Spanned)] = &[
    ("throughput_bps@", Spanned::ThroughputBps),
    ("switches@", Spanned::Switches),
    ("first_switch_s@", Spanned::FirstSwitchS),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum LinkQuantity {
    LossPercent,
    QueueMean,
    QueueMax,
    Utilisation,
}

const FLOW_QUANTITIES: &[(&str, FlowQuantity)] = &[
    ("throughput_bps", FlowQuantity::ThroughputBps),
    ("throughput_kbps", FlowQuantity::ThroughputKbps),
    ("sent_bps", FlowQuantity::SentBps),
    ("throughput_variation", FlowQuantity::ThroughputVariation),
    ("packets_per_s", FlowQuantity::PacketsPerS),
    ("packets", FlowQuantity::Packets),
    ("timeouts", FlowQuantity::Timeouts),
    ("cuts", FlowQuantity::Cuts),
    ("switches", FlowQuantity::Switches),
    ("repairs", FlowQuantity::Repairs),
    ("feedback_packets", FlowQuantity::FeedbackPackets),
    ("window_mean", FlowQuantity::WindowMean),
    ("window_min", FlowQuantity::WindowMin),
    ("window_max", FlowQuantity::WindowMax),
    ("window_at_one", FlowQuantity::WindowAtOne),
    ("window_above_first", FlowQuantity::WindowAbove),
    ("switch_pairs", FlowQuantity::SwitchPairs),
    ("cuts_per_switch_pair", FlowQuantity::CutsPerSwitchPair),
    ("switch_pairs_cut_often", FlowQuantity::SwitchPairsCutOften),
    ("completed_s", FlowQuantity::CompletedS),
    ("goodput_min_bps", FlowQuantity::GoodputMinBps),
];

const LINK_QUANTITIES: &[(&str, LinkQuantity)] = &[
    ("loss_percent", LinkQuantity::LossPercent),
    ("queue_mean", LinkQuantity::QueueMean),
    ("queue_max", LinkQuantity::QueueMax),
    ("utilisation", LinkQuantity::Utilisation),
];

impl TryFrom<String> for Measure {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut terms = text.split(" / ");
        let numerator = Term::parse(terms.next().unwrap_or_default())?;
        let denominator = terms.next().map(Term::parse).transpose()?;
        match terms.next() {
            Some(_) => Err(format!("measure \"{text}\" has more than one \" / \"")),
            None => Ok(Self { numerator, denominator, text }),
        }
    }
}

/// Why there is no such quantity, and what there is.
fn unknown(quantity: &str, known: impl Iterator<Item = &'static str>) -> String {
    if quantity.contains('@') {
        let spanned: Vec<String> =
            SPANNED.iter().map(|(name, _)| format!("{name}60..100")).collect();
        let spanned = spanned.join(", ");
        return format!(
            "no quantity \"{quantity}\"; between two moments, in whole tens of seconds, there are {spanned}"
        );
    }
    let known: Vec<&str> = known.collect();
    let hint = did_you_mean(quantity, known.iter().copied());
    format!("no quantity \"{quantity}\"{hint}; there are {}", known.join(", "))
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (fold, rest) = match words[..] {
            ["sum", ref rest @ ..] => (Fold::Sum, rest),
            ["mean", ref rest @ ..] => (Fold::Mean, rest),
            ["min", ref rest @ ..] => (Fold::Min, rest),
            ["max", ref rest @ ..] => (Fold::Max, rest),
            ref rest => (Fold::Mean, rest),
        };
        let [quantity, target] = rest[..] else {
            return Err(format!("measure \"{text}\" is not [sum|mean|min|max] QUANTITY TARGET"));
        };
        let known = FLOW_QUANTITIES
            .iter()
            .map(|(name, quantity)| (*name, Quantity::Flow(*quantity)))
            .chain(LINK_QUANTITIES.iter().map(|(name, q)| (*name, Quantity::Link(*q))))
            .chain([("jain", Quantity::Jain)]);
        let between = SPANNED
            .iter()
            .find_map(|(name, what)| quantity.strip_prefix(name).map(|span| (*what, span)))
            .and_then(|(what, span)| between(what, span));
        let found = known.clone().find(|(name, _)| *name == quantity).map(|(_, found)| found);
        let Some(quantity) = found.or(between) else {
            return Err(unknown(quantity, known.map(|(name, _)| name)));
        };
        Ok(Self { fold, quantity, target: target.to_string() })
    }

    /// Checks that a scenario has all that the term speaks of.
    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let (what, names): (_, Vec<String>) = match self.quantity {
            Quantity::Link(_) => ("link", link_names(scenario)),
            _ => ("flow", scenario.flows.iter().map(|flow| flow.name.clone()).collect()),
        };
        for target in self.target.split(',') {
            if !names.iter().any(|name| is_target(name, target)) {
                let there: Vec<&str> = names.iter().take(NAMES_SHOWN_MAX).map(|n| &**n).collect();
                return Err(format!(
                    "\"{target}\" is no {what} of its scenario; there are {}",
                    there.join(", ")
                ));
            }
        }
        let duration_s = scenario.duration.as_secs_f64();
        match self.quantity {
            Quantity::Flow(FlowQuantity::Between { to_s, .. }) if f64::from(to_s) > duration_s => {
                Err(format!("counts up to {to_s} s; its scenario ends at {duration_s} s"))
            }
            _ => Ok(()),
        }
    }

    fn matches(&self, name: &str) -> bool {
        self.target.split(',').any(|target| is_target(name, target))
    }

    fn of(&self, summary: &Summary, probe: &Probe) -> f64 {
        let flows = summary.flows.iter().zip(&probe.flows);
        let flows = flows.filter(|(flow, _)| self.matches(&flow.name));
        match self.quantity {
            Quantity::Flow(quantity) => {
                let counted_s = summary.ended_s - summary.warmup_s;
                self.fold.of(flows.map(|(flow, probe)| quantity.of(flow, probe, counted_s)))
            }
            Quantity::Link(quantity) => {
                let name = |link: &LinkSummary| format!("{}>{}", link.from, link.to);
                let links = summary.links.iter().filter(|link| self.matches(&name(link)));
                self.fold.of(links.map(|link| quantity.of(link)))
            }
            Quantity::Jain => {
                faircast_report::jain_index(flows.map(|(flow, _)| flow.throughput_bps))
            }
        }
    }
}

/// Whether a flow's or link's name is meant by one part of a target.
fn is_target(name: &str, target: &str) -> bool {
    match target.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == target,
    }
}

/// The links of a scenario, `from>to`.
pub(crate) fn link_names(scenario: &Scenario) -> Vec<String> {
    let node = |id: faircast_base::NodeId| &scenario.nodes[id.index()].name;
    scenario.links.iter().map(|link| format!("{}>{}", node(link.from), node(link.to))).collect()
}

/// Names that a message lists where one is wrong.
const NAMES_SHOWN_MAX: usize = 20;

/// `180..300`, both whole tens.
fn between(what: Spanned, text: &str) -> Option<Quantity> {
    let (from, to) = text.split_once("..")?;
    let (from_s, to_s) = (from.parse().ok()?, to.parse().ok()?);
    let whole = |s: u32| s.is_multiple_of(BIN_S);
    let valid = from_s < to_s && whole(from_s) && whole(to_s);
    valid.then_some(Quantity::Flow(FlowQuantity::Between { what, from_s, to_s }))
}

impl Fold {
    fn of(self, values: impl Iterator<Item = f64>) -> f64 {
        let values: Vec<f64> = values.collect();
        match self {
            // A target that matches nothing must not look like a measurement of zero.
            _ if values.is_empty() => f64::NAN,
            Self::Sum => values.iter().sum(),
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl FlowQuantity {
    /// Its value, where `counted_s` seconds were counted.
    fn of(self, flow: &FlowSummary, probe: &FlowProbe, counted_s: f64) -> f64 {
        match self {
            Self::ThroughputBps => flow.throughput_bps,
            Self::ThroughputKbps => flow.throughput_bps / 1e3,
            Self::SentBps => flow.sent_bps,
            Self::Between { what, from_s, to_s } => match what {
                Spanned::ThroughputBps => probe.throughput_bps(from_s, to_s),
                Spanned::Switches => probe.switches_between(from_s, to_s),
                Spanned::FirstSwitchS => probe.first_switch_s(from_s, to_s),
            },
            Self::ThroughputVariation => probe.variation(),
            Self::PacketsPerS => flow.throughput_bps / 8.0 / probe.packet_bytes,
            Self::Packets => flow.throughput_bps / 8.0 / probe.packet_bytes * counted_s,
            Self::Timeouts => probe.timeouts as f64,
            Self::Cuts => probe.cuts as f64,
            // The first choice of a representative is no switch.
            Self::Switches => probe.switches as f64,
            Self::Repairs => flow.repair_packets as f64,
            Self::FeedbackPackets => flow.feedback_packets as f64,
            Self::WindowMean => probe.window.mean(),
            Self::WindowMin => probe.window.min,
            Self::WindowMax => probe.window.max,
            Self::WindowAtOne => probe.window.visits_to_one as f64,
            Self::WindowAbove => probe.above_first_share(),
            Self::SwitchPairs => probe.pairs.count() as f64,
            Self::CutsPerSwitchPair => probe.pairs.cuts_mean(),
            Self::SwitchPairsCutOften => probe.pairs.cut_often_share(),
            Self::CompletedS => flow.completed_s.unwrap_or(f64::INFINITY),
            Self::GoodputMinBps => {
                flow.receivers.iter().map(|r| r.goodput_bps).fold(f64::INFINITY, f64::min)
            }
        }
    }
}

impl LinkQuantity {
    fn of(self, link: &LinkSummary) -> f64 {
        match self {
            Self::LossPercent => 100.0 * link.drop_ratio,
            Self::QueueMean => link.queue_mean_packets,
            Self::QueueMax => f64::from(link.queue_max_packets),
            Self::Utilisation => link.utilisation,
        }
    }
}

impl Measure {
    /// The measure as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Checks that a scenario has all that the measure speaks of.
    ///
    /// # Errors
    /// What it has not, and what there is.
    pub(crate) fn check(&self, scenario: &Scenario) -> Result<(), String> {
        self.numerator.check(scenario)?;
        self.denominator.as_ref().map_or(Ok(()), |term| term.check(scenario))
    }

    /// Its value for one run; NaN where the run has no such flow or link.
    pub(crate) fn of(&self, summary: &Summary, probe: &Probe) -> f64 {
        let numerator = self.numerator.of(summary, probe);
        match &self.denominator {
            Some(denominator) => numerator / denominator.of(summary, probe),
            None => numerator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_or_refused_with_a_reason() {
        let parse = |text: &str| Measure::try_from(text.to_string());
        assert!(parse("throughput_bps tcp / throughput_bps mcc").is_ok());
        assert!(parse("sum packets_per_s tcp*").is_ok());
        assert!(parse("loss_percent r1>r2").is_ok());
        assert!(parse("throughput_bps@180..300 tcp").is_ok());
        assert!(parse("throughput_bps@300..180 tcp").is_err());
        assert!(parse("first_switch_s@50..100 mcc").is_ok());
        assert!(parse("switches@50..105 mcc").is_err(), "whole tens");
        for (text, problem) in [
            ("speed tcp", "no quantity \"speed\""),
            ("throughput tcp", "no quantity \"throughput\" (did you mean \"throughput_bps\"?)"),
            ("throughput_kbps@60..100 tcp", "there are throughput_bps@60..100, switches@60..100, "),
            ("cuts", "is not [sum|mean|min|max] QUANTITY TARGET"),
            ("cuts a / cuts b / cuts c", "more than one"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn every_quantity_is_explained_in_the_documents() {
        let page = include_str!("../../../../docs/research.md");
        let rows = |of: &str| -> Vec<String> {
            let cells = page.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
            let rows = cells.filter(|cells| cells.len() == 3 && cells[1] == of);
            rows.map(|cells| cells[0].trim_matches(['|', ' ', '`']).to_string()).collect()
        };
        let flows: Vec<_> = FLOW_QUANTITIES.iter().map(|(name, _)| *name).collect();
        let mut documented = rows("flow");
        for (name, _) in SPANNED {
            assert!(documented.iter().any(|row| row.starts_with(name)), "{name}");
        }
        documented.retain(|name| !name.contains('@') && name != "jain");
        assert_eq!(documented, flows);
        let links: Vec<_> = LINK_QUANTITIES.iter().map(|(name, _)| *name).collect();
        assert_eq!(rows("link"), links);
    }

    #[test]
    fn nothing_to_fold_is_not_zero() {
        assert!(Fold::Sum.of(std::iter::empty()).is_nan());
        assert_eq!(Fold::Max.of([1.0, 3.0, 2.0].into_iter()), 3.0);
    }
}
