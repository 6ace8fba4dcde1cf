//! Network of sites, runs of a session in it, and records of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use faircast_base::{Event, LinkId, NodeId, Shortfall, Time};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Delivery, SimOutcome, Simulation, Unobserved, catalog};
use faircast_trace::{Record, Sink, Subject};

use super::liars::{Ends, Lie};
use super::overheard::{Listening, Overheard};

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) protocol: &'static str,
    pub(crate) seconds: u32,
    pub(crate) sites: u32,
    pub(crate) hosts: u32,
    pub(crate) data: &'static str,
    pub(crate) hosts_links: String,
    pub(crate) first_site_links: String,
    pub(crate) host_links: BTreeMap<u32, String>,
    pub(crate) options: String,
    pub(crate) flow: String,
    pub(crate) liars: BTreeMap<u32, Lie>,
    pub(crate) eager: Vec<u32>,
}

impl World {
    /// Makes four sites of five receivers, heads of five members, and 5 Mbit/s between sites.
    pub(crate) fn new() -> Self {
        Self {
            protocol: "tram",
            seconds: 120,
            sites: 4,
            hosts: 5,
            data: "2 MB",
            hosts_links: String::new(),
            first_site_links: String::new(),
            host_links: BTreeMap::new(),
            options: "members_max = 5".into(),
            flow: String::new(),
            liars: BTreeMap::new(),
            eager: Vec::new(),
        }
    }

    pub(crate) fn with_loss(loss: f64) -> Self {
        let keys = format!("loss = {loss}");
        Self { hosts_links: keys.clone(), first_site_links: keys, ..Self::new() }
    }

    pub(crate) fn larger() -> Self {
        Self { data: "6 MB", seconds: 600, ..Self::with_loss(0.01) }
    }

    pub(crate) fn with(mut self, options: &str) -> Self {
        self.options = format!("{}, {options}", self.options);
        self
    }

    pub(crate) fn receivers(&self) -> u32 {
        self.sites * self.hosts
    }

    fn text(&self) -> String {
        let queue = |n: u32| format!("queue = {{ kind = \"droptail\", packets = {n} }}");
        let mut text = format!(
            "title = \"Does everything arrive?\"\nduration = \"{} s\"\n\
             [[link]]\nstar = {{ center = \"c\", leaves = [\"s\", \"r{{1..{}}}\"] }}\n\
             rate = \"5 Mbit/s\"\ndelay = \"5 ms\"\n{}\n",
            self.seconds,
            self.sites,
            queue(60)
        );
        for host in 1..=self.receivers() {
            let site = (host - 1) / self.hosts + 1;
            let site_keys = if site == 1 { &self.first_site_links } else { &self.hosts_links };
            let keys = self.host_links.get(&host).unwrap_or(site_keys);
            let slots = if keys.contains("rate") { 10 } else { 100 };
            text += &format!(
                "[[link]]\nbetween = [\"r{site}\", \"m{host}\"]\nrate = \"20 Mbit/s\"\n\
                 delay = \"2 ms\"\n{}\n{keys}\n",
                queue(slots)
            );
        }
        let gathered = if self.options.is_empty() || self.options.contains("wait_for") {
            String::new()
        } else {
            format!(", wait_for = {}", self.receivers())
        };
        text + &format!(
            "[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\nto = [\"m{{1..{}}}\"]\n\
             packet = \"1400 B\"\ndata = {}\noptions = {{ {}{gathered} }}\n{}\n",
            self.protocol,
            self.receivers(),
            if self.data.starts_with('{') {
                self.data.into()
            } else {
                format!("\"{}\"", self.data)
            },
            self.options,
            self.flow
        )
    }

    #[track_caller]
    pub(crate) fn run(&self, seed: u64) -> Run {
        let text = self.text();
        let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
        let scenario = Scenario::parse(Path::new("test.toml"), &text, &overrides, &catalog())
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let node = |host: u32| {
            let name = format!("m{host}");
            let place = scenario.nodes.iter().position(|node| node.name == name);
            NodeId(place.unwrap() as u32)
        };
        let liars = self.liars.iter().map(|(host, lie)| (node(*host), *lie)).collect();
        let hosts: BTreeMap<_, _> = (1..=self.receivers()).map(|host| (node(host), host)).collect();
        let links = (0..).map(LinkId).zip(&scenario.links);
        let links = links.filter_map(|(id, link)| Some((id, *hosts.get(&link.to)?))).collect();
        let mut heard = Heard { hosts, links, ..Heard::default() };
        let ends = Ends { liars, eager: self.eager.iter().map(|host| node(*host)).collect() };
        let listening = Listening::new(&ends);
        let outcome =
            Simulation::new(&scenario, &listening, &mut heard).unwrap().run(&mut Unobserved);
        let overheard = listening.heard();
        let of_host =
            |(node, it): (&NodeId, &Overheard)| (heard.hosts.get(node).copied().unwrap_or(0), *it);
        let overheard = overheard.iter().map(of_host).collect();
        Run { heard, overheard, outcome }
    }
}

