//! Prices of the links of a view: own measurements, reports of other daemons, sums along trees.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use super::LinkPrice;
use crate::ids::{DaemonRun, DaemonSet, LinkId, ViewId};
use crate::price::{FlowControl, Meter, PriceProfile};
use crate::stream::Streams;
use crate::wire::Prices;

/// Interval at which prices above zero are repeated, to replace lost reports: 1 s.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a new configuration repeats zero prices too, for members that enter late: 5 s.
const SETTLING: Duration = Duration::from_secs(5);
/// Maximum number of cached prices of destination sets.
const ROUTES_MAX: usize = 1024;

/// Link of the own tree, with the daemons behind it.
#[derive(Clone, Copy, Debug)]
struct Branch {
    from: usize,
    to: usize,
    below: DaemonSet,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LinkPrices {
    me: DaemonRun,
    pub(super) flow_control: FlowControl,
    /// Configuration of the tree, and time of its first use here.
    config: ViewId,
    config_since: Time,
    tree: Vec<Branch>,
    /// Times up to which queues are counted, and of the last update and repetition of prices.
    counted_at: Time,
    pub(super) updated_at: Time,
    repeated_at: Time,
    meters: BTreeMap<LinkId, Meter>,
    /// Prices in dollars by both ends: own ones as measured, others as reported.
    pub(super) prices: BTreeMap<(DaemonRun, DaemonRun), f64>,
    /// Number of each daemon's newest report in the configuration.
    report_numbers: BTreeMap<DaemonRun, u64>,
    /// Own prices in the last report.
    reported: BTreeMap<DaemonRun, f64>,
    /// Cache of the prices of links to destination daemons: sum and maximum.
    routes: BTreeMap<u128, (f64, f64)>,
}

impl LinkPrices {
    pub(super) fn new(me: DaemonRun, flow_control: FlowControl) -> Self {
        Self { me, flow_control, ..Self::default() }
    }

    pub(super) fn of_link(&self, link: LinkId, to: DaemonRun) -> LinkPrice {
        let meter = self.meters.get(&link).copied().unwrap_or_default();
        let price = self.prices.get(&(self.me, to)).copied().unwrap_or_default();
        LinkPrice { to, price, packets_mean: meter.packets_mean, packets_max: meter.packets_max }
    }

    /// Follows the configuration. True if the configuration is new.
    pub(super) fn follow(&mut self, streams: &Streams) -> bool {
        if self.config == streams.config {
            return false;
        }
        (self.config, self.config_since) = (streams.config, self.counted_at);
        self.routes.clear();
        let parents = streams.graph.tree(streams.me);
        let is_below = |rank: usize, mut at: usize| {
            while at != rank
                && let Some(parent) = parents[at]
            {
                at = parent;
            }
            at == rank
        };
        let branch = |(to, from): (usize, &Option<usize>)| {
            let below = (0..parents.len()).filter(|it| is_below(to, *it)).collect();
            from.map(|from| Branch { from, to, below })
        };
        self.tree = parents.iter().enumerate().filter_map(branch).collect();
        let members = &streams.graph.members;
        let is_member = |run: &DaemonRun| members.binary_search(run).is_ok();
        self.prices.retain(|(from, to), _| is_member(from) && is_member(to));
        // Report numbers begin again, so forged numbers lose their effect.
        self.report_numbers.clear();
        self.reported.clear();
        let links: BTreeSet<LinkId> = streams.links().collect();
        self.meters.retain(|link, _| links.contains(link));
        true
    }

