//! Multicast link of a relay: a window for each host, retention of frames, and repairs.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use faircast_base::{Duration, Time};
use faircast_proto::relay::PortId;

/// Maximum number of frames from the first one that a host lacks to the last one sent.
pub(crate) const FRAMES_MAX: usize = 1024;
/// Initial window (src: RFC 6928 s2), and least window after a loss (src: RFC 5681 s3.1).
const WINDOW_INITIAL: f64 = 10.0;
const WINDOW_MIN: f64 = 2.0;
/// Time to collect reports of one loss from several hosts: 5 ms.
const COLLECT: Duration = Duration::from_millis(5);
/// Silence on a link after which hosts receive the number of the last frame: 50 ms.
const MARK: Duration = Duration::from_millis(50);
/// Longest time without progress of a host, or without multicast, before the host leaves: 3 s.
const STALLED: Duration = Duration::from_secs(3);
/// Number of frames of which a host with working multicast receives at least one.
const UNHEARD_FRAMES_MAX: u64 = 10;
const PACE_MAX: usize = 128;

/// Window of a host in frames: TCP congestion control (src: RFC 5681) with selective
/// acknowledgements. Frames reported missing are in flight, since all of them are retransmitted.
#[derive(Debug)]
struct Window {
    /// Number of the first frame that the host lacks, and number after the last reported one.
    next: u64,
    end: u64,
    /// Ranges of missing frames: the first of each range, and the number after its last.
    missing: Vec<(u64, u64)>,
    size: f64,
    threshold: f64,
    /// Losses before this frame belong to the last reduction.
    recover: u64,
}

impl Window {
    const fn new(next: u64) -> Self {
        let (size, threshold) = (WINDOW_INITIAL, FRAMES_MAX as f64);
        Self { next, end: next, missing: Vec::new(), size, threshold, recover: next }
    }

    fn missing(&self) -> u64 {
        self.missing.iter().map(|(first, after)| after - first).sum()
    }

    fn in_flight(&self, sent: u64) -> u64 {
        sent - self.end + self.missing()
    }

    fn has_room(&self, sent: u64) -> bool {
        (self.in_flight(sent) as f64) < self.size && sent - self.next < FRAMES_MAX as u64
    }

    /// The window grows with received frames, but not between a loss and the report of a frame sent
    /// after the loss was known. Frames beyond `sent` are ignored.
    fn on_ack(&mut self, sent: u64, next: u64, runs: &[[u16; 2]]) {
        let next = next.min(sent).max(self.next);
        let (before, in_flight) = (self.end - self.missing(), self.in_flight(sent));
        let recovers = self.end < self.recover;
        (self.next, self.end) = (next, next);
        self.missing.clear();
        for [missing, came] in runs.iter().map(|run| run.map(u64::from)) {
            let after = (self.end + missing).min(sent);
            if self.end < after {
                self.missing.push((self.end, after));
            }
            self.end = (after + came).min(sent);
        }
        if !recovers && in_flight as f64 * 2.0 >= self.size {
            let came = (self.end - self.missing()).saturating_sub(before) as f64;
            let is_slow_start = self.size < self.threshold;
            self.size += if is_slow_start { came } else { came / self.size };
            self.size = self.size.min(FRAMES_MAX as f64);
        }
        if self.missing.last().is_some_and(|(_, after)| *after > self.recover) {
            self.threshold = (self.size / 2.0).max(WINDOW_MIN);
            (self.size, self.recover) = (self.threshold, sent);
        }
    }
}

#[derive(Debug)]
struct Host {
    window: Window,
    /// True if the last report has gaps that no repair has answered.
    has_new_gaps: bool,
    /// Time of the last progress, or of the first frame after the host had all frames.
    progress_at: Time,
    /// First frame sent after the host's last multicast reception, and its send time.
    unheard_since: Option<(u64, Time)>,
    rtt: Duration,
}

