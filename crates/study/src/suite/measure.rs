//! Measure of a row: a small expression over the results of a run.

use faircast_proto::options::did_you_mean;
use faircast_report::{FlowSummary, LinkSummary, Summary};
use faircast_scenario::Scenario;
use serde::Deserialize;

use super::overlay::{OVERLAY_QUANTITIES, OverlayPart, OverlayQuantity};
use super::probe::{BIN_S, FlowProbe, Probe};

/// Expression over figures (docs/research.md). A final `< NUMBER` gives 1 if the value is below
/// that, else 0: the mean over seeds is the share of seeds below.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Measure {
    pub(crate) text: String,
    numerator: Term,
    denominator: Option<Term>,
    below: Option<f64>,
}

#[derive(Clone, Debug)]
struct Term {
    fold: Fold,
    quantity: Quantity,
    word: String,
    target: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fold {
    Sum,
    Mean,
    Min,
    Max,
    GeometricMean,
    /// Two-sided sign test: probability of such values if each is above or below 1 with equal odds.
    SignTest,
}

#[derive(Clone, Copy, Debug)]
enum Quantity {
    Flow(FlowQuantity),
    Between {
        what: FlowSpan,
        from_s: u32,
        to_s: u32,
    },
    Link(LinkQuantity),
    /// Quantity of a part of the overlay, over a span or the counted time.
    Overlay(OverlayPart, OverlayQuantity, Option<(u32, u32)>),
    Jain,
    Rows,
    Optimum,
}

#[derive(Clone, Copy)]
struct Flow<'a> {
    index: usize,
    summary: &'a FlowSummary,
    run: &'a Probe,
    probe: &'a FlowProbe,
    counted_s: f64,
}

type FlowQuantity = fn(Flow<'_>) -> f64;

type FlowSpan = fn(Flow<'_>, u32, u32) -> f64;

type LinkQuantity = fn(&LinkSummary) -> f64;

const SPANNED: &[(&str, FlowSpan)] = &[
    ("throughput_bps@", |flow, from_s, to_s| flow.run.throughput_bps(flow.index, from_s, to_s)),
    ("switches@", |flow, from_s, to_s| flow.probe.switched(from_s, to_s).count() as f64),
    ("first_switch_s@", |flow, from_s, to_s| {
        flow.probe.switched(from_s, to_s).next().unwrap_or(f64::INFINITY)
    }),
];

const FLOW_QUANTITIES: &[(&str, FlowQuantity)] = &[
    ("throughput_bps", |flow| flow.summary.rates.throughput_bps),
    ("throughput_kbps", |flow| flow.summary.rates.throughput_bps / 1e3),
    ("sent_bps", |flow| flow.summary.rates.sent_bps),
    ("throughput_variation", |flow| flow.run.variation(flow.index)),
    ("packets_per_s", |flow| flow.packets_per_s()),
    ("packets", |flow| flow.packets_per_s() * flow.counted_s),
    ("timeouts", |flow| flow.probe.timeouts as f64),
    ("cuts", |flow| flow.probe.cuts as f64),
    // The first choice of a representative is no switch.
    ("switches", |flow| flow.probe.switches as f64),
    ("repairs", |flow| flow.summary.counts.repair_packets as f64),
    ("sender_repairs", |flow| match &flow.summary.tree {
        Some(tree) => tree.sender_repairs as f64,
        None => flow.summary.counts.repair_packets as f64,
    }),
    ("feedback_packets", |flow| flow.summary.counts.feedback_packets as f64),
    ("feedback_per_s", |flow| flow.summary.rates.feedback_per_s),
    ("window_max", |flow| flow.probe.window.max.unwrap_or(f64::NEG_INFINITY)),
    ("window_at_one", |flow| flow.probe.window.visits_to_one as f64),
    ("window_above_first", |flow| flow.probe.above_s / flow.probe.both_s),
    ("switch_pairs", |flow| flow.probe.pairs.found.len() as f64),
    ("switch_pairs_cut_often", |flow| flow.probe.pairs.cut_often_share()),
    ("completed_s", |flow| flow.summary.completed_s.unwrap_or(f64::INFINITY)),
    ("settled_s", |flow| flow.summary.rates.settled_s.unwrap_or(f64::INFINITY)),
    ("goodput_min_bps", |flow| Fold::Min.of(flow.goodputs())),
    ("goodput_max_bps", |flow| Fold::Max.of(flow.goodputs())),
    ("goodput_mean_bps", |flow| Fold::Mean.of(flow.goodputs())),
    ("slowed_s", |flow| flow.probe.slowed_s()),
    ("first_receiver_slowed_s", |flow| flow.probe.first_receiver_slowed_s()),
    ("latency_ms", |flow| flow.probe.latency.mean_ms()),
];

const LINK_QUANTITIES: &[(&str, LinkQuantity)] = &[
    ("sent_packets", |link| link.sent_packets as f64),
    ("loss_percent", |link| 100.0 * link.drop_ratio),
    ("queue_mean", |link| link.queue_mean_packets),
    ("queue_max", |link| f64::from(link.queue_max_packets)),
    ("utilisation", |link| link.utilisation),
];

impl<'a> Flow<'a> {
    fn packets_per_s(self) -> f64 {
        self.summary.rates.throughput_bps / 8.0 / self.probe.packet_bytes
    }

    fn goodputs(self) -> impl Iterator<Item = f64> + 'a {
        self.summary.receivers.iter().map(|receiver| receiver.goodput_bps)
    }
}

impl TryFrom<String> for Measure {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (value, below) = match text.split_once(" < ") {
            Some((value, limit)) => (value, Some(limit)),
            None => (&*text, None),
        };
        let below = below.map(|limit| match limit.trim().parse::<f64>() {
            Ok(limit) if limit.is_finite() => Ok(limit),
            _ => Err(format!("measure \"{text}\": expected a number behind \" < \"")),
        });
        let below = below.transpose()?;
        let mut terms = value.split(" / ");
        let numerator = Term::parse(terms.next().unwrap_or_default())?;
        let denominator = terms.next().map(Term::parse).transpose()?;
        if terms.next().is_some() {
            return Err(format!("measure \"{text}\" has more than one \" / \""));
        }
        if denominator.as_ref().is_some_and(|of| of.is_of_rows() != numerator.is_of_rows()) {
            return Err(format!("measure \"{text}\" mixes rows with what a run gave"));
        }
        Ok(Self { numerator, denominator, below, text })
    }
}

