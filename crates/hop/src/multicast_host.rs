//! Multicast at a host: ordering and acknowledgement of a link's frames.

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};
use faircast_base::{Duration, Time};

use crate::endpoint::ConnectionHandle;
use crate::message::{Message, RUNS_MAX};
use crate::multicast_link::FRAMES_MAX;
use crate::seal::{BEACON, Seal, peek};

const PACKET_BYTES_MAX: usize = u16::MAX as usize;
/// Minimum interval between a host's reports of received beacons: 250 ms.
const REPORTS: Duration = Duration::from_millis(250);
const REORDER: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct MulticastReceiver {
    pub(crate) connection: ConnectionHandle,
    pub(crate) at: Vec<u8>,
    seal: Seal,
    /// Link of the host's group, once the relay has moved the group to one.
    pub(crate) link: Option<Arrivals>,
    /// Network of a beacon to report, and least time of the next report.
    beacon_network: Option<u16>,
    report_at: Time,
}

impl MulticastReceiver {
    pub(crate) fn new(connection: ConnectionHandle, key: &[u8; 32], at: Vec<u8>) -> Self {
        let seal = Seal::new(key);
        Self { connection, at, seal, link: None, beacon_network: None, report_at: Time::ZERO }
    }

    fn arrivals(&mut self, link: u32) -> Option<&mut Arrivals> {
        self.link.as_mut().filter(|arrivals| arrivals.link == link)
    }

    pub(crate) fn on_datagram(&mut self, now: Time, bytes: &[u8]) -> bool {
        let Some((link, seq)) = peek(bytes) else { return false };
        if link != BEACON && self.arrivals(link).is_none() {
            return false;
        }
        let Some(frame) = self.seal.open(bytes) else { return false };
        if let Some(arrivals) = self.arrivals(link) {
            arrivals.on_frame(now, seq, frame, true);
        } else if let Some(network) = frame.first_chunk()
            && self.link.is_none()
            && self.report_at <= now
        {
            self.report_at = now + REPORTS;
            self.beacon_network = Some(u16::from_be_bytes(*network));
        }
        true
    }

