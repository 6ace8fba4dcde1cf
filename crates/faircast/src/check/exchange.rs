//! State machine by which hosts test the network between them, without a clock and sockets.
//!
//! The first packet of another host starts three trains: packets of growing size, single packets,
//! and a burst at the wanted rate for 1 s. Hosts take turns with bursts, ask for the results, and
//! answer until all others are finished.

use std::net::SocketAddr;

use faircast_base::{Duration, Time};

use super::wire::{Body, Packet, TRAINS};

/// Most other hosts; packets of further ones are ignored.
const PEERS_MAX: usize = 64;
const ANSWERS_MAX: u32 = 200;
/// Numbers of the trains: growing sizes, single packets, and the burst.
pub(super) const SIZES: u8 = 1;
pub(super) const STEADY: u8 = 2;
pub(super) const BURST: u8 = 3;
/// IP packet lengths of the size train, up to the MTU of the own link.
pub(super) const MTU_CANDIDATES: [u32; 11] =
    [576, 1000, 1280, 1400, 1420, 1450, 1472, 1492, 1500, 4000, 9000];
pub(super) const PACKETS_PER_SIZE: u32 = 3;
const STEADY_PACKETS: u32 = 100;
/// IP packet length of the other trains: fits every usual path.
const PACKET_BYTES: u32 = 1200;
const QUESTION_INTERVAL: Duration = Duration::from_millis(200);
const QUESTION_INTERVAL_LONG: Duration = Duration::from_secs(1);
const QUESTIONS_PER_TRAIN: u32 = 5;
/// Time from the first peer to the first train, for further peers to appear.
const GATHER: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(4);