fn unknown(quantity: &str) -> String {
    if quantity.contains('@') {
        let spanned: Vec<String> =
            SPANNED.iter().map(|(name, _)| format!("{name}60..100")).collect();
        let spanned = spanned.join(", ");
        return format!(
            "no quantity \"{quantity}\"; between two moments, in whole tens of seconds, there are {spanned}"
        );
    }
    let flows = FLOW_QUANTITIES.iter().map(|(name, _)| *name);
    let known = flows.chain(LINK_QUANTITIES.iter().map(|(name, _)| *name));
    let known = known.chain(OVERLAY_QUANTITIES.iter().map(|(name, ..)| *name));
    let known: Vec<&str> = known.chain(["jain", "rows", "optimum"]).collect();
    let hint = did_you_mean(quantity, known.iter().copied());
    format!("no quantity \"{quantity}\"{hint}; there are {}", known.join(", "))
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let fold = words.first().and_then(|word| FOLDS.iter().find(|(name, _)| name == word));
        let (fold, rest) = fold.map_or((Fold::Mean, &words[..]), |(_, fold)| (*fold, &words[1..]));
        let [word, target] = rest[..] else {
            let folds = FOLDS.map(|(name, _)| name).join("|");
            return Err(format!("measure \"{text}\" is not [{folds}] QUANTITY TARGET"));
        };
        let overlay = |name: &str, span| {
            let (_, part, what) = OVERLAY_QUANTITIES.iter().find(|(known, ..)| *known == name)?;
            Some(Quantity::Overlay(*part, *what, span))
        };
        let between = word.split_once('@').and_then(|(name, text)| {
            let (from_s, to_s) = span(text)?;
            let spanned = SPANNED.iter().find(|(known, _)| known.strip_suffix('@') == Some(name));
            let spanned = spanned.map(|(_, what)| Quantity::Between { what: *what, from_s, to_s });
            spanned.or_else(|| overlay(name, Some((from_s, to_s))))
        });
        let flow = FLOW_QUANTITIES.iter().find(|(name, _)| *name == word);
        let link = LINK_QUANTITIES.iter().find(|(name, _)| *name == word);
        let quantity = match word {
            "jain" => Some(Quantity::Jain),
            "rows" => Some(Quantity::Rows),
            "optimum" => Some(Quantity::Optimum),
            _ => flow.map(|(_, quantity)| Quantity::Flow(*quantity)),
        };
        let quantity = quantity
            .or_else(|| link.map(|(_, quantity)| Quantity::Link(*quantity)))
            .or_else(|| overlay(word, None))
            .or(between)
            .ok_or_else(|| unknown(word))?;
        Ok(Self { fold, quantity, word: word.to_string(), target: target.to_string() })
    }

    fn is_of_rows(&self) -> bool {
        matches!(self.quantity, Quantity::Rows | Quantity::Optimum)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let (what, names): (_, Vec<String>) = match self.quantity {
            Quantity::Link(_) => ("link", link_names(scenario)),
            Quantity::Overlay(OverlayPart::Clients, ..) => {
                let clients = scenario.clients().into_iter();
                ("client", clients.map(|(_, client)| client.name.clone()).collect())
            }
            Quantity::Overlay(OverlayPart::Links, ..) => {
                ("link between daemons", daemon_links(scenario))
            }
            Quantity::Rows | Quantity::Optimum => return Ok(()),
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
            Quantity::Between { to_s, .. } | Quantity::Overlay(.., Some((_, to_s)))
                if f64::from(to_s) > duration_s =>
            {
                Err(format!("counts up to {to_s} s; its scenario ends at {duration_s} s"))
            }
            _ => Ok(()),
        }
    }

    fn matches(&self, name: &str) -> bool {
        self.target.split(',').any(|target| is_target(name, target))
    }

    fn of_named(&self, values: &[(&str, f64)]) -> f64 {
        let matching = values.iter().filter(|(name, _)| self.matches(name));
        self.fold.of(matching.map(|(_, value)| *value))
    }

    fn of(&self, summary: &Summary, run: &Probe) -> f64 {
        let counted_s = summary.ended_s - summary.warmup_s;
        let flows = summary.flows.iter().zip(&run.flows).enumerate();
        let flows = flows
            .map(|(index, (summary, probe))| Flow { index, summary, run, probe, counted_s })
            .filter(|flow| self.matches(&flow.summary.name));
        match self.quantity {
            Quantity::Flow(quantity) => self.fold.of(flows.map(quantity)),
            Quantity::Between { what, from_s, to_s } => {
                self.fold.of(flows.map(|flow| what(flow, from_s, to_s)))
            }
            Quantity::Link(quantity) => {
                let name = |link: &LinkSummary| format!("{}>{}", link.from, link.to);
                let links = summary.links.iter().filter(|link| self.matches(&name(link)));
                self.fold.of(links.map(quantity))
            }
            Quantity::Overlay(part, what, span) => {
                let all = run.overlay.bins(part).into_iter();
                let bins = all.filter(|(name, _)| self.matches(name)).map(|(_, bins)| bins);
                self.fold.of(bins.map(|bins| run.overlay.value(what, span, summary.ended_s, bins)))
            }
            Quantity::Rows | Quantity::Optimum => f64::NAN,
            Quantity::Jain => {
                faircast_report::jain_index(flows.map(|flow| flow.summary.rates.throughput_bps))
            }
        }
    }
}