#[derive(Debug)]
struct Frame {
    bytes: Bytes,
    repaired_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepairTo {
    All,
    One(PortId),
}

#[derive(Debug)]
pub(crate) struct MulticastLink {
    pub(crate) group: u64,
    pub(crate) network: u16,
    /// Frames not acknowledged by all hosts, and the number of the first.
    frames: VecDeque<Frame>,
    first: u64,
    hosts: BTreeMap<PortId, Host>,
    announced_pace: u16,
    repairs_at: Option<Time>,
    /// Time at which hosts that lack frames receive the number of the last one.
    mark_at: Option<Time>,
}

#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) repairs: Vec<(u64, Bytes, RepairTo)>,
    pub(crate) marks: Vec<PortId>,
    pub(crate) stalled: Vec<PortId>,
}

impl MulticastLink {
    pub(crate) fn new(group: u64, network: u16) -> Self {
        fresh! {
            Self { group, network, announced_pace: 2, }
            frames, first, hosts, repairs_at, mark_at
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// Returns the frames that a host acknowledges together: one acknowledgement per frame in all.
    pub(crate) fn pace(&self) -> u16 {
        self.hosts.len().clamp(2, PACE_MAX) as u16
    }

    pub(crate) fn changes_pace(&mut self) -> bool {
        let (pace, announced_pace) = (self.pace(), self.announced_pace);
        let changes = pace >= announced_pace * 2 || pace * 2 <= announced_pace;
        self.announced_pace = if changes { pace } else { announced_pace };
        changes
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = PortId> {
        self.hosts.keys().copied()
    }

    pub(crate) fn slowest(&self) -> Option<PortId> {
        self.hosts.iter().min_by_key(|(_, host)| host.window.next).map(|(port, _)| *port)
    }

    pub(crate) fn join(&mut self, now: Time, port: PortId) {
        let (window, rtt) = (Window::new(self.sent()), Duration::ZERO);
        let host = Host { window, has_new_gaps: false, progress_at: now, unheard_since: None, rtt };
        self.hosts.insert(port, host);
    }

    pub(crate) fn leave(&mut self, port: PortId) {
        self.hosts.remove(&port);
        self.forget();
    }

    fn forget(&mut self) {
        let next = self.hosts.values().map(|host| host.window.next).min();
        let next = next.unwrap_or(self.sent());
        self.frames.drain(..(next - self.first) as usize);
        self.first = next;
    }

    pub(crate) fn has_room(&self) -> bool {
        let sent = self.sent();
        self.hosts.values().all(|host| host.window.has_room(sent))
    }

    pub(crate) fn takes(&self, frames: usize) -> bool {
        self.frames.len() + frames <= FRAMES_MAX
    }

    pub(crate) fn send(&mut self, now: Time, bytes: Bytes) -> u64 {
        let seq = self.sent();
        for host in self.hosts.values_mut() {
            if host.window.next == seq {
                host.progress_at = now;
            }
            host.unheard_since.get_or_insert((seq, now));
        }
        self.frames.push_back(Frame { bytes, repaired_at: None });
        self.mark_at = Some(now + MARK);
        seq
    }

    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        port: PortId,
        (next, multicast_frames, runs): (u64, u32, &[[u16; 2]]),
        rtt: Duration,
    ) -> bool {
        let sent = self.sent();
        let Some(host) = self.hosts.get_mut(&port) else { return true };
        let before = host.window.next;
        host.window.on_ack(sent, next, runs);
        if host.window.next > before {
            host.progress_at = now;
        }
        if multicast_frames > 0 {
            host.unheard_since = None;
        }
        host.rtt = rtt;
        host.has_new_gaps = !host.window.missing.is_empty();
        if host.has_new_gaps {
            self.repairs_at.get_or_insert(now + COLLECT);
        }
        if before == self.first {
            self.forget();
        }
        next <= sent
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) -> Due {
        let mut due = Due::default();
        let sent = self.sent();
        if self.repairs_at.take_if(|at| *at <= now).is_some() {
            due.repairs = self.repairs(now);
        }
        if self.mark_at.take_if(|at| *at <= now).is_some() {
            let lacking = self.hosts.iter().filter(|(_, host)| host.window.next < sent);
            due.marks = lacking.map(|(port, _)| *port).collect();
            self.mark_at = (!due.marks.is_empty()).then_some(now + MARK);
        }
        let is_deaf = |&(seq, since): &(u64, Time)| {
            sent - seq >= UNHEARD_FRAMES_MAX && now.since(since) >= STALLED
        };
        let stalled = self.hosts.iter().filter(|(_, host)| {
            let waits = host.window.next < sent && now.since(host.progress_at) >= STALLED;
            waits || host.unheard_since.as_ref().is_some_and(is_deaf)
        });
        due.stalled = stalled.map(|(port, _)| *port).collect();
        due
    }

    fn repairs(&mut self, now: Time) -> Vec<(u64, Bytes, RepairTo)> {
        let Self { frames, first, hosts, .. } = self;
        let mut lacking: BTreeMap<u64, RepairTo> = BTreeMap::new();
        for (port, host) in hosts {
            if !std::mem::take(&mut host.has_new_gaps) {
                continue;
            }
            // The report is older than the arrival of the last repair.
            let is_old = |at: Time| now.since(at) < host.rtt + COLLECT * 2;
            // At most one window: otherwise a lying host could make the relay flood a network.
            let lost = host.window.missing.iter().flat_map(|(first, after)| *first..*after);
            for seq in lost.take(host.window.size as usize) {
                if !frames[(seq - *first) as usize].repaired_at.is_some_and(is_old) {
                    let to = lacking.entry(seq);
                    to.and_modify(|to| *to = RepairTo::All).or_insert(RepairTo::One(*port));
                }
            }
        }
        if !lacking.is_empty() {
            self.mark_at = Some(now + MARK);
        }
        let repair = |(seq, to)| {
            let frame = &mut frames[(seq - *first) as usize];
            frame.repaired_at = Some(now);
            (seq, frame.bytes.clone(), to)
        };
        lacking.into_iter().map(repair).collect()
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.repairs_at.into_iter().chain(self.mark_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);
    const A: PortId = PortId(1);
    const B: PortId = PortId(2);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn link(frames: u64) -> MulticastLink {
        let mut link = MulticastLink::new(7, 0);
        [A, B].into_iter().for_each(|port| link.join(at(0), port));
        (0..frames).for_each(|seq| assert_eq!(link.send(at(0), Bytes::new()), seq));
        link
    }

    fn repairs(link: &mut MulticastLink, ms: u64) -> Vec<(u64, RepairTo)> {
        let due = link.handle_timeout(at(ms));
        due.repairs.into_iter().map(|(seq, _, to)| (seq, to)).collect()
    }

    #[test]
    fn a_window_grows_and_shrinks_as_that_of_tcp() {
        type Step<'a> = (u64, u64, &'a [[u16; 2]], f64, u64);
        let steps: &[Step<'_>] = &[
            // Slow start; an unused window does not grow.
            (10, 2, &[], 12.0, 8),
            (14, 14, &[], 24.0, 0),
            (16, 16, &[], 24.0, 0),
            // One reduction per round trip: losses before frame 40 belong together.
            (40, 20, &[[1, 4]], 16.0, 16),
            (40, 20, &[[1, 4], [2, 3]], 16.0, 13),
            (40, 40, &[], 16.0, 0),
            // Congestion avoidance.
            (56, 48, &[], 16.5, 8),
            (56, 52, &[[2, 0]], 8.25, 4),
            (56, 53, &[[900, 900]], 8.25, 3),
            (56, 99, &[], 8.25, 0),
        ];
        let mut window = Window::new(0);
        for (sent, next, runs, size, in_flight) in steps {
            window.on_ack(*sent, *next, runs);
            let is = (window.size, window.in_flight(*sent));
            assert_eq!(is, (*size, *in_flight), "{sent} {next} {runs:?}");
        }
        (1..9).for_each(|i| window.on_ack(90 + 10 * i, 90, &[[10 * i as u16, 0]]));
        assert_eq!(window.size, WINDOW_MIN);
    }

    #[test]
    fn one_host_gets_a_repair_alone_and_several_get_it_together() {
        let mut link = link(10);
        assert!(link.on_ack(at(10), A, (2, 5, &[[2, 3]]), RTT));
        assert_eq!(repairs(&mut link, 10), []);
        assert!(link.on_ack(at(14), B, (3, 5, &[[1, 3]]), RTT));
        assert_eq!(repairs(&mut link, 15), [(2, RepairTo::One(A)), (3, RepairTo::All)]);
        assert!(link.on_ack(at(20), A, (2, 0, &[[2, 3]]), RTT));
        assert_eq!(repairs(&mut link, 25), []);
        assert!(link.on_ack(at(40), A, (3, 0, &[[1, 3]]), RTT));
        assert_eq!(repairs(&mut link, 45), [(3, RepairTo::One(A))]);
        assert!(
            link.on_ack(at(50), A, (10, 0, &[]), RTT) && link.on_ack(at(50), B, (9, 0, &[]), RTT)
        );
        assert_eq!((link.first, link.frames.len()), (9, 1));
        assert!(!link.on_ack(at(50), A, (11, 0, &[]), RTT), "frame 10 was not sent");
    }

    #[test]
    fn a_window_limits_what_is_sent_again() {
        let mut link = link(40);
        for (ms, frames) in [(10, 5), (30, 5), (100, 5), (101, 0)] {
            [A, B]
                .into_iter()
                .for_each(|port| _ = link.on_ack(at(ms), port, (0, 0, &[[40, 0]]), RTT));
            assert_eq!(
                repairs(&mut link, ms + 5),
                (0..frames).map(|it| (it, RepairTo::All)).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn the_tail_is_marked_and_a_silent_host_leaves() {
        let mut link = link(10);
        link.on_ack(at(10), A, (10, 10, &[]), RTT);
        assert!(!link.has_room(), "B has acknowledged nothing");
        assert_eq!(link.handle_timeout(at(49)).marks, []);
        assert_eq!(link.handle_timeout(at(50)).marks, [B]);
        assert_eq!(link.handle_timeout(at(2999)).stalled, []);
        assert_eq!(link.handle_timeout(at(3000)).stalled, [B]);
        link.leave(B);
        assert!(link.has_room() && link.frames.is_empty());
        assert_eq!(link.handle_timeout(at(9000)).marks, []);
    }

    #[test]
    fn a_host_that_gets_repairs_alone_leaves() {
        let mut link = link(5);
        for ms in (100..=3000).step_by(100) {
            let sent = link.sent();
            link.on_ack(at(ms), A, (sent, 1, &[]), RTT);
            link.on_ack(at(ms), B, (sent, 0, &[]), RTT);
            link.send(at(ms), Bytes::new());
            let stalled = link.handle_timeout(at(ms)).stalled;
            assert_eq!(stalled, if ms < 3000 { vec![] } else { vec![B] }, "{ms}");
        }
    }

    #[test]
    fn a_full_link_takes_no_frame() {
        let mut link = link(FRAMES_MAX as u64 - 1);
        assert!(link.takes(1) && !link.takes(2));
        link.send(at(0), Bytes::new());
        link.on_ack(at(1), A, (1, 1, &[]), RTT);
        assert!(!link.takes(1), "B lacks the first");
        link.on_ack(at(1), B, (1, 1, &[]), RTT);
        assert!(link.takes(1));
    }
}
