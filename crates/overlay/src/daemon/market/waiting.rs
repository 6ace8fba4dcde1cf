//! Clients that wait for money or for another toss of the coin.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::Time;

use crate::daemon::clients::Clients;
use crate::ids::ClientId;
use crate::price::{Money, PriceKey, Purse};

#[derive(Clone, Debug, Default)]
pub(super) struct WaitingClients {
    /// Times of the clients' next attempts.
    alarms: BTreeSet<(Time, ClientId)>,
    /// Clients that lack money, by the price key of the waiting message and by their money.
    lacking: BTreeMap<PriceKey, BTreeSet<(Money, ClientId)>>,
    /// Clients that the driver must let try again.
    retries: VecDeque<ClientId>,
}

impl WaitingClients {
    pub(super) fn poll_retry(&mut self) -> Option<ClientId> {
        self.retries.pop_front()
    }

    pub(super) fn next_alarm(&self) -> Option<Time> {
        self.alarms.first().map(|it| it.0)
    }

    pub(super) fn keys(&self) -> Vec<PriceKey> {
        self.lacking.keys().copied().collect()
    }

    /// Adds a client that lacks money for a message with this price key.
    pub(super) fn add(&mut self, id: ClientId, purse: &mut Purse, key: PriceKey) {
        let money = (purse.money * 1e6) as Money;
        purse.lacking = Some((key, money));
        self.lacking.entry(key).or_default().insert((money, id));
    }

    pub(super) fn forget(&mut self, clients: &mut Clients, id: ClientId) {
        let Some((key, money)) = clients.get_mut(id).and_then(|it| it.purse.lacking.take()) else {
            return;
        };
        if let Some(lacking) = self.lacking.get_mut(&key) {
            lacking.remove(&(money, id));
            if lacking.is_empty() {
                self.lacking.remove(&key);
            }
        }
    }

    /// Takes the clients with at least `least` money for messages with this price key.
    pub(super) fn take_able(
        &mut self,
        key: PriceKey,
        least: Money,
    ) -> impl Iterator<Item = ClientId> + use<> {
        let mut able = BTreeSet::new();
        if let Some(lacking) = self.lacking.get_mut(&key) {
            able = lacking.split_off(&(least, ClientId(0)));
            if lacking.is_empty() {
                self.lacking.remove(&key);
            }
        }
        able.into_iter().map(|(_, id)| id)
    }

    pub(super) fn retry_all(&mut self) {
        let lacking = core::mem::take(&mut self.lacking).into_values().flatten();
        self.retries.extend(lacking.map(|(_, id)| id));
    }

    pub(super) fn set_alarm(&mut self, id: ClientId, purse: &mut Purse, at: Time) {
        if purse.alarm != Some(at) {
            let before = purse.alarm.replace(at);
            before.map(|before| self.alarms.remove(&(before, id)));
            self.alarms.insert((at, id));
        }
    }

    /// Moves the clients with a due alarm to the retries.
    pub(super) fn take_due(&mut self, now: Time, clients: &mut Clients) {
        while self.alarms.first().is_some_and(|it| it.0 <= now) {
            let Some((at, id)) = self.alarms.pop_first() else { break };
            let purse = clients.get_mut(id).map(|it| &mut it.purse);
            if let Some(purse) = purse.filter(|it| it.alarm == Some(at)) {
                purse.alarm = None;
                self.retries.push_back(id);
            }
        }
    }
}
