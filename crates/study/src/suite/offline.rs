//! Offline optimum of a row: rates of its clients over links with the goodputs measured alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use faircast_base::{Bytes, Duration, NodeId, Time};
use faircast_overlay::Service;
use faircast_scenario::{ClientSpec, LinkSpec, Overrides, Scenario};

use super::file::RowFile;
use super::measure::Measure;
use super::probe::Probe;
use crate::monitor::Watch;
use crate::optimum::{Flow, Objective, best, sums_of_best};
use crate::{Error, Study};

/// Share of the throughput by which the sums of a row's clients may differ between optima.
const AMBIGUOUS: f64 = 0.01;

/// Returns the row's measure at the optimum of all clients that send in its span. Fails if a static
/// optimum does not model the scenario, or if the value differs between several optima.
pub(super) fn of_row(
    row: &RowFile,
    objective: Objective,
    scenario: &Scenario,
    goodputs: &mut Goodputs<'_>,
) -> Result<f64, Error> {
    let failed = |why: String| Error::Usage(format!("optimum: {why}"));
    let network = Network::new(row, scenario).map_err(failed)?;
    let links = network.links.iter().map(|link| goodputs.of(scenario, *link, network.messages));
    let capacities = links.collect::<Result<Vec<f64>, Error>>()?;
    let flows: Vec<Flow> = network.flows.iter().map(|(flow, _)| flow.clone()).collect();
    let optimum = best(objective, &flows, &capacities).map_err(failed)?;
    let rates = network.flows.iter().zip(&optimum.rates);
    let mut rates: Vec<(&str, f64)> =
        rates.flat_map(|((_, names), rate)| names.iter().map(|name| (*name, *rate))).collect();
    if objective == Objective::Throughput {
        let chosen: Vec<bool> =
            network.flows.iter().map(|(_, names)| row.measure.names(names[0])).collect();
        let [least, most] = sums_of_best(&flows, &capacities, &chosen).map_err(failed)?;
        let all: f64 = rates.iter().map(|(_, rate)| rate).sum();
        if most - least > AMBIGUOUS * all {
            return Err(failed(format!(
                "throughput is greatest with {least:.0} to {most:.0} bit/s of these clients; allowed: a row of all \
                 clients that share a link, or fair or concave"
            )));
        }
    }
    rates.extend(network.silent.iter().map(|name| (*name, 0.0)));
    Ok(row.measure.of_named(&rates, &[]))
}

type Messages = (Service, Bytes);

/// Time in which a row's measure counts.
struct Span {
    from: Time,
    to: Time,
}

impl Span {
    fn new(row: &RowFile, scenario: &Scenario) -> Self {
        let given = row.measure.counts_sent().flatten();
        let given = given.map(|(from, to)| [from, to].map(|s| Time::from_secs_f64(f64::from(s))));
        let counted = [scenario.warmup, scenario.duration].map(|it| Time::ZERO + it);
        let [from, to] = given.unwrap_or(counted);
        Self { from, to }
    }

    /// True if the time from `start` to `stop` covers the span, false if it lies outside.
    fn is_covered(&self, what: &str, start: Time, stop: Option<Time>) -> Result<bool, String> {
        let stop = stop.unwrap_or(Time::MAX);
        match (start <= self.from && self.to <= stop, start < self.to && self.from < stop) {
            (false, true) => {
                Err(format!("{what} in a part of the span only; allowed: all of it or none"))
            }
            (whole, _) => Ok(whole),
        }
    }
}

