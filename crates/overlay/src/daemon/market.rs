//! Market of a daemon: prices of links, and clients that wait for lower prices or more money.
//! Prices come from own measurements and reports of other daemons, and are summed along trees.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time};

use super::clients::Clients;
use super::{Daemon, Outgoing};
use crate::client::SendError;
use crate::group::Groups;
use crate::ids::{ClientId, DaemonRun, DaemonSet, LinkId, ViewId};
use crate::price::{Benefit, FlowControl, Meter, Money, PriceKey, PriceProfile, Purse, Quote};
use crate::stream::Streams;
use crate::wire::{Control, Prices};

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

/// Price of a link to another daemon under flow control. Queues are in packets.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LinkPrice {
    pub to: DaemonRun,
    /// Price of a packet in dollars, as of the last update.
    pub price: f64,
    /// Mean and maximum queue of the interval before the last update.
    pub packets_mean: f64,
    pub packets_max: f64,
}

/// Link between two daemons of the view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewLink {
    /// Daemons at both ends, the lower one first.
    pub ends: [DaemonRun; 2],
    /// One-way cost in microseconds.
    pub cost_us: u32,
    /// Price of a packet in dollars from each end; `None` without prices or a report.
    pub prices: [Option<f64>; 2],
}

/// Market of a daemon. Without prices the daemon still passes the reports of others on.
#[derive(Clone, Debug, Default)]
pub(super) struct Market {
    me: DaemonRun,
    flow_control: FlowControl,
    /// Configuration of the tree, and time of its first use here.
    config: ViewId,
    config_since: Time,
    tree: Vec<Branch>,
    /// Times up to which queues are counted, and of the last update and repetition of prices.
    counted_at: Time,
    updated_at: Time,
    repeated_at: Time,
    meters: BTreeMap<LinkId, Meter>,
    /// Prices in dollars by both ends: own ones as measured, others as reported.
    prices: BTreeMap<(DaemonRun, DaemonRun), f64>,
    /// Number of each daemon's newest report in the configuration.
    report_numbers: BTreeMap<DaemonRun, u64>,
    /// Own prices in the last report.
    reported: BTreeMap<DaemonRun, f64>,
    /// Cache of the prices of links to destination daemons: sum and maximum.
    routes: BTreeMap<u128, (f64, f64)>,
    /// Times of the clients' next attempts.
    alarms: BTreeSet<(Time, ClientId)>,
    /// Clients that lack money, by the price key of the waiting message and by their money.
    lacking: BTreeMap<PriceKey, BTreeSet<(Money, ClientId)>>,
    retries: VecDeque<ClientId>,
}

impl Market {
    pub(super) fn new(me: DaemonRun, flow_control: FlowControl) -> Self {
        Self { me, flow_control, ..Self::default() }
    }

    const fn is_off(&self) -> bool {
        matches!(self.flow_control.kind, PriceProfile::Off)
    }

    fn key(&self, groups: &mut Groups, message: &Outgoing<'_>, routes: DaemonSet) -> PriceKey {
        let routes = if message.service.is_ordered() { DaemonSet::ALL } else { routes };
        let benefit = message.benefit.unwrap_or(self.flow_control.benefit);
        let reach = match benefit {
            Benefit::Receivers => groups.reach(message.groups),
            Benefit::Throughput | Benefit::Concave => 1.0,
        };
        (routes.0, benefit as u8, reach.to_bits())
    }

    fn quote(&mut self, streams: &Streams, clients: usize, key: PriceKey) -> Quote {
        self.follow(streams);
        let (routes, benefit, reach) = key;
        let (links, rate) = self.of_routes(streams, DaemonSet(routes));
        let benefit = Benefit::EACH.get(usize::from(benefit)).copied().unwrap_or_default();
        let of = &self.flow_control;
        let quote = of.quote(benefit, links, f64::from_bits(reach));
        Quote { batch: of.batch(rate, clients), ..quote }
    }

    pub(super) fn forget(&mut self, clients: &mut Clients, id: ClientId) {
        let purse = clients.by_id.get_mut(&id).map(|it| &mut it.purse);
        let Some((key, money)) = purse.and_then(|it| it.lacking.take()) else { return };
        if let Some(lacking) = self.lacking.get_mut(&key) {
            lacking.remove(&(money, id));
            if lacking.is_empty() {
                self.lacking.remove(&key);
            }
        }
    }