/// Records of a run. Hosts are counted from 1.
#[derive(Default)]
pub(crate) struct Heard {
    hosts: BTreeMap<NodeId, u32>,
    /// Changes of each receiver's head; 0 is the source.
    pub(crate) heads: Vec<(Time, u32, Option<u32>)>,
    pub(crate) data_packets: u64,
    pub(crate) source_repairs: u64,
    pub(crate) head_repairs: BTreeMap<u32, u64>,
    pub(crate) acknowledgements: u64,
    pub(crate) reports: u64,
    links: BTreeMap<LinkId, u32>,
    pub(crate) host_bytes: BTreeMap<u32, u64>,
    pub(crate) abandoned: BTreeMap<u32, u64>,
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) source_done: Option<Time>,
    pub(crate) named: BTreeMap<u32, Shortfall>,
    pub(crate) unnamed: u32,
    pub(crate) sent_at: Vec<Time>,
}

impl Sink for Heard {
    fn record(&mut self, record: &Record) {
        if let (Subject::Link(link), Event::LinkSample(counters)) = (record.subject, record.event)
            && let Some(host) = self.links.get(&link)
        {
            self.host_bytes.insert(*host, counters.sent_bytes);
        }
        let Subject::Endpoint { node, .. } = record.subject else { return };
        let host = self.hosts.get(&node).copied();
        match (record.event, host) {
            (Event::DataSent { repair: false, .. }, _) => {
                self.data_packets += 1;
                self.sent_at.push(record.at);
            }
            (Event::DataSent { .. }, None) => self.source_repairs += 1,
            (Event::DataSent { .. }, Some(host)) => {
                *self.head_repairs.entry(host).or_default() += 1
            }
            (Event::AckReceived { .. }, None) => self.acknowledgements += 1,
            (Event::NakReceived { .. }, None) => self.reports += 1,
            (Event::RepairHead { node, .. }, Some(host)) => {
                let head = node.map(|node| self.hosts.get(&node).copied().unwrap_or(0));
                self.heads.push((record.at, host, head));
            }
            (Event::BadInput { reason }, _) => {
                *self.refused.entry(format!("{reason:?}")).or_default() += 1;
            }
            (Event::Abandoned { count, .. }, Some(host)) => {
                *self.abandoned.entry(host).or_default() += count;
            }
            (Event::Incomplete { node: Some(node), reason, .. }, None) => {
                self.named.insert(self.hosts[&node], reason);
            }
            (Event::Incomplete { receivers, .. }, None) => self.unnamed += receivers,
            (Event::Completed { .. }, None) => self.source_done = Some(record.at),
            _ => {}
        }
    }
}

pub(crate) struct Run {
    pub(crate) heard: Heard,
    pub(crate) overheard: BTreeMap<u32, Overheard>,
    pub(crate) outcome: SimOutcome,
}

impl Run {
    pub(crate) fn delivery(&self, host: u32) -> &(Delivery, bool) {
        &self.outcome.deliveries[0][host as usize - 1]
    }

    pub(crate) fn completed(&self, host: u32) -> Option<Time> {
        self.delivery(host).0.completed
    }

    #[track_caller]
    pub(crate) fn assert_whole(&self, case: &str, but: &[u32]) {
        let receivers = self.outcome.deliveries[0].len() as u32;
        for host in (1..=receivers).filter(|host| !but.contains(host)) {
            let (delivery, intact) = self.delivery(host);
            let (bytes, lost) = (delivery.bytes, delivery.lost_packets);
            assert!(intact, "{case}: m{host} delivered {bytes} wrong bytes");
            let is_complete = delivery.completed.is_some();
            assert!(is_complete, "{case}: m{host} stopped at {bytes} B, {lost} lost");
        }
        let abandoned: Vec<_> =
            self.heard.abandoned.keys().filter(|it| !but.contains(it)).collect();
        assert!(abandoned.is_empty(), "{case}: {abandoned:?} gave packets up");
    }

    /// Heads and source know which receivers have everything, and leave after these.
    #[track_caller]
    pub(crate) fn assert_source_ends_last(&self, case: &str) {
        self.assert_whole(case, &[]);
        let receivers = &self.outcome.deliveries[0];
        let last = receivers.iter().filter_map(|(delivery, _)| delivery.completed).max();
        assert!(self.heard.source_done >= last, "{case}: {:?}, {last:?}", self.heard.source_done);
    }

    pub(crate) fn tree_at(&self, at: Time) -> BTreeMap<u32, u32> {
        let mut tree = BTreeMap::new();
        for (_, host, head) in self.heard.heads.iter().filter(|change| change.0 <= at) {
            match head {
                Some(head) => tree.insert(*host, *head),
                None => tree.remove(host),
            };
        }
        tree
    }

    pub(crate) fn heads_at(&self, at: Time) -> Vec<u32> {
        let tree = self.tree_at(at);
        let heads: BTreeSet<u32> = tree.values().copied().filter(|head| *head > 0).collect();
        let mut heads: Vec<u32> = heads.into_iter().collect();
        heads.sort_by_key(|head| std::cmp::Reverse(tree.values().filter(|it| *it == head).count()));
        heads
    }
}
