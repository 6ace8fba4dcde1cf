//! Prices of links, and clients that wait for lower prices.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time};

use super::{Daemon, Outgoing};
use crate::client::SendError;
use crate::ids::{Ballot, ClientId, DaemonRun, LinkId, Set};
use crate::price::{Benefit, FlowControl, Meter, Money, Offer, PriceProfile, Purse, Way};
use crate::wire::{Control, Prices};

/// Interval at which prices above zero are repeated, to replace lost reports: 1 s.
const REFRESH: Duration = Duration::from_secs(1);
/// Time for which a new configuration repeats zero prices too, for members that enter late: 5 s.
const SETTLING: Duration = Duration::from_secs(5);
/// Maximum number of cached prices of destination sets.
const ROUTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Branch {
    from: usize,
    to: usize,
    below: Set,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Market {
    ballot: Ballot,
    since: Time,
    tree: Vec<Branch>,
    counted: Time,
    updated: Time,
    refreshed: Time,
    meters: BTreeMap<LinkId, Meter>,
    prices: BTreeMap<(DaemonRun, DaemonRun), f64>,
    /// Number of each daemon's newest price report in the configuration; own last reported prices.
    numbers: BTreeMap<DaemonRun, u64>,
    told: BTreeMap<DaemonRun, f64>,
    /// Cache of the prices of links to destination daemons: sum and maximum.
    routes: BTreeMap<u128, (f64, f64)>,
    alarms: BTreeSet<(Time, ClientId)>,
    /// Clients that lack money, by the price inputs of the waiting message and by their money.
    short: BTreeMap<Way, BTreeSet<(Money, ClientId)>>,
    retries: VecDeque<ClientId>,
}

/// Price of a link to another daemon under flow control.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPrice {
    /// Daemon at the other end.
    pub to: DaemonRun,
    /// Price of a packet in dollars, as of the last update.
    pub price: f64,
    /// Mean queue of the interval before the last update, in packets.
    pub packets_mean: f64,
    /// Maximum queue of the same interval, in packets.
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

impl Daemon {
    /// Returns the next client that must retry a message that was too expensive.
    pub fn poll_retry(&mut self) -> Option<ClientId> {
        self.market.retries.pop_front()
    }

    /// Returns a message's price per packet and its sender's dollars; `None` without prices.
    pub fn offer(&mut self, id: ClientId, message: &Outgoing<'_>) -> Option<(f64, f64)> {
        let of = self.settings.flow()?;
        let money = self.clients.get(&id)?.purse.money;
        let way = self.way(&of, message, self.groups.route(message.groups));
        Some((self.price(&of, way).price, money))
    }

    /// Returns a client's money in dollars and its total wait for it; `None` without prices.
    pub fn purse(&self, now: Time, id: ClientId) -> Option<(f64, Duration)> {
        self.settings.flow()?;
        let purse = &self.clients.get(&id)?.purse;
        let waits = purse.waits_since.map_or(Duration::ZERO, |since| now.since(since));
        Some((purse.money, purse.waited + waits))
    }

    /// Returns the own links with their prices.
    pub fn link_prices(&self) -> impl Iterator<Item = (LinkId, LinkPrice)> {
        let of = self.settings.flow();
        self.current.links().filter_map(move |link| {
            let (_, to) = (of?, self.peer(link)?);
            let meter = self.market.meters.get(&link).copied().unwrap_or_default();
            let price = self.market.prices.get(&(self.me, to)).copied().unwrap_or_default();
            let (packets_mean, packets_max) = (meter.mean, meter.max);
            Some((link, LinkPrice { to, price, packets_mean, packets_max }))
        })
    }

    /// Returns the links between all daemons of the view, with their known prices.
    pub fn view_links(&self) -> impl Iterator<Item = ViewLink> {
        let members = &self.current.graph.members;
        let has_prices = self.settings.flow().is_some();
        self.current.graph.edges.iter().map(move |&(a, b, cost_us, _)| {
            let ends = [members[usize::from(a)], members[usize::from(b)]];
            let price = |from, to| self.market.prices.get(&(from, to)).filter(|_| has_prices);
            let prices = [price(ends[0], ends[1]).copied(), price(ends[1], ends[0]).copied()];
            ViewLink { ends, cost_us, prices }
        })
    }

    /// Buys a message of a client for the destination daemons `routes`, or makes the client wait.
    pub(super) fn buy(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        message: &Outgoing<'_>,
        routes: Set,
    ) -> Result<(), SendError> {
        let Some(of) = self.settings.flow() else { return Ok(()) };
        self.count_queues(cx.now);
        self.forget_short(id);
        let way = self.way(&of, message, routes);
        let (offer, clients) = (self.price(&of, way), self.clients.len());
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let Err(at) = client.purse.buy(cx, &of, (offer, clients), message.payload.len()) else {
            if let Some(since) = client.purse.waits_since.take() {
                client.purse.waited += cx.now.since(since);
            }
            return Ok(());
        };
        client.purse.waits_since.get_or_insert(cx.now);
        if client.purse.is_short() {
            let money = (client.purse.money * 1e6) as Money;
            client.purse.place = Some((way, money));
            self.market.short.entry(way).or_default().insert((money, id));
        }
        self.set_alarm(id, at);
        Err(SendError::Price)
    }

    fn set_alarm(&mut self, id: ClientId, at: Time) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.purse.alarm != Some(at) {
            let before = client.purse.alarm.replace(at);
            before.map(|before| self.market.alarms.remove(&(before, id)));
            self.market.alarms.insert((at, id));
        }
    }

    pub(super) fn forget_short(&mut self, id: ClientId) {
        let Some((way, money)) = self.clients.get_mut(&id).and_then(|it| it.purse.place.take())
        else {
            return;
        };
        if let Some(clients) = self.market.short.get_mut(&way) {
            clients.remove(&(money, id));
            if clients.is_empty() {
                self.market.short.remove(&way);
            }
        }
    }

    /// Schedules attempts at random times for clients whose money suffices after prices fell: all
    /// at once would fill a queue before its price arrives. Attempts are at most two thirds of an
    /// update apart. The rest of such a pause is the lesser of two uniform times.
    pub(super) fn wake_short(&mut self, cx: &mut Cx<'_>) {
        let Some(of) = self.settings.flow() else { return };
        let ways: Vec<Way> = self.market.short.keys().copied().collect();
        for way in ways {
            let least = (self.price(&of, way).least * 1e6) as Money;
            let Some(clients) = self.market.short.get_mut(&way) else { continue };
            let able = clients.split_off(&(least, ClientId(0)));
            if clients.is_empty() {
                self.market.short.remove(&way);
            }
            for (_, id) in able {
                let longest = of.update.mul_f64(2.0 / 3.0);
                let at = cx.now + cx.rng.up_to(longest).min(cx.rng.up_to(longest));
                let Some(client) = self.clients.get_mut(&id) else { continue };
                client.purse.place = None;
                if client.purse.alarm.is_none_or(|before| before > at) {
                    self.set_alarm(id, at);
                }
            }
        }
    }

    pub(super) fn new_purse(&self, cx: &mut Cx<'_>) -> Purse {
        let of = self.settings.flow();
        of.map(|of| Purse::new(cx, &of, self.clients.len())).unwrap_or_default()
    }

    fn way(&mut self, of: &FlowControl, message: &Outgoing<'_>, routes: Set) -> Way {
        let routes = if message.service.is_ordered() { Set::ALL } else { routes };
        let benefit = message.benefit.unwrap_or(of.benefit);
        let reach = match benefit {
            Benefit::Receivers => self.groups.reach(message.groups),
            Benefit::Throughput | Benefit::Concave => 1.0,
        };
        (routes.0, benefit as u8, reach.to_bits())
    }

    fn price(&mut self, of: &FlowControl, (routes, benefit, reach): Way) -> Offer {
        self.follow_view();
        let routes = Set(routes);
        let me = self.current.me;
        let is_live = of.kind == PriceProfile::Fast;
        let known = self.market.routes.get(&routes.0).copied();
        let add = |(sum, most): (f64, f64), price: f64| (sum + price, most.max(price));
        let mut links = known.unwrap_or_else(|| {
            let members = &self.current.graph.members;
            let used = self.market.tree.iter().filter(|it| it.below.meets(routes));
            let told = used.filter(|it| !is_live || it.from != me);
            let ends = told.map(|it| (members[it.from], members[it.to]));
            ends.filter_map(|ends| self.market.prices.get(&ends).copied()).fold((0.0, 0.0), add)
        });
        if known.is_none() {
            if self.market.routes.len() >= ROUTES_MAX {
                self.market.routes.clear();
            }
            self.market.routes.insert(routes.0, links);
        }
        let mut rate = 0.0_f64;
        if is_live {
            let since = self.market.counted.since(self.market.updated);
            for link in self.current.own_links(routes) {
                let packets = of.packets(self.current.queue_length(link));
                let Some(meter) = self.market.meters.get(&link) else { continue };
                links = add(links, meter.price(of, packets, since));
                rate = rate.max(meter.rate());
            }
        }
        let benefit = Benefit::EACH.get(usize::from(benefit)).copied().unwrap_or_default();
        let offer = of.offer(benefit, links, f64::from_bits(reach));
        Offer { batch: of.batch(rate, self.clients.len()), ..offer }
    }

    /// Counts queues up to `now`. No queue has changed since the last call.
    pub(super) fn count_queues(&mut self, now: Time) {
        let Some(of) = self.settings.flow() else { return };
        let time = now.since(self.market.counted);
        if time == Duration::ZERO {
            return;
        }
        self.market.counted = now;
        for link in self.current.links() {
            let packets = of.packets(self.current.queue_length(link));
            self.market.meters.entry(link).or_default().count(packets, time);
        }
    }

    fn follow_view(&mut self) {
        let Self { market, current, .. } = self;
        if market.ballot == current.ballot {
            return;
        }
        (market.ballot, market.since) = (current.ballot, market.counted);
        market.routes.clear();
        let parents = current.graph.tree(current.me);
        let below = |place: usize| -> Set {
            let mut all = Set::of(place);
            for (mut at, _) in parents.iter().enumerate() {
                let start = at;
                while at != place
                    && let Some(parent) = parents[at]
                {
                    at = parent;
                }
                if at == place {
                    all = all.or(Set::of(start));
                }
            }
            all
        };
        let branches = parents
            .iter()
            .enumerate()
            .filter_map(|(to, from)| from.map(|from| Branch { from, to, below: below(to) }));
        market.tree = branches.collect();
        let members = &current.graph.members;
        let is_member = |run: &DaemonRun| members.binary_search(run).is_ok();
        market.prices.retain(|(from, to), _| is_member(from) && is_member(to));
        // The places of the keys now mean other daemons.
        let short = core::mem::take(&mut market.short).into_values().flatten();
        market.retries.extend(short.map(|(_, id)| id));
        // Report numbers begin again, so forged numbers lose their effect.
        market.numbers.clear();
        market.told.clear();
        let links: BTreeSet<LinkId> = current.links().collect();
        market.meters.retain(|link, _| links.contains(link));
    }

    pub(super) fn next_market(&self) -> Option<Time> {
        let of = self.settings.flow()?;
        let alarm = self.market.alarms.first().map(|it| it.0);
        Some(alarm.unwrap_or(Time::MAX).min(self.market.updated + of.update))
    }

    pub(super) fn handle_market(&mut self, cx: &mut Cx<'_>) {
        let Some(of) = self.settings.flow() else { return };
        self.count_queues(cx.now);
        if cx.now >= self.market.updated + of.update {
            self.update_prices(cx.now, &of);
            self.wake_short(cx);
        }
        while self.market.alarms.first().is_some_and(|it| it.0 <= cx.now) {
            let Some((at, id)) = self.market.alarms.pop_first() else { break };
            let purse = self.clients.get_mut(&id).map(|it| &mut it.purse);
            if let Some(purse) = purse.filter(|it| it.alarm == Some(at)) {
                purse.alarm = None;
                self.market.retries.push_back(id);
            }
        }
    }

    fn update_prices(&mut self, now: Time, of: &FlowControl) {
        self.follow_view();
        let time = now.since(core::mem::replace(&mut self.market.updated, now));
        let is_refresh = now >= self.market.refreshed + REFRESH;
        if is_refresh {
            self.market.refreshed = now;
        }
        // Prices that cannot be sent during a view change are sent after it.
        let is_open = !self.is_changing();
        let mut news = Vec::new();
        let links: Vec<LinkId> = self.current.links().collect();
        for link in links {
            let left = self.current.left_bytes(link);
            let Some(to) = self.peer(link) else { continue };
            let Some(place) = self.current.graph.place(to) else { continue };
            let price = self.market.meters.entry(link).or_default().update(of, time, left);
            let before = self.market.prices.insert((self.me, to), price).unwrap_or_default();
            if before != price {
                self.market.routes.clear();
            }
            let told = self.market.told.get(&to);
            let is_news = told
                .is_none_or(|told| (price - told).abs() > of.step() || price == 0.0 && *told > 0.0);
            let is_due = is_refresh && (price > 0.0 || now < self.market.since + SETTLING);
            if is_open && (is_news || is_due) {
                self.market.told.insert(to, price);
                news.push((place as u8, price));
            }
        }
        if news.is_empty() {
            return;
        }
        let number = self.market.numbers.entry(self.me).or_default();
        *number += 1;
        let prices = Prices {
            tag: self.current.ballot.tag(),
            source: self.current.me as u8,
            number: *number,
            links: news.into_iter().map(|(to, price)| (to, (price * 100.0) as u16)).collect(),
        };
        self.flood(now, None, &Control::Prices(prices));
    }

    pub(super) fn take_prices(&mut self, now: Time, from: LinkId, prices: Prices) {
        self.follow_view();
        let members = &self.current.graph.members;
        let Some(source) = members.get(usize::from(prices.source)).copied() else { return };
        let is_known =
            self.market.numbers.get(&source).is_some_and(|known| prices.number <= *known);
        if prices.tag != self.current.ballot.tag() || is_known {
            return;
        }
        if source == self.me {
            // The report was forged: all own prices are sent again, with a greater number.
            self.market.numbers.insert(self.me, prices.number);
            self.market.told.clear();
            return;
        }
        self.market.numbers.insert(source, prices.number);
        for (place, price) in &prices.links {
            let Some(to) = members.get(usize::from(*place)).copied() else { continue };
            self.market.prices.insert((source, to), f64::from(*price) / 100.0);
        }
        self.market.routes.clear();
        self.flood(now, Some(from), &Control::Prices(prices));
    }
}
