//! Prices of links, and clients that wait for them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time};

use super::{Daemon, Outgoing};
use crate::client::SendError;
use crate::ids::{Ballot, ClientId, DaemonRun, LinkId, Set};
use crate::price::{Benefit, FlowControl, Meter, Money, Offer, PriceProfile, Purse, Way};
use crate::wire::{Control, Prices};

/// Interval at which prices above zero are told again, so that a lost one comes back.
const REFRESH: Duration = Duration::from_secs(1);
/// Time of a configuration in which prices of zero are told again too: a member that is not in the
/// configuration yet drops the first ones, and would keep those of the one before.
const SETTLING: Duration = Duration::from_secs(5);
/// Most prices of messages that are remembered until the next change.
const ROUTES_MAX: usize = 1024;

/// Link of the tree of this daemon: its ends, and the daemons behind it.
#[derive(Clone, Copy, Debug)]
struct Branch {
    from: usize,
    to: usize,
    below: Set,
}

/// State of flow control.
#[derive(Clone, Debug, Default)]
pub(super) struct Market {
    /// Configuration to which `tree` belongs, and its begin.
    ballot: Ballot,
    since: Time,
    tree: Vec<Branch>,
    /// Moment up to which queues are counted, and those of the last update and refresh.
    counted: Time,
    updated: Time,
    refreshed: Time,
    meters: BTreeMap<LinkId, Meter>,
    /// Prices of links, by the runs of both ends.
    prices: BTreeMap<(DaemonRun, DaemonRun), f64>,
    /// Number of the newest prices of each daemon in the configuration, and own prices as they were
    /// told last.
    numbers: BTreeMap<DaemonRun, u64>,
    told: BTreeMap<DaemonRun, f64>,
    /// Prices of the links to daemons, by these daemons: sum, and greatest.
    routes: BTreeMap<u128, (f64, f64)>,
    /// Clients that are to try again, by moment, and those that can try now.
    alarms: BTreeSet<(Time, ClientId)>,
    /// Clients that lack money, by the way of the message that waits and by their money.
    short: BTreeMap<Way, BTreeSet<(Money, ClientId)>>,
    retries: VecDeque<ClientId>,
}

/// Link to another daemon, as flow control sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPrice {
    /// The daemon at the other end.
    pub to: DaemonRun,
    /// Price in dollars for each packet, of the last update.
    pub price: f64,
    /// Packets that waited in the interval before that update: mean, and most.
    pub packets_mean: f64,
    /// See `packets_mean`.
    pub packets_max: f64,
}

/// Link between two daemons of the view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewLink {
    /// The daemons at both ends, the lesser first.
    pub ends: [DaemonRun; 2],
    /// Cost of one way in microseconds.
    pub cost_us: u32,
    /// Price in dollars for each packet from the first end and from the second one; `None` if
    /// messages have no price, or the daemon at that end has told none yet.
    pub prices: [Option<f64>; 2],
}

impl Daemon {
    /// Next client whose message was too expensive and that is to try again.
    pub fn poll_retry(&mut self) -> Option<ClientId> {
        self.market.retries.pop_front()
    }

    /// Price of a message for each packet, in dollars, and money in the purse of its sender. `None`
    /// if messages have no price.
    pub fn offer(&mut self, id: ClientId, message: &Outgoing<'_>) -> Option<(f64, f64)> {
        let of = self.settings.flow()?;
        let money = self.clients.get(&id)?.purse.money;
        let way = self.way(&of, message, self.groups.route(message.groups));
        Some((self.price(&of, way).price, money))
    }

    /// Money in the purse of a client in dollars, and time for which messages have waited for money
    /// or prices. `None` if messages have no price.
    pub fn purse(&self, now: Time, id: ClientId) -> Option<(f64, Duration)> {
        self.settings.flow()?;
        let purse = &self.clients.get(&id)?.purse;
        let waits = purse.waits_since.map_or(Duration::ZERO, |since| now.since(since));
        Some((purse.money, purse.waited + waits))
    }

    /// Own links with their prices.
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

    /// Links between all daemons of the view, with the prices that this daemon knows.
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

    /// Buys a message of a client whose groups have members at daemons, or has the client wait.
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

    /// Takes a client from those that lack money.
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

    /// Has clients try again for whose money prices have fallen, as if each of them tried at random
    /// moments, two thirds of an update apart at most: all at once they would fill a queue before
    /// its price comes back. The lesser of two uniform times is what is left of such a pause.
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

    /// Purse of a client that connects.
    pub(super) fn new_purse(&self, cx: &mut Cx<'_>) -> Purse {
        let of = self.settings.flow();
        of.map(|of| Purse::new(cx, &of, self.clients.len())).unwrap_or_default()
    }

    /// Way of a message whose groups have members at daemons.
    fn way(&mut self, of: &FlowControl, message: &Outgoing<'_>, routes: Set) -> Way {
        let routes = if message.service.is_ordered() { Set::ALL } else { routes };
        let benefit = message.benefit.unwrap_or(of.benefit);
        let reach = match benefit {
            Benefit::Receivers => self.groups.reach(message.groups),
            Benefit::Throughput | Benefit::Concave => 1.0,
        };
        (routes.0, benefit as u8, reach.to_bits())
    }

    /// Price of each packet of a message by its way.
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

    /// Counts queues up to this moment. No queue has changed since the last call.
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

    /// Rebuilds the tree after a change, and forgets prices of daemons that are gone.
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
        // Places mean other daemons now.
        let short = core::mem::take(&mut market.short).into_values().flatten();
        market.retries.extend(short.map(|(_, id)| id));
        // New members know no prices, and numbers begin anew: none is above a lie of before.
        market.numbers.clear();
        market.told.clear();
        let links: BTreeSet<LinkId> = current.links().collect();
        market.meters.retain(|link, _| links.contains(link));
    }

    /// When [`handle_market`](Self::handle_market) is due.
    pub(super) fn next_market(&self) -> Option<Time> {
        let of = self.settings.flow()?;
        let alarm = self.market.alarms.first().map(|it| it.0);
        Some(alarm.unwrap_or(Time::MAX).min(self.market.updated + of.update))
    }

    /// Rings alarms of clients, and updates prices of own links.
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
        // Prices that cannot be told now are told once the members have changed.
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

    /// Takes prices of another daemon, and passes them on. Prices of another configuration are
    /// dropped.
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
            // A lie in this daemon's name: all prices are told again, with a greater number.
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