pub(super) fn is_target(name: &str, target: &str) -> bool {
    match target.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == target,
    }
}

pub(crate) fn link_names(scenario: &Scenario) -> Vec<String> {
    let node = |id: faircast_base::NodeId| &scenario.nodes[id.index()].name;
    scenario.links.iter().map(|link| format!("{}>{}", node(link.from), node(link.to))).collect()
}

const NAMES_SHOWN_MAX: usize = 20;

/// Parses a span such as `180..300`, both ends whole tens.
fn span(text: &str) -> Option<(u32, u32)> {
    let (from, to) = text.split_once("..")?;
    let (from_s, to_s) = (from.parse().ok()?, to.parse().ok()?);
    let whole = |s: u32| s.is_multiple_of(BIN_S);
    (from_s < to_s && whole(from_s) && whole(to_s)).then_some((from_s, to_s))
}

fn daemon_links(scenario: &Scenario) -> Vec<String> {
    let node = |id: faircast_base::NodeId| &scenario.nodes[id.index()].name;
    let ends = scenario.daemons.iter().flat_map(|it| it.peers.iter().map(|to| (it.node, *to)));
    let both = ends.flat_map(|(a, b)| [(a, b), (b, a)]);
    both.map(|(from, to)| format!("{}>{}", node(from), node(to))).collect()
}

