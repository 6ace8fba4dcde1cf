//! Market of a daemon: prices of links, and clients that wait for lower prices or more money.

mod prices;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time, fresh};

use self::prices::LinkPrices;
use super::clients::Clients;
use super::{Daemon, Outgoing};
use crate::client::SendError;
use crate::group::Groups;
use crate::ids::{ClientId, DaemonRun, DaemonSet, LinkId};
use crate::price::{Benefit, FlowControl, Money, PriceKey, PriceProfile, Purse, Quote};
use crate::stream::Streams;
use crate::wire::{Control, Prices};

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
#[derive(Clone, Debug)]
pub(super) struct Market {
    prices: LinkPrices,
    /// Times of the clients' next attempts.
    alarms: BTreeSet<(Time, ClientId)>,
    /// Clients that lack money, by the price key of the waiting message and by their money.
    lacking: BTreeMap<PriceKey, BTreeSet<(Money, ClientId)>>,
    /// Clients that the driver must let try again.
    retries: VecDeque<ClientId>,
}

impl Market {
    pub(super) fn new(me: DaemonRun, flow_control: FlowControl) -> Self {
        fresh! {
            Self { prices: LinkPrices::new(me, flow_control), }
            alarms, lacking, retries
        }
    }

    const fn is_off(&self) -> bool {
        matches!(self.prices.flow_control.kind, PriceProfile::Off)
    }

    /// Follows the configuration. Clients whose price keys name other daemons now try again.
    fn follow(&mut self, streams: &Streams) {
        if self.prices.follow(streams) {
            let lacking = core::mem::take(&mut self.lacking).into_values().flatten();
            self.retries.extend(lacking.map(|(_, id)| id));
        }
    }

    fn key(&self, groups: &mut Groups, message: &Outgoing<'_>, routes: DaemonSet) -> PriceKey {
        let routes = if message.service.is_ordered() { DaemonSet::ALL } else { routes };
        let benefit = message.benefit.unwrap_or(self.prices.flow_control.benefit);
        let reach = match benefit {
            Benefit::Receivers => groups.reach(message.groups),
            Benefit::Throughput | Benefit::Concave => 1.0,
        };
        (routes.0, benefit as u8, reach.to_bits())
    }

    fn quote(&mut self, streams: &Streams, clients: usize, key: PriceKey) -> Quote {
        self.follow(streams);
        let (routes, benefit, reach) = key;
        let (links, rate) = self.prices.of_routes(streams, DaemonSet(routes));
        let benefit = Benefit::EACH.get(usize::from(benefit)).copied().unwrap_or_default();
        let of = &self.prices.flow_control;
        let quote = of.quote(benefit, links, f64::from_bits(reach));
        Quote { batch: of.batch(rate, clients), ..quote }
    }

    /// Counts the queues of links up to `now`. No queue has changed since the last call.
    pub(super) fn count_queues(&mut self, now: Time, streams: &Streams) {
        if !self.is_off() {
            self.prices.count_queues(now, streams);
        }
    }

    /// Buys a message of a client, or makes the client wait.
    fn buy(
        &mut self,
        cx: &mut Cx<'_>,
        (streams, clients): (&Streams, &mut Clients),
        (id, bytes): (ClientId, usize),
        key: PriceKey,
    ) -> Result<(), SendError> {
        self.count_queues(cx.now, streams);
        self.forget(clients, id);
        let count = clients.by_id.len();
        let quote = self.quote(streams, count, key);
        let Some(client) = clients.by_id.get_mut(&id) else { return Ok(()) };
        let purse = &mut client.purse;
        let Err(at) = purse.buy(cx, &self.prices.flow_control, (quote, count), bytes) else {
            if let Some(since) = purse.waits_since.take() {
                purse.waited += cx.now.since(since);
            }
            return Ok(());
        };
        purse.waits_since.get_or_insert(cx.now);
        if purse.lacks_money() {
            let money = (purse.money * 1e6) as Money;
            purse.lacking = Some((key, money));
            self.lacking.entry(key).or_default().insert((money, id));
        }
        self.set_alarm(id, purse, at);
        Err(SendError::Price)
    }

    fn forget(&mut self, clients: &mut Clients, id: ClientId) {
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
        let longest = self.prices.flow_control.update.mul_f64(2.0 / 3.0);
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

    /// Moves the clients with a due alarm to the retries.
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
        let update_at = self.prices.updated_at + self.prices.flow_control.update;
        let alarm = self.alarms.first().map(|it| it.0);
        (!self.is_off()).then(|| alarm.map_or(update_at, |it| it.min(update_at)))
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
        links.filter_map(|link| Some((link, self.market.prices.of_link(link, self.peer(link)?))))
    }

    /// Returns the links between all daemons of the view, with their known prices.
    pub fn view_links(&self) -> impl Iterator<Item = ViewLink> {
        let members = &self.current.graph.members;
        self.current.graph.edges.iter().map(|&(a, b, cost_us, _)| {
            let ends @ [a, b] = [a, b].map(|it| members[usize::from(it)]);
            let known = |from, to| self.market.prices.prices.get(&(from, to)).copied();
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
        if self.market.is_off() {
            return Ok(());
        }
        let key = self.market.key(&mut self.groups, message, routes);
        let parties = (&self.current, &mut self.clients);
        self.market.buy(cx, parties, (id, message.payload.len()), key)
    }

    pub(super) fn new_purse(&self, cx: &mut Cx<'_>) -> Purse {
        match self.market.is_off() {
            true => Purse::default(),
            false => Purse::new(cx, &self.market.prices.flow_control, self.clients.by_id.len()),
        }
    }

    pub(super) fn forget_waiting(&mut self, id: ClientId) {
        self.market.forget(&mut self.clients, id);
    }

    pub(super) fn handle_market(&mut self, cx: &mut Cx<'_>) {
        let is_open = !self.change.is_in_progress();
        let Self { market, current, neighbours, .. } = self;
        if market.is_off() {
            return;
        }
        market.count_queues(cx.now, current);
        if cx.now >= market.prices.updated_at + market.prices.flow_control.update {
            market.follow(current);
            let peers = current.links().filter_map(|it| Some((it, neighbours.peer(it)?)));
            let report = market.prices.update(cx.now, (current, is_open), peers);
            if let Some(report) = report {
                self.flood(cx.now, None, &Control::Prices(report));
            }
            self.market.wake_clients(cx, &self.current, &mut self.clients);
        }
        self.market.take_due(cx.now, &mut self.clients);
    }

    pub(super) fn take_prices(&mut self, cx: &mut Cx<'_>, from: LinkId, report: Prices) {
        self.market.follow(&self.current);
        if self.market.prices.take_report(&self.current, &report) {
            self.flood(cx.now, Some(from), &Control::Prices(report));
        }
        self.market.wake_clients(cx, &self.current, &mut self.clients);
    }
}