/// Returns the groups of the span with the nodes of their members.
fn members<'a>(
    clients: &[(NodeId, &'a ClientSpec)],
    span: &Span,
) -> Result<BTreeSet<(&'a str, NodeId)>, String> {
    let mut members = BTreeSet::new();
    for (node, client) in clients {
        for stay in &client.stays {
            let what = format!("{} is in {}", client.name, stay.group);
            let leaves = [stay.leave, client.stop].into_iter().flatten().min();
            if span.is_covered(&what, stay.at.max(client.start), leaves)? {
                members.insert((&*stay.group, *node));
            }
        }
    }
    Ok(members)
}

struct Network<'a> {
    flows: Vec<(Flow, Vec<&'a str>)>,
    silent: Vec<&'a str>,
    links: Vec<usize>,
    messages: Messages,
}

impl<'a> Network<'a> {
    fn new(row: &RowFile, scenario: &'a Scenario) -> Result<Self, String> {
        if !(scenario.flows.is_empty() && scenario.relays.is_empty() && scenario.faults.is_empty())
        {
            return Err(
                "the scenario has flows, relays or faults; allowed: daemons and clients".into()
            );
        }
        let span = Span::new(row, scenario);
        let clients = scenario.clients();
        let members = members(&clients, &span)?;
        let (mut silent, mut messages) = (Vec::new(), None);
        let mut alike: BTreeMap<(Vec<usize>, u64, bool), Vec<&str>> = BTreeMap::new();
        for (node, client) in &clients {
            let sending = client.send.as_ref().map(|send| {
                let stop = [send.stop, client.stop].into_iter().flatten().min();
                let what = format!("{} sends", client.name);
                let sends = span.is_covered(&what, send.start.max(client.start), stop)?;
                Ok::<_, String>((send, sends))
            });
            let Some((send, true)) = sending.transpose()? else {
                silent.push(&*client.name);
                continue;
            };
            if *messages.get_or_insert((send.service, send.size)) != (send.service, send.size) {
                return Err(
                    "clients send messages of several sizes or services; allowed: one".into()
                );
            }
            let is_meant = |to: &NodeId| {
                send.service.is_ordered()
                    || send.groups.iter().any(|group| members.contains(&(&**group, *to)))
            };
            let daemons = scenario.daemons.iter().map(|daemon| daemon.node).filter(is_meant);
            let links = crossed(scenario, *node, daemons)?;
            let rate = send.rate.map_or(u64::MAX, |rate| rate.bits_per_s());
            alike
                .entry((links, rate, row.measure.names(&client.name)))
                .or_default()
                .push(&client.name);
        }
        let messages = messages.ok_or("no client sends in the span; allowed: at least one")?;
        let links: BTreeSet<usize> = alike.keys().flat_map(|(links, ..)| links.clone()).collect();
        let links: Vec<usize> = links.into_iter().collect();
        let flow = |((crossed, rate, _), names): ((Vec<usize>, u64, bool), Vec<&'a str>)| {
            let rate_max = if rate == u64::MAX { f64::INFINITY } else { rate as f64 };
            let indices = crossed.iter().filter_map(|link| links.binary_search(link).ok());
            (Flow { links: indices.collect(), clients: names.len() as u32, rate_max }, names)
        };
        let flows = alike.into_iter().map(flow).collect();
        Ok(Self { flows, silent, links, messages })
    }
}

fn link(scenario: &Scenario, from: NodeId, to: NodeId) -> Result<usize, String> {
    let found = scenario.links.iter().position(|link| link.from == from && link.to == to);
    let name = |node: NodeId| &scenario.nodes[node.index()].name;
    let (a, b) = (name(from), name(to));
    let found = found.ok_or_else(|| {
        format!(
            "daemons {a} and {b} share the way with others; allowed: peers with a link of their own"
        )
    })?;
    match scenario.links[found].config.changes.is_empty() {
        true => Ok(found),
        false => Err(format!("link {a}>{b} changes; allowed: links that stay as they are")),
    }
}

/// Returns the links that a message crosses: least delay, and at ties through the lesser node.
fn crossed(
    scenario: &Scenario,
    root: NodeId,
    to: impl Iterator<Item = NodeId>,
) -> Result<Vec<usize>, String> {
    let ends = scenario.daemons.iter().flat_map(|of| of.peers.iter().map(|peer| (of.node, *peer)));
    let ends: Vec<(NodeId, NodeId)> = ends.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    let mut paths = BTreeMap::from([(root, (Duration::ZERO, root))]);
    let mut done = BTreeSet::new();
    let next = |paths: &BTreeMap<NodeId, (Duration, NodeId)>, done: &BTreeSet<NodeId>| {
        let open = paths.iter().filter(|(node, _)| !done.contains(*node));
        open.min_by_key(|(_, (delay, _))| *delay).map(|(node, (delay, _))| (*node, *delay))
    };
    while let Some((near, delay)) = next(&paths, &done) {
        done.insert(near);
        for (_, far) in ends.iter().filter(|(from, to)| *from == near && !done.contains(to)) {
            let step = scenario.links[link(scenario, near, *far)?].config.delay;
            let through = (delay + step, near);
            if paths.get(far).is_none_or(|known| through < *known) {
                paths.insert(*far, through);
            }
        }
    }
    let mut links = BTreeSet::new();
    for mut node in to {
        while node != root {
            let Some((_, before)) = paths.get(&node) else {
                let name = &scenario.nodes[node.index()].name;
                return Err(format!(
                    "daemon {name} cannot be reached; allowed: daemons that are connected"
                ));
            };
            links.insert(link(scenario, *before, node)?);
            node = *before;
        }
    }
    Ok(links.into_iter().collect())
}

pub(super) struct Goodputs<'a> {
    known: BTreeMap<String, f64>,
    study: &'a Study<'a>,
}