impl Fold {
    fn of(self, values: impl Iterator<Item = f64>) -> f64 {
        let values: Vec<f64> = values.collect();
        match self {
            // A target without a match must not look like a measured zero.
            _ if values.is_empty() => f64::NAN,
            // Minimum and maximum of floats skip NaN.
            _ if values.iter().any(|value| value.is_nan()) => f64::NAN,
            Self::Sum => values.iter().sum(),
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::GeometricMean => {
                let logs = values.iter().map(|value| faircast_base::math::ln(*value)).sum::<f64>();
                faircast_base::math::exp(logs / values.len() as f64)
            }
            Self::SignTest => {
                let below = values.iter().filter(|value| **value < 1.0).count();
                let above = values.iter().filter(|value| **value > 1.0).count();
                sign_test(below, above)
            }
        }
    }
}

const FOLDS: [(&str, Fold); 6] = [
    ("sum", Fold::Sum),
    ("mean", Fold::Mean),
    ("min", Fold::Min),
    ("max", Fold::Max),
    ("geometric_mean", Fold::GeometricMean),
    ("sign_test", Fold::SignTest),
];

/// Two-sided sign test of fair coins; equal values count on neither side.
fn sign_test(below: usize, above: usize) -> f64 {
    let (n, least) = (below + above, below.min(above));
    let mut exactly = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for k in 0..=least {
        tail += exactly;
        exactly *= (n - k) as f64 / (k + 1) as f64;
    }
    (2.0 * tail).min(1.0)
}

impl Measure {
    pub(crate) fn check(&self, scenario: &Scenario) -> Result<(), String> {
        self.terms().try_for_each(|term| term.check(scenario))
    }

    /// Returns the value for one run; NaN if the run has no such flow or link.
    pub(crate) fn of(&self, summary: &Summary, probe: &Probe) -> f64 {
        self.value(|term| term.of(summary, probe))
    }

    /// Returns the value for figures of rows, or of clients, by their names.
    pub(crate) fn of_named(&self, values: &[(&str, f64)], optima: &[(&str, f64)]) -> f64 {
        self.value(|term| match term.quantity {
            Quantity::Optimum => term.of_named(optima),
            _ => term.of_named(values),
        })
    }

    /// Returns the span in seconds of a measure of sent data; `Some(None)` is the counted time.
    pub(crate) fn counts_sent(&self) -> Option<Option<(u32, u32)>> {
        let Term { fold, quantity: Quantity::Overlay(.., span), word, .. } = &self.numerator else {
            return None;
        };
        let is_sent = word.split('@').next() == Some("client_sent_bps");
        let is_sum = matches!(fold, Fold::Sum | Fold::Mean);
        let is_plain = self.denominator.is_none() && self.below.is_none();
        (is_sent && is_sum && is_plain).then_some(*span)
    }

    pub(crate) fn names(&self, name: &str) -> bool {
        self.terms().any(|term| term.matches(name))
    }

    pub(crate) fn takes_optimum(&self, id: &str) -> bool {
        self.terms().any(|term| matches!(term.quantity, Quantity::Optimum) && term.matches(id))
    }

    fn terms(&self) -> impl Iterator<Item = &Term> {
        [Some(&self.numerator), self.denominator.as_ref()].into_iter().flatten()
    }

    fn value(&self, of: impl Fn(&Term) -> f64) -> f64 {
        let value = match &self.denominator {
            Some(denominator) => of(&self.numerator) / of(denominator),
            None => of(&self.numerator),
        };
        match self.below {
            Some(limit) if !value.is_nan() => f64::from(u8::from(value < limit)),
            _ => value,
        }
    }

    /// Returns the targets of a measure of rows: ids, or prefixes with `*`.
    pub(crate) fn rows(&self) -> Option<Vec<&str>> {
        if !self.numerator.is_of_rows() {
            return None;
        }
        Some(self.terms().flat_map(|term| term.target.split(',')).collect())
    }