#[derive(Clone, Debug, Default)]
pub(super) struct TestSettings {
    pub(super) id: u64,
    pub(super) wait: Duration,
    /// Least duration of the test, to see whether memberships last.
    pub(super) long: Option<Duration>,
    pub(super) rate_bps: u64,
    pub(super) mtu: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrainResult {
    pub(super) received: u32,
    pub(super) total: u32,
    pub(super) longest: u32,
    pub(super) span_ns: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Peer {
    id: u64,
    pub(super) address: SocketAddr,
    pub(super) heard_at: Option<Time>,
    /// True if any packet of the peer shows that packets of this host reach it.
    pub(super) hears_us: bool,
    pub(super) answered_at: Option<Time>,
    last_at: Time,
    pub(super) done_at: Option<Time>,
    pub(super) out: [Option<TrainResult>; TRAINS],
    pub(super) into: [Option<TrainResult>; TRAINS],
    first_at: [Time; TRAINS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) to: Option<SocketAddr>,
    pub(super) packet: Packet,
    /// Length of the IP packet in bytes; `None` without padding.
    pub(super) size: Option<u32>,
}

#[derive(Clone, Debug)]
struct Task {
    at: Time,
    every: Duration,
    sent: u32,
    total: u32,
    train: u8,
    is_load: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    settings: TestSettings,
    pub(super) peers: Vec<Peer>,
    begins_at: Option<Time>,
    has_trains: bool,
    tasks: Vec<Task>,
    next_question_at: Time,
    asked: usize,
    done_at: Option<Time>,
    /// Second in which answers are counted, and their number: a rate limit.
    answers: (u64, u32),
}

impl Exchange {
    pub(super) fn new(settings: TestSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(super) fn sizes(&self) -> Vec<u32> {
        let mtu = self.settings.mtu;
        let mut sizes: Vec<u32> = MTU_CANDIDATES.into_iter().filter(|size| *size < mtu).collect();
        sizes.push(mtu);
        sizes
    }

    pub(super) fn is_over(&self, now: Time) -> bool {
        let Some(done_at) = self.done_at else {
            return self.peers.is_empty() && now >= Time::ZERO + self.settings.wait;
        };
        now >= done_at + Duration::from_secs(1)
            && self.peers.iter().all(|peer| peer.done_at.is_some() || now >= peer.last_at + SILENCE)
    }

    pub(super) fn next_at(&self) -> Time {
        self.tasks.iter().map(|task| task.at).fold(self.next_question_at, Time::min)
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<Outgoing> {
        self.advance(now);
        if now >= self.next_question_at {
            let is_long = self.begins_at.is_some_and(|begin| now > begin + TURN * 10);
            let is_long = is_long && self.done_at.is_none();
            let every = if is_long { QUESTION_INTERVAL_LONG } else { QUESTION_INTERVAL };
            self.next_question_at = now + every;
            return Some(self.question(0));
        }
        let index = (0..self.tasks.len()).filter(|i| self.tasks[*i].at <= now);
        let index = index.min_by_key(|i| self.tasks[*i].at)?;
        let task = &mut self.tasks[index];
        let (train, number, total, is_load) = (task.train, task.sent, task.total, task.is_load);
        task.sent += 1;
        // A delayed host must not catch up by a burst.
        task.at =
            (task.at + task.every).max(Time::from_nanos(now.as_nanos().saturating_sub(LAG_MAX_NS)));
        if task.sent == total {
            self.tasks.swap_remove(index);
        }
        if !is_load {
            return Some(self.question(train));
        }
        let size = match train {
            SIZES => self.sizes()[(number / PACKETS_PER_SIZE) as usize],
            _ => PACKET_BYTES.min(self.settings.mtu),
        };
        let body = Body::Load { number, total };
        Some(Outgoing { to: None, packet: self.packet(train, body), size: Some(size) })
    }

    fn packet(&self, train: u8, body: Body) -> Packet {
        Packet { from: self.settings.id, is_done: self.done_at.is_some(), train, body }
    }

    fn question(&mut self, train: u8) -> Outgoing {
        let heard: Vec<u64> =
            self.peers.iter().filter(|peer| peer.heard_at.is_some()).map(|peer| peer.id).collect();
        self.asked += 1;
        let heard = (!heard.is_empty()).then(|| heard[self.asked % heard.len()]);
        Outgoing { to: None, packet: self.packet(train, Body::Question { heard }), size: None }
    }

    fn advance(&mut self, now: Time) {
        let Some(begin) = self.begins_at else {
            if !self.peers.is_empty() {
                self.begins_at = Some(now + GATHER);
            }
            return;
        };
        let length = TURN * 3 + TURN * self.rank();
        if now >= begin && self.tasks.is_empty() && self.done_at.is_none() {
            let long = Time::ZERO + self.settings.long.unwrap_or(Duration::ZERO);
            if !self.has_trains {
                self.has_trains = true;
                let (burst, second) = (TURN * 2 + TURN * self.rank(), Duration::from_secs(1));
                for (train, after) in [(SIZES, Duration::ZERO), (STEADY, TURN), (BURST, burst)] {
                    let (at, total) = (begin + after, self.total(train));
                    let every = Duration::from_nanos(second.as_nanos() / u64::from(total));
                    self.tasks.push(Task { at, every, sent: 0, total, train, is_load: true });
                    let at = at + second + Duration::from_millis(50);
                    let (every, total) = (Duration::from_millis(180), QUESTIONS_PER_TRAIN);
                    self.tasks.push(Task { at, every, sent: 0, total, train, is_load: false });
                }
            } else if now >= begin + length && now >= long {
                self.done_at = Some(now);
                self.next_question_at = now;
            }
        }
    }

    fn rank(&self) -> u64 {
        self.peers.iter().filter(|peer| peer.id < self.settings.id).count() as u64
    }

    pub(super) fn receive(
        &mut self,
        now: Time,
        packet: Packet,
        from: SocketAddr,
        bytes: u32,
        by_group: bool,
    ) -> Option<Outgoing> {
        if packet.from == self.settings.id {
            return None;
        }
        if matches!(packet.body, Body::Answer { to, .. } if to != self.settings.id) {
            return None;
        }
        let index = match self.peers.iter().position(|peer| peer.id == packet.from) {
            Some(index) => index,
            None if self.peers.len() < PEERS_MAX => {
                self.peers.push(Peer::new(packet.from, from, now));
                self.peers.len() - 1
            }
            None => return None,
        };
        let peer = &mut self.peers[index];
        peer.last_at = now;
        if packet.is_done {
            peer.done_at.get_or_insert(now);
        }
        if by_group {
            peer.heard_at = Some(now);
        }
        let train = usize::from(packet.train);
        match packet.body {
            Body::Load { total, .. } if by_group => {
                let outcome = peer.into[train].get_or_insert_with(|| {
                    peer.first_at[train] = now;
                    TrainResult::default()
                });
                outcome.received = outcome.received.saturating_add(1);
                outcome.total = total;
                outcome.longest = outcome.longest.max(bytes);
                outcome.span_ns = now.since(peer.first_at[train]).as_nanos();
                None
            }
            Body::Load { .. } | Body::Probe => None,
            Body::Answer { received, longest, span_ns, .. } => {
                peer.hears_us = true;
                peer.answered_at = Some(now);
                let known = peer.out[train].map_or(0, |outcome| outcome.received);
                if received >= known {
                    peer.out[train] = Some(TrainResult { received, total: 0, longest, span_ns });
                }
                None
            }
            Body::Question { heard } => {
                peer.hears_us |= heard == Some(self.settings.id);
                // A forged source of a unicast question would direct the answer at a victim.
                if !by_group || !self.may_answer(now) {
                    return None;
                }
                let TrainResult { received, longest, span_ns, .. } =
                    self.peers[index].into[train].unwrap_or_default();
                let body = Body::Answer { to: packet.from, received, longest, span_ns };
                let packet = self.packet(packet.train, body);
                Some(Outgoing { to: Some(from), packet, size: None })
            }
        }
    }

    fn may_answer(&mut self, now: Time) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if self.answers.0 != second {
            self.answers = (second, 0);
        }
        self.answers.1 += 1;
        self.answers.1 <= ANSWERS_MAX
    }

    pub(super) fn total(&self, train: u8) -> u32 {
        match train {
            SIZES => self.sizes().len() as u32 * PACKETS_PER_SIZE,
            STEADY => STEADY_PACKETS,
            _ => {
                let packets = self.settings.rate_bps / (u64::from(PACKET_BYTES) * 8);
                u32::try_from(packets).unwrap_or(u32::MAX).max(1)
            }
        }
    }
}

const LAG_MAX_NS: u64 = 5_000_000;

impl Peer {
    fn new(id: u64, address: SocketAddr, now: Time) -> Self {
        Self {
            id,
            address,
            heard_at: None,
            hears_us: false,
            answered_at: None,
            last_at: now,
            done_at: None,
            out: [None; TRAINS],
            into: [None; TRAINS],
            first_at: [now; TRAINS],
        }
    }
}

#[cfg(test)]
mod tests;