    pub(crate) fn on_message(&mut self, now: Time, own: u64, message: &Message) {
        match *message {
            Message::LinkJoin { group, link, next, pace } if group == own => {
                self.link = Some(Arrivals::new(link, next, pace));
            }
            Message::LinkLeave { link } => _ = self.link.take_if(|it| it.link == link),
            Message::LinkMark { link, next, pace } => {
                if let Some(arrivals) = self.arrivals(link) {
                    arrivals.on_mark(now, next, pace);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn on_repair(&mut self, now: Time, link: u32, seq: u64, frame: Bytes) {
        if let Some(arrivals) = self.arrivals(link) {
            arrivals.on_frame(now, seq, frame, false);
        }
    }

    pub(crate) fn take(&mut self, now: Time) -> Option<Bytes> {
        self.link.as_mut()?.take_packet(now)
    }

    pub(crate) fn poll(&mut self, now: Time) -> Option<Message> {
        let report = self.beacon_network.take().map(|network| Message::MulticastHeard { network });
        report.or_else(|| self.link.as_mut()?.poll(now))
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.link.as_ref()?.ack_at
    }
}

#[derive(Debug)]
pub(crate) struct Arrivals {
    link: u32,
    /// Number of frames that the relay wants acknowledged together.
    pace: u16,
    next: u64,
    /// Number after the last frame known to exist.
    end: u64,
    frames: BTreeMap<u64, Bytes>,
    partial_packet: Vec<u8>,
    multicast_frames: u32,
    unacknowledged: u16,
    ack_at: Option<Time>,
}

impl Arrivals {
    pub(crate) fn new(link: u32, next: u64, pace: u16) -> Self {
        fresh! {
            Self { link, pace, next, end: next, }
            frames, partial_packet, multicast_frames, unacknowledged, ack_at
        }
    }

    /// Returns a delay that grows with the number of hosts, to spread their messages over time.
    fn spread(&self, least: Duration, share: u64) -> Duration {
        least.max(Duration::from_millis(u64::from(self.pace)) / share)
    }

    fn ack_by(&mut self, at: Time) {
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    fn on_frame(&mut self, now: Time, seq: u64, frame: Bytes, is_multicast: bool) {
        let is_ahead = seq.checked_sub(self.next).is_some_and(|ahead| ahead < FRAMES_MAX as u64);
        if !is_ahead || self.frames.contains_key(&seq) {
            return;
        }
        self.multicast_frames = self.multicast_frames.saturating_add(u32::from(is_multicast));
        self.end = self.end.max(seq + 1);
        self.frames.insert(seq, frame);
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        if self.unacknowledged >= self.pace {
            self.ack_by(now);
        } else if (self.frames.len() as u64) < self.end - self.next {
            self.ack_by(now + self.spread(REORDER, 16));
        }
    }

    fn on_mark(&mut self, now: Time, next: u64, pace: u16) {
        self.pace = pace;
        self.end = self.end.max(next.min(self.next + FRAMES_MAX as u64));
        self.ack_by(now + self.spread(Duration::ZERO, 16));
    }

    fn take_packet(&mut self, now: Time) -> Option<Bytes> {
        loop {
            let mut frame = self.take(now)?;
            let is_last = frame.first() == Some(&0);
            frame.advance(frame.len().min(1));
            if is_last && self.partial_packet.is_empty() {
                return Some(frame);
            }
            self.partial_packet.extend_from_slice(&frame);
            if is_last || self.partial_packet.len() > PACKET_BYTES_MAX {
                return Some(Bytes::from(std::mem::take(&mut self.partial_packet)));
            }
        }
    }

    fn take(&mut self, now: Time) -> Option<Bytes> {
        let frame = self.frames.remove(&self.next)?;
        self.next += 1;
        self.ack_by(now + self.spread(REORDER, 2));
        Some(frame)
    }

    fn poll(&mut self, now: Time) -> Option<Message> {
        self.ack_at.take_if(|at| *at <= now)?;
        self.unacknowledged = 0;
        let multicast_frames = std::mem::take(&mut self.multicast_frames);
        let mut runs: Vec<[u16; 2]> = Vec::new();
        let mut at = self.next;
        for seq in self.frames.keys() {
            let is_full = runs.len() == RUNS_MAX;
            match runs.last_mut() {
                Some([_, came]) if at == *seq => *came += 1,
                _ if is_full => break,
                _ => runs.push([(seq - at) as u16, 1]),
            }
            at = seq + 1;
        }
        if runs.len() < RUNS_MAX && at < self.end {
            runs.push([(self.end - at) as u16, 0]);
        }
        Some(Message::LinkAck { link: self.link, next: self.next, multicast_frames, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn ack(arrivals: &mut Arrivals, ms: u64) -> Option<(u64, u32, Vec<[u16; 2]>)> {
        match arrivals.poll(at(ms))? {
            Message::LinkAck { link: 3, next, multicast_frames, runs } => {
                Some((next, multicast_frames, runs))
            }
            message => panic!("{message:?}"),
        }
    }

    fn takes(arrivals: &mut Arrivals, ms: u64) -> usize {
        std::iter::from_fn(|| arrivals.take(at(ms))).count()
    }

    fn comes(arrivals: &mut Arrivals, ms: u64, seqs: &[u64]) {
        seqs.iter().for_each(|seq| arrivals.on_frame(at(ms), *seq, Bytes::new(), true));
    }

    #[test]
    fn frames_are_taken_in_order_and_acknowledged() {
        let mut arrivals = Arrivals::new(3, 10, 4);
        comes(&mut arrivals, 0, &[10, 11]);
        assert_eq!((takes(&mut arrivals, 0), ack(&mut arrivals, 0)), (2, None));
        assert_eq!(ack(&mut arrivals, 2), Some((12, 2, vec![])));
        comes(&mut arrivals, 3, &[13, 12, 14, 15]);
        assert_eq!(takes(&mut arrivals, 3), 4);
        assert_eq!(ack(&mut arrivals, 3), Some((16, 4, vec![])), "the pace is 4");
        comes(&mut arrivals, 4, &[18, 19, 22, 19]);
        assert_eq!((takes(&mut arrivals, 4), ack(&mut arrivals, 5)), (0, None));
        assert_eq!(ack(&mut arrivals, 6), Some((16, 3, vec![[2, 2], [2, 1]])));
        arrivals.on_mark(at(7), 25, 4);
        assert_eq!(ack(&mut arrivals, 8), Some((16, 0, vec![[2, 2], [2, 1], [2, 0]])));
        arrivals.on_frame(at(8), 16, Bytes::new(), false);
        assert_eq!(takes(&mut arrivals, 8), 1);
        assert_eq!(ack(&mut arrivals, 10), Some((17, 0, vec![[1, 2], [2, 1], [2, 0]])));
    }

    #[test]
    fn a_packet_is_made_of_its_frames() {
        let mut arrivals = Arrivals::new(3, 0, 4);
        let frames: [&[u8]; 6] = [b"\0one", b"\x01tw", b"\x01o, ", b"", b"\0too", b"\x01th"];
        for (seq, frame) in frames.into_iter().enumerate() {
            arrivals.on_frame(at(0), seq as u64, Bytes::from_static(frame), true);
        }
        let all: Vec<Bytes> = std::iter::from_fn(|| arrivals.take_packet(at(0))).collect();
        assert_eq!(all, [&b"one"[..], b"two, too"]);
        let long = Bytes::from(vec![1; PACKET_BYTES_MAX + 1]);
        (6..8).for_each(|seq| arrivals.on_frame(at(0), seq, long.clone(), true));
        assert!(arrivals.take_packet(at(0)).is_some(), "it does not grow without bound");
    }

    #[test]
    fn frames_from_far_ahead_change_nothing() {
        let mut arrivals = Arrivals::new(3, 10, 2);
        comes(&mut arrivals, 0, &[u64::MAX, 10 + FRAMES_MAX as u64, 9]);
        assert_eq!((takes(&mut arrivals, 99), ack(&mut arrivals, 99)), (0, None));
        let every_second: Vec<u64> = (11..10 + FRAMES_MAX as u64).step_by(2).collect();
        comes(&mut arrivals, 99, &every_second);
        assert_eq!(ack(&mut arrivals, 199), Some((10, 512, vec![[1, 1]; RUNS_MAX])));
    }
}