    /// Returns sum and maximum of the prices of links to `routes`. With the fast profile own links
    /// have the price of the moment, and the second result is the rate of the fastest one.
    pub(super) fn of_routes(&mut self, streams: &Streams, routes: DaemonSet) -> ((f64, f64), f64) {
        let of = &self.flow_control;
        let is_live = of.kind == PriceProfile::Fast;
        let known = self.routes.get(&routes.0).copied();
        let add = |(sum, most): (f64, f64), price: f64| (sum + price, most.max(price));
        let mut links = known.unwrap_or_else(|| {
            let members = &streams.graph.members;
            let used = self.tree.iter().filter(|it| it.below.meets(routes));
            let reported = used.filter(|it| !is_live || it.from != streams.me);
            let ends = reported.map(|it| (members[it.from], members[it.to]));
            ends.filter_map(|it| self.prices.get(&it).copied()).fold((0.0, 0.0), add)
        });
        if known.is_none() {
            if self.routes.len() >= ROUTES_MAX {
                self.routes.clear();
            }
            self.routes.insert(routes.0, links);
        }
        let mut rate = 0.0_f64;
        if is_live {
            let since = self.counted_at.since(self.updated_at);
            for link in streams.own_links(routes) {
                let packets = of.packets(streams.queue_length(link));
                let Some(meter) = self.meters.get(&link) else { continue };
                links = add(links, meter.price(of, packets, since));
                rate = rate.max(meter.rate());
            }
        }
        (links, rate)
    }

    pub(super) fn count_queues(&mut self, now: Time, streams: &Streams) {
        let time = now.since(self.counted_at);
        if time == Duration::ZERO {
            return;
        }
        self.counted_at = now;
        for link in streams.links() {
            let packets = self.flow_control.packets(streams.queue_length(link));
            self.meters.entry(link).or_default().count(packets, time);
        }
    }

    /// Ends an interval: updates the prices of own links. Returns the report to flood, if any.
    /// Prices that cannot be sent during a view change, if not `is_open`, are sent after it.
    pub(super) fn update(
        &mut self,
        now: Time,
        (streams, is_open): (&Streams, bool),
        peers: impl Iterator<Item = (LinkId, DaemonRun)>,
    ) -> Option<Prices> {
        let of = &self.flow_control;
        let time = now.since(core::mem::replace(&mut self.updated_at, now));
        let is_repetition = now >= self.repeated_at + REPEAT_INTERVAL;
        if is_repetition {
            self.repeated_at = now;
        }
        let mut links = Vec::new();
        for (link, to) in peers {
            let Some(rank) = streams.graph.rank(to) else { continue };
            let left = streams.queues.get(&link).map_or(0, |it| it.left_bytes);
            let price = self.meters.entry(link).or_default().update(of, time, left);
            let before = self.prices.insert((self.me, to), price).unwrap_or_default();
            if before != price {
                self.routes.clear();
            }
            let is_news = self.reported.get(&to).is_none_or(|reported| {
                (price - reported).abs() > of.report_step() || price == 0.0 && *reported > 0.0
            });
            let is_due = is_repetition && (price > 0.0 || now < self.config_since + SETTLING);
            if is_open && (is_news || is_due) {
                self.reported.insert(to, price);
                links.push((rank as u8, (price * 100.0) as u16));
            }
        }
        if links.is_empty() {
            return None;
        }
        let number = self.report_numbers.entry(self.me).or_default();
        *number += 1;
        let (tag, source) = (streams.config.tag(), streams.me as u8);
        Some(Prices { tag, source, number: *number, links })
    }

    /// Takes the report of another daemon. True if the report is new and must be flooded.
    pub(super) fn take_report(&mut self, streams: &Streams, report: &Prices) -> bool {
        let members = &streams.graph.members;
        let Some(source) = members.get(usize::from(report.source)).copied() else { return false };
        let known = self.report_numbers.get(&source);
        if report.tag != streams.config.tag() || known.is_some_and(|it| report.number <= *it) {
            return false;
        }
        self.report_numbers.insert(source, report.number);
        if source == self.me {
            // The report was forged: all own prices are sent again, with a greater number.
            self.reported.clear();
            return false;
        }
        for (rank, price) in &report.links {
            let Some(to) = members.get(usize::from(*rank)).copied() else { continue };
            self.prices.insert((source, to), f64::from(*price) / 100.0);
        }
        self.routes.clear();
        true
    }
}