/// Span in which the goodput of a link alone is counted: 100 s after 20 s.
const COUNTED: &str = "client_got_bps@20..120 receiver";

impl<'a> Goodputs<'a> {
    pub(super) fn new(study: &'a Study<'a>) -> Self {
        Self { known: BTreeMap::new(), study }
    }

    fn of(&mut self, scenario: &Scenario, link: usize, messages: Messages) -> Result<f64, Error> {
        let LinkSpec { from, to, config } = &scenario.links[link];
        let back = scenario.links.iter().find(|it| it.from == *to && it.to == *from);
        let back = back.ok_or_else(|| {
            let name = |node: &NodeId| &scenario.nodes[node.index()].name;
            Error::Usage(format!("optimum: there is no link {}>{}", name(to), name(from)))
        })?;
        let key = format!("{config:?} {:?} {messages:?}", back.config);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let file = Path::new("alone.toml");
        let mut alone = Scenario::parse(file, ALONE, &Overrides::default(), &self.study.catalog)?;
        (alone.links[0].config, alone.links[1].config) = (config.clone(), back.config.clone());
        for send in alone.daemons[0].clients.iter_mut().filter_map(|client| client.send.as_mut()) {
            (send.service, send.size) = messages;
        }
        let goodput = self.measure(&alone)?;
        self.known.insert(key, goodput);
        Ok(goodput)
    }

    fn measure(&self, scenario: &Scenario) -> Result<f64, Error> {
        let mut probe = Probe::new(&self.study.header(scenario));
        let run = self.study.run(scenario, &mut Watch(self.study.monitor), &mut probe)?;
        if run.outcome.interrupted {
            return Err(Error::Interrupted("a suite that is not finished has no rows"));
        }
        let counted = Measure::try_from(COUNTED.to_string()).map_err(Error::Work)?;
        Ok(counted.of(&run.summary, &probe))
    }
}

/// Client that sends as fast as its daemon accepts, over a link to be replaced.
const ALONE: &str = r#"
title = "Goodput of a link alone"
duration = "120 s"
warmup = "20 s"
link = [{ between = ["a", "b"], rate = "1 Mbit/s", delay = "1 ms" }]
daemon = [{ node = "a", peers = "b" }, { node = "b" }]
client = [
    { name = "sender", node = "a", send = { groups = "g", start = "5 s" } },
    { name = "receiver", node = "b", groups = "g" },
]
"#;

#[cfg(test)]
mod tests {
    use super::super::file::SuiteFile;
    use super::*;

    const TREE: &str = include_str!("../../../../scenarios/cost-benefit/tree.toml");
    const COMPETING: &str = include_str!("../../../../scenarios/cost-benefit/competing.toml");

    fn scenario(text: &str, set: &[&str]) -> Scenario {
        let set = set.iter().map(ToString::to_string).collect();
        let overrides = Overrides { set, seed: None };
        let file = Path::new("tree.toml");
        Scenario::parse(file, text, &overrides, &faircast_sim::catalog()).unwrap()
    }

