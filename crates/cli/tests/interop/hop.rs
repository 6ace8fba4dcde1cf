//! Machine behind a hop that delays incoming packets and loses original data in a fixed pattern.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use faircast_base::{Cx, Duration, NodeId, Time};
use faircast_proto::pgm::wire::{PacketType, peek};
use faircast_proto::{Datagram, Destination, Machine, Transmit, passes_on};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) delay: Duration,
    /// Loss of sent original data: one packet in this number; 0 for none.
    pub(crate) lose_sent: u32,
    /// Loss of received original data: one packet in this number; 0 for none.
    pub(crate) lose_received: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) sent: Vec<(Time, PacketType)>,
    pub(crate) received: Vec<(Time, PacketType)>,
    pub(crate) lost: u32,
}

pub(crate) type Shared = Arc<Mutex<Log>>;

impl Log {
    pub(crate) fn sent(&self, kind: PacketType) -> usize {
        self.sent.iter().filter(|(_, sent)| *sent == kind).count()
    }

    pub(crate) fn received(&self, kind: PacketType) -> usize {
        self.received.iter().filter(|(_, received)| *received == kind).count()
    }
}

pub(crate) fn rounds(packets: &[(Time, PacketType)], gap: Duration) -> Vec<u32> {
    let mut rounds: Vec<u32> = Vec::new();
    let mut last: Option<Time> = None;
    for (at, _) in packets.iter().filter(|(_, kind)| *kind == PacketType::Odata) {
        match (last, rounds.last_mut()) {
            (Some(last), Some(round)) if at.since(last) < gap => *round += 1,
            _ => rounds.push(1),
        }
        last = Some(*at);
    }
    rounds
}

pub(crate) struct Hop<M> {
    inner: M,
    weather: Weather,
    on_the_way: VecDeque<Held>,
    sent: u32,
    received: u32,
    log: Shared,
}

struct Held {
    at: Time,
    from: NodeId,
    to: Destination,
    bytes: Vec<u8>,
    marked: bool,
}

impl<M: Machine> Hop<M> {
    pub(crate) fn new(inner: M, weather: Weather, log: Shared) -> Self {
        Self { inner, weather, on_the_way: VecDeque::new(), sent: 0, received: 0, log }
    }
}

/// True if packet `number` is lost, one in `one_in`; never one of the very first.
fn loses(one_in: u32, number: u32) -> bool {
    one_in > 0 && number % one_in == one_in / 2
}

impl<M: Machine> Machine for Hop<M> {
    type Event = M::Event;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let mut log = self.log.lock().unwrap();
        if let Some((kind, _)) = peek(datagram.bytes) {
            if kind == PacketType::Odata {
                self.received += 1;
                if loses(self.weather.lose_received, self.received) {
                    log.lost += 1;
                    return;
                }
            }
            log.received.push((cx.now, kind));
        }
        drop(log);
        if self.weather.delay == Duration::ZERO {
            return self.inner.handle_datagram(cx, datagram);
        }
        self.on_the_way.push_back(Held {
            at: cx.now + self.weather.delay,
            from: datagram.from,
            to: datagram.to,
            bytes: datagram.bytes.to_vec(),
            marked: datagram.congestion_experienced,
        });
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        // One packet at a time: the driver polls the machine's output after each.
        if self.on_the_way.front().is_some_and(|held| held.at <= cx.now) {
            let Some(held) = self.on_the_way.pop_front() else { return };
            let Held { from, to, bytes, marked, .. } = &held;
            let (from, to, congestion_experienced) = (*from, *to, *marked);
            let datagram = Datagram { congestion_experienced, ..Datagram::new(from, to, bytes) };
            self.inner.handle_datagram(cx, datagram);
        } else {
            self.inner.handle_timeout(cx);
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = self.inner.poll_transmit(cx, buf)?;
            let kind = peek(buf).map(|(kind, _)| kind);
            if kind == Some(PacketType::Odata) {
                self.sent += 1;
                if loses(self.weather.lose_sent, self.sent) {
                    self.log.lock().unwrap().lost += 1;
                    buf.clear();
                    continue;
                }
            }
            self.log.lock().unwrap().sent.extend(kind.map(|kind| (cx.now, kind)));
            return Some(transmit);
        }
    }

    passes_on!(inner: handle_close, poll_membership, poll_event);

    fn next_timeout(&self) -> Option<Time> {
        let arrival = self.on_the_way.front().map(|held| held.at);
        match (arrival, self.inner.next_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