    fn set_alarm(&mut self, id: ClientId, purse: &mut Purse, at: Time) {
        if purse.alarm != Some(at) {
            let before = purse.alarm.replace(at);
            before.map(|before| self.alarms.remove(&(before, id)));
            self.alarms.insert((at, id));
        }
    }

    /// Schedules attempts at random times for clients whose money suffices after prices fell: all
    /// at once would fill a queue before its price arrives. Attempts are at most two thirds of an
    /// update apart. The rest of such a pause is the lesser of two uniform times.
    fn wake_clients(&mut self, cx: &mut Cx<'_>, streams: &Streams, clients: &mut Clients) {
        let longest = self.flow_control.update.mul_f64(2.0 / 3.0);
        for key in self.lacking.keys().copied().collect::<Vec<_>>() {
            let least = (self.quote(streams, clients.by_id.len(), key).least * 1e6) as Money;
            let Some(lacking) = self.lacking.get_mut(&key) else { continue };
            let able = lacking.split_off(&(least, ClientId(0)));
            if lacking.is_empty() {
                self.lacking.remove(&key);
            }
            for (_, id) in able {
                let at = cx.now + cx.rng.up_to(longest).min(cx.rng.up_to(longest));
                let Some(client) = clients.by_id.get_mut(&id) else { continue };
                client.purse.lacking = None;
                if client.purse.alarm.is_none_or(|before| before > at) {
                    self.set_alarm(id, &mut client.purse, at);
                }
            }
        }
    }