    fn row(measure: &str) -> RowFile {
        let text = format!(
            "name = 's'\ntitle = 't'\nseeds = 1\n[[experiment]]\nid = 'a'\nquestion = 'q'\nscenario = 'x'\n\
             [[experiment.row]]\ntitle = 't'\nunit = 'bit/s'\nmeasure = '{measure}'\noptimum = 'fair'\n"
        );
        SuiteFile::parse("s.toml", &text).unwrap().experiments[0].rows[0].clone()
    }

    fn flows(measure: &str, scenario: &Scenario) -> Result<Vec<(String, u32)>, String> {
        let network = Network::new(&row(measure), scenario)?;
        let node = |id: NodeId| &scenario.nodes[id.index()].name;
        let name = |index: &usize| {
            let link = &scenario.links[network.links[*index]];
            format!("{}>{}", node(link.from), node(link.to))
        };
        let of = network.flows.iter().map(|(flow, _)| {
            let names: Vec<String> = flow.links.iter().map(name).collect();
            (names.join(" "), flow.clients)
        });
        Ok(of.collect())
    }

    #[test]
    fn messages_cross_the_links_to_daemons_of_members() {
        let sum = "sum client_sent_bps a*";
        let of = |set: &[&str]| flows(sum, &scenario(TREE, set)).unwrap();
        let [ace, aef] = ["a>b b>c b>d d>e", "a>b b>d d>e d>f"].map(String::from);
        assert_eq!(of(&[]), [(ace.clone(), 20), (aef, 20)]);
        // Ordered messages go to all daemons; clients that end before the span do not count.
        let all = String::from("a>b b>c b>d d>e d>f");
        let ordered = ["client.ace.send.service=\"agreed\"", "client.aef.stop=\"15 s\""];
        assert_eq!(of(&ordered), [(all, 20)]);
        let one = flows("client_sent_bps ace-1", &scenario(TREE, &["client.aef.stop=\"15 s\""]));
        assert_eq!(one.unwrap(), [(ace.clone(), 19), (ace, 1)]);
    }

    #[test]
    fn a_scenario_that_no_static_optimum_fits_is_refused() {
        for (text, set, want) in [
            (COMPETING, "title=\"t\"", "has flows, relays or faults"),
            (TREE, "daemon.0.peers=\"d\"", "daemons a and d share the way with others"),
            (TREE, "client.ace.start=\"50 s\"", "ace-1 sends in a part of the span only"),
            (TREE, "client.receiver-c.stop=\"50 s\"", "receiver-c is in ace in a part of the span"),
            (TREE, "client.ace.send.size=\"100 B\"", "several sizes or services"),
            (TREE, "link.0.changes=[{ at = \"9 s\", rate = \"1 Mbit/s\" }]", "link a>b changes"),
        ] {
            let error = flows("sum client_sent_bps a*", &scenario(text, &[set])).unwrap_err();
            assert!(error.contains(want), "{set}: {error}");
        }
    }

    #[test]
    fn the_optimum_of_a_row_is_that_of_its_clients_over_measured_links() {
        let study = Study::default();
        let mut goodputs = Goodputs::new(&study);
        let tree = scenario(TREE, &[]);
        let mut of =
            |objective, measure: &str| of_row(&row(measure), objective, &tree, &mut goodputs);
        let [long, both] = ["sum client_sent_bps ace-*", "sum client_sent_bps a*"]
            .map(|measure| of(Objective::Throughput, measure).unwrap());
        // Links of 2 and 1 Mbit/s, less headers and the rate that TCP-like control leaves unused.
        assert!((1.8e6..2e6).contains(&long), "{long}");
        assert!((0.9e6..1e6).contains(&(both - long)), "{both}");
        let mean = of(Objective::Fair, "client_sent_bps aef-*").unwrap();
        assert!((20.0 * mean - (both - long)).abs() < 0.01 * both, "{mean}");
        // One of twenty equal clients may have the whole rate or none.
        let error = of(Objective::Throughput, "client_sent_bps ace-1").unwrap_err();
        assert!(error.to_string().contains("throughput is greatest with"), "{error}");
        assert_eq!(goodputs.known.len(), 3, "links of 1, 2 and 3 Mbit/s");
    }
}
