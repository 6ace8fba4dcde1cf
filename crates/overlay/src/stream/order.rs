//! Agreed order of all ordered messages: by Lamport time, then by the rank of the
//! source daemon. `Streams::next_ordered` decides when its first message is delivered.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use super::CompleteMessage;
use crate::cell::Service;
use crate::mutant::{Mutant, breaks};

/// Lamport times of a client's ordered messages, with the FIFO messages that follow each.
type SenderQueue = VecDeque<(u64, Vec<CompleteMessage>)>;

/// Ordered messages that wait for earlier ones, and FIFO messages that wait behind them.
#[derive(Clone, Debug, Default)]
pub(super) struct AgreedOrder {
    pub(super) ordered: BTreeMap<(u64, u8), CompleteMessage>,
    /// Queues by daemon and client. FIFO messages wait only for ordered ones before them.
    behind: BTreeMap<(u8, Bytes), SenderQueue>,
    /// FIFO messages whose ordered messages are delivered.
    pub(super) released: VecDeque<CompleteMessage>,
}

fn sender(message: &CompleteMessage) -> (u8, Bytes) {
    (message.source as u8, message.cell.client.clone())
}

impl AgreedOrder {
    /// Adds a message. Returns the message if it waits for no other.
    pub(super) fn add(&mut self, message: CompleteMessage) -> Option<CompleteMessage> {
        let cell = &message.cell;
        let is_ordered = message.is_ordered();
        if is_ordered && cell.kind.is_message() {
            let waiting = self.behind.entry(sender(&message)).or_default();
            waiting.push_back((message.time, Vec::new()));
        } else if cell.service == Service::Fifo
            && !breaks(Mutant::FifoOvertakes)
            && !self.behind.is_empty()
            && let Some(waiting) = self.behind.get_mut(&sender(&message))
            && let Some(before) = waiting.back_mut()
        {
            before.1.push(message);
            return None;
        }
        if !is_ordered {
            return Some(message);
        }
        self.ordered.insert((message.time, message.source as u8), message);
        None
    }

    /// Takes the first ordered message, and releases the FIFO messages behind it.
    pub(super) fn pop_first(&mut self) -> Option<CompleteMessage> {
        let (_, message) = self.ordered.pop_first()?;
        let sender = sender(&message);
        if let Some(waiting) = self.behind.get_mut(&sender) {
            if waiting.front().is_some_and(|it| it.0 == message.time) {
                self.released.extend(waiting.pop_front().into_iter().flat_map(|it| it.1));
            }
            if waiting.is_empty() {
                self.behind.remove(&sender);
            }
        }
        Some(message)
    }

    /// Returns all messages and the `recovered` ones: those outside the order, then the ordered
    /// ones that `is_known` admits, each with the FIFO messages behind it.
    pub(super) fn undelivered(
        &self,
        recovered: impl Iterator<Item = CompleteMessage>,
        is_known: impl Fn(&CompleteMessage) -> bool,
    ) -> Vec<CompleteMessage> {
        let mut ordered = self.ordered.clone();
        let waiting = self.behind.values().flatten().flat_map(|it| &it.1);
        let mut others: Vec<CompleteMessage> =
            self.released.iter().chain(waiting).cloned().collect();
        for message in recovered {
            if message.is_ordered() {
                ordered.insert((message.time, message.source as u8), message);
            } else {
                others.push(message);
            }
        }
        others.sort_by_key(|it| (it.time, it.source));
        let mut times: BTreeMap<(u8, Bytes), Vec<u64>> = BTreeMap::new();
        for it in ordered.values().filter(|it| it.cell.kind.is_message()) {
            times.entry(sender(it)).or_default().push(it.time);
        }
        let mut behind: BTreeMap<(u64, usize), Vec<CompleteMessage>> = BTreeMap::new();
        let mut all = Vec::new();
        for message in others {
            let times = times.get(&sender(&message));
            let before = times
                .filter(|_| message.cell.service == Service::Fifo)
                .and_then(|it| it[..it.partition_point(|time| *time < message.time)].last());
            match before {
                Some(time) => behind.entry((*time, message.source)).or_default().push(message),
                None => all.push(message),
            }
        }
        for message in ordered.into_values() {
            let fifo = behind.remove(&(message.time, message.source));
            if is_known(&message) {
                all.push(message);
                all.extend(fifo.into_iter().flatten());
            }
        }
        all
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ordered.len() + self.behind.len() + self.released.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, Kind};
    use crate::ids::DaemonSet;

    fn message(source: usize, time: u64, service: Service) -> CompleteMessage {
        let what = (Kind::Message, service, true);
        let bytes = Cell::encode(time, what, DaemonSet::ALL, b"c", &[b"g"], &[]);
        let cell = Cell::decode(&bytes).unwrap();
        CompleteMessage { source, sequence: time, time, cell, parts: [Bytes::new()].into() }
    }

    fn filled() -> (AgreedOrder, Vec<u64>) {
        use Service::{Agreed, Fifo, Reliable};
        let mut order = AgreedOrder::default();
        let messages =
            [(0, 1, Fifo), (0, 5, Agreed), (0, 6, Fifo), (1, 3, Agreed), (0, 7, Reliable)];
        let at_once =
            messages.map(|(source, time, service)| order.add(message(source, time, service)));
        (order, at_once.into_iter().flatten().map(|it| it.time).collect())
    }

    #[test]
    fn a_fifo_message_waits_for_the_ordered_messages_of_its_sender() {
        let (mut order, at_once) = filled();
        assert_eq!(at_once, [1, 7]);
        let mut next =
            || order.released.pop_front().or_else(|| order.pop_first()).map(|it| it.time);
        assert_eq!([next(), next(), next(), next()], [Some(3), Some(5), Some(6), None]);
        assert_eq!(order.len(), 0);
    }

    #[test]
    fn what_is_not_known_takes_the_fifo_messages_behind_it_along() {
        let (order, _) = filled();
        let recovered = [message(1, 2, Service::Fifo), message(1, 9, Service::Safe)];
        let times = |known: u64| -> Vec<u64> {
            let all = order.undelivered(recovered.clone().into_iter(), |it| it.time < known);
            all.iter().map(|it| it.time).collect()
        };
        assert_eq!(times(10), [2, 3, 5, 6, 9]);
        assert_eq!(times(5), [2, 3]);
    }
}