    fn take_due(&mut self, now: Time, clients: &mut Clients) {
        while self.alarms.first().is_some_and(|it| it.0 <= now) {
            let Some((at, id)) = self.alarms.pop_first() else { break };
            let purse = clients.by_id.get_mut(&id).map(|it| &mut it.purse);
            if let Some(purse) = purse.filter(|it| it.alarm == Some(at)) {
                purse.alarm = None;
                self.retries.push_back(id);
            }
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let update_at = self.updated_at + self.flow_control.update;
        let alarm = self.alarms.first().map(|it| it.0);
        (!self.is_off()).then(|| alarm.map_or(update_at, |it| it.min(update_at)))
    }

    fn of_link(&self, link: LinkId, to: DaemonRun) -> LinkPrice {
        let meter = self.meters.get(&link).copied().unwrap_or_default();
        let price = self.prices.get(&(self.me, to)).copied().unwrap_or_default();
        LinkPrice { to, price, packets_mean: meter.packets_mean, packets_max: meter.packets_max }
    }

    /// Follows the configuration. Clients whose price keys name other daemons now try again.
    fn follow(&mut self, streams: &Streams) {
        if self.config == streams.config {
            return;
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
        let lacking = core::mem::take(&mut self.lacking).into_values().flatten();
        self.retries.extend(lacking.map(|(_, id)| id));
    }

    /// Returns sum and maximum of the prices of links to `routes`. With the fast profile own links
    /// have the price of the moment, and the second result is the rate of the fastest one.
    fn of_routes(&mut self, streams: &Streams, routes: DaemonSet) -> ((f64, f64), f64) {
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

    /// Counts the queues of links up to `now`. No queue has changed since the last call.
    pub(super) fn count_queues(&mut self, now: Time, streams: &Streams) {
        let time = now.since(self.counted_at);
        if self.is_off() || time == Duration::ZERO {
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
    fn update(
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
    fn take_report(&mut self, streams: &Streams, report: &Prices) -> bool {
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

impl Daemon {
    /// Returns the next client that must retry a message that was too expensive.
    pub fn poll_retry(&mut self) -> Option<ClientId> {
        self.market.retries.pop_front()
    }

    /// Returns a message's price per packet and its sender's dollars; `None` without prices.
    pub fn quote(&mut self, id: ClientId, message: &Outgoing<'_>) -> Option<(f64, f64)> {
        if self.market.is_off() {
            return None;
        }
        let money = self.clients.by_id.get(&id)?.purse.money;
        let routes = self.groups.route(message.groups);
        let key = self.market.key(&mut self.groups, message, routes);
        let clients = self.clients.by_id.len();
        Some((self.market.quote(&self.current, clients, key).price, money))
    }

    /// Returns a client's money in dollars and its total wait for it; `None` without prices.
    pub fn purse(&self, now: Time, id: ClientId) -> Option<(f64, Duration)> {
        let client = self.clients.by_id.get(&id).filter(|_| !self.market.is_off());
        let purse = &client?.purse;
        let waits = purse.waits_since.map_or(Duration::ZERO, |since| now.since(since));
        Some((purse.money, purse.waited + waits))
    }

    /// Returns the own links with their prices.
    pub fn link_prices(&self) -> impl Iterator<Item = (LinkId, LinkPrice)> {
        let links = self.current.links().filter(|_| !self.market.is_off());
        links.filter_map(|link| Some((link, self.market.of_link(link, self.peer(link)?))))
    }

    /// Returns the links between all daemons of the view, with their known prices.
    pub fn view_links(&self) -> impl Iterator<Item = ViewLink> {
        let members = &self.current.graph.members;
        self.current.graph.edges.iter().map(|&(a, b, cost_us, _)| {
            let ends @ [a, b] = [a, b].map(|it| members[usize::from(it)]);
            let known = |from, to| self.market.prices.get(&(from, to)).copied();
            let price = |from, to| known(from, to).filter(|_| !self.market.is_off());
            ViewLink { ends, cost_us, prices: [price(a, b), price(b, a)] }
        })
    }

    /// Buys a message of a client for the destination daemons `routes`, or makes the client wait.
    pub(super) fn buy(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        message: &Outgoing<'_>,
        routes: DaemonSet,
    ) -> Result<(), SendError> {
        let Self { market, current, clients, groups, .. } = self;
        if market.is_off() {
            return Ok(());
        }
        let key = market.key(groups, message, routes);
        market.count_queues(cx.now, current);
        market.forget(clients, id);
        let count = clients.by_id.len();
        let quote = market.quote(current, count, key);
        let Some(client) = clients.by_id.get_mut(&id) else { return Ok(()) };
        let (purse, bytes) = (&mut client.purse, message.payload.len());
        let Err(at) = purse.buy(cx, &market.flow_control, (quote, count), bytes) else {
            if let Some(since) = purse.waits_since.take() {
                purse.waited += cx.now.since(since);
            }
            return Ok(());
        };
        purse.waits_since.get_or_insert(cx.now);
        if purse.lacks_money() {
            let money = (purse.money * 1e6) as Money;
            purse.lacking = Some((key, money));
            market.lacking.entry(key).or_default().insert((money, id));
        }
        market.set_alarm(id, purse, at);
        Err(SendError::Price)
    }

    pub(super) fn new_purse(&self, cx: &mut Cx<'_>) -> Purse {
        match self.market.is_off() {
            true => Purse::default(),
            false => Purse::new(cx, &self.market.flow_control, self.clients.by_id.len()),
        }
    }

    pub(super) fn handle_market(&mut self, cx: &mut Cx<'_>) {
        let is_open = !self.change.is_in_progress();
        let Self { market, current, neighbours, .. } = self;
        if market.is_off() {
            return;
        }
        market.count_queues(cx.now, current);
        if cx.now >= market.updated_at + market.flow_control.update {
            market.follow(current);
            let peers = current.links().filter_map(|it| Some((it, neighbours.peer(it)?)));
            let report = market.update(cx.now, (current, is_open), peers);
            if let Some(report) = report {
                self.flood(cx.now, None, &Control::Prices(report));
            }
            self.market.wake_clients(cx, &self.current, &mut self.clients);
        }
        self.market.take_due(cx.now, &mut self.clients);
    }

    pub(super) fn take_prices(&mut self, cx: &mut Cx<'_>, from: LinkId, report: Prices) {
        self.market.follow(&self.current);
        if self.market.take_report(&self.current, &report) {
            self.flood(cx.now, Some(from), &Control::Prices(report));
        }
        self.market.wake_clients(cx, &self.current, &mut self.clients);
    }
}