    /// Returns the value for equal shares: 1 for a ratio, 1/n for a share of n flows, else `None`.
    pub(crate) fn even(&self) -> Option<f64> {
        if self.below.is_some() {
            return None;
        }
        let Some(denominator) = &self.denominator else {
            let is_one_ratio = self.numerator.is_of_rows() && self.numerator.fold != Fold::SignTest;
            return is_one_ratio.then_some(1.0);
        };
        if denominator.word != self.numerator.word {
            return None;
        }
        let parts: Vec<&str> = denominator.target.split(',').collect();
        match denominator.fold {
            Fold::Sum if parts.contains(&&*self.numerator.target) => Some(1.0 / parts.len() as f64),
            _ => Some(1.0),
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
            ("cuts", "is not [sum|mean|min|max|geometric_mean|sign_test] QUANTITY TARGET"),
            ("rows a / cuts b", "mixes rows with what a run gave"),
            ("cuts a < b", "expected a number behind"),
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
        assert_eq!(rows("row"), ["rows", "optimum"]);
        assert_eq!(documented, flows);
        let links: Vec<_> = LINK_QUANTITIES.iter().map(|(name, _)| *name).collect();
        assert_eq!(rows("link"), links);
    }

    #[test]
    fn rows_are_folded_and_compared_seed_by_seed() {
        let of = |text: &str| {
            let rows = [("a-1", 0.5), ("a-2", 2.0), ("a-3", 0.125), ("b", 0.25)];
            Measure::try_from(text.to_string()).unwrap().of_named(&rows, &[("a-1", 2.0)])
        };
        assert_eq!(of("geometric_mean rows a-*"), 0.5);
        assert_eq!(of("min rows a-1,a-2"), 0.5);
        assert_eq!(of("rows a-1 / rows b"), 2.0);
        assert_eq!((of("rows a-1 < 0.6"), of("rows a-1 < 0.5")), (1.0, 0.0));
        assert_eq!(of("sign_test rows a-*"), 1.0);
        assert_eq!(of("rows a-1 / optimum a-1"), 0.25);
        assert!(of("rows b / optimum b").is_nan());
        assert!(of("rows c").is_nan() && of("rows c < 1").is_nan());
    }

    #[test]
    fn an_optimum_stands_beside_sums_and_means_of_what_clients_send() {
        let of = |text: &str| Measure::try_from(text.to_string()).unwrap().counts_sent();
        assert_eq!(of("sum client_sent_bps a-*"), Some(None));
        assert_eq!(of("client_sent_bps@20..40 a"), Some(Some((20, 40))));
        for none in
            ["max client_sent_bps a", "client_got_bps a", "client_sent_bps a / client_sent_bps b"]
        {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn a_sign_test_is_that_of_the_tables() {
        // 17 of 18 on one side: 2 (1 + 18) / 2^18.
        assert!((sign_test(17, 1) - 38.0 / 262_144.0).abs() < 1e-12);
        assert_eq!((sign_test(9, 0), sign_test(0, 9)), (2.0 / 512.0, 2.0 / 512.0));
        assert_eq!((sign_test(2, 2), sign_test(0, 0)), (1.0, 1.0));
    }

    #[test]
    fn a_measure_knows_where_shares_are_even() {
        let even = |text: &str| Measure::try_from(text.to_string()).unwrap().even();
        assert_eq!(even("throughput_bps tcp / throughput_bps mcc"), Some(1.0));
        assert_eq!(even("throughput_bps tcp / mean throughput_bps a,b"), Some(1.0));
        assert_eq!(even("throughput_bps a / sum throughput_bps a,b"), Some(0.5));
        assert_eq!(even("rows a / rows b"), Some(1.0));
        assert_eq!(even("geometric_mean rows a*"), Some(1.0));
        for none in [
            "throughput_bps a",
            "repairs a / packets a",
            "sign_test rows a*",
            "cuts a / cuts b < 1",
        ] {
            assert_eq!(even(none), None, "{none}");
        }
    }

    #[test]
    fn nothing_to_fold_is_not_zero_and_what_is_no_number_is_passed_over_by_none() {
        assert!(Fold::Sum.of(std::iter::empty()).is_nan());
        for (name, fold) in FOLDS {
            assert!(fold.of([1.0, f64::NAN, 2.0].into_iter()).is_nan(), "{name}");
        }
        assert_eq!(Fold::Max.of([1.0, 3.0, 2.0].into_iter()), 3.0);
    }
}
