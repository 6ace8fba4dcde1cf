//! Batch of outgoing packets, consecutive in one buffer. A *run* is a sequence of packets of one
//! length (the last may be shorter) to one destination, sent as one large packet that the kernel or
//! the network card splits (UDP GSO). Packets to several destinations are sent by `sendmmsg`.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use faircast_base::{Duration, Time};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg, sendmsg,
};

use crate::counters::Sent;
use crate::socket::{Health, Sockets, Way};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Group(usize),
    Address(usize, SocketAddr),
}

impl Route {
    const fn is_group(self) -> bool {
        matches!(self, Self::Group(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    All,
    /// The rest waits until the way with this index is writable.
    WhenWritable(usize),
    At(Time),
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// First run that is not fully sent, and number of its messages that are sent.
    run: usize,
    message: usize,
    /// Longest packet within a large packet; 0 if the kernel or network card rejects large packets.
    segment_max: usize,
    /// True to join no packets: a path loses joined ones.
    singly: bool,
    refused_since: Option<Time>,
    groups: Vec<Vec<(usize, SockaddrStorage)>>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    route: Route,
    hops: u8,
    start: usize,
    len: usize,
    segment: usize,
    packets: usize,
    /// True after a shorter packet, which must be the last.
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(sockets: &Sockets) -> Self {
        Self {
            bytes: Vec::with_capacity(BATCH_BYTES + 65_536),
            segment_max: if sockets.settings.offload { usize::MAX } else { 0 },
            groups: sockets
                .groups
                .iter()
                .map(|group| group.destinations.iter().map(|&(way, to)| (way, to.into())).collect())
                .collect(),
            ..Self::default()
        }
    }

    pub(crate) fn retarget(&mut self, old: SocketAddr, new: SocketAddr) {
        let all = self.groups.first_mut().into_iter().flatten();
        let old = SockaddrStorage::from(old);
        all.filter(|(_, to)| *to == old).for_each(|(_, to)| *to = new.into());
    }

    pub(crate) fn is_full(&self) -> bool {
        // Two large packets, without the start of a third.
        let segment = self.runs.last().map_or(0, |run| run.segment);
        self.bytes.len() + 2 * segment >= BATCH_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn push(&mut self, route: Route, hops: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        if let Some(run) = self.runs.last_mut()
            && run.route == route
            && run.hops == hops
            && !run.closed
            && len <= run.segment
            && len > 0
            && run.segment <= self.segment_max
            && !self.singly
            && run.packets < SEGMENTS_MAX
            && run.len + len <= SUPER_PACKET_MAX
        {
            run.closed = len < run.segment;
            run.len += len;
            run.packets += 1;
        } else {
            let run = Run { route, hops, start, len, segment: len, packets: 1, closed: len == 0 };
            self.runs.push(run);
        }
    }

    pub(crate) fn flush(&mut self, now: Time, sockets: &mut Sockets, sent: &mut Sent) -> Flushed {
        while let Some(&run) = self.runs.get(self.run) {
            if self.messages(&run) == 0 {
                sent.unaddressed += run.packets as u64;
                self.next_run();
                continue;
            }
            let (way, _) = self.destination(&run, self.message);
            let to_all = run.route.is_group();
            if to_all && sockets.ways[way].health == Health::Down {
                self.skip_message(&run, sent);
                continue;
            }
            // A unicast answer never waits: its request may be forged; a real receiver asks again.
            let waits = !sockets.is_source || to_all;
            let outcome = self.send_some(&run, sockets, sent);
            // At a source an unreachable single host says nothing about this host's network.
            let counts = waits || outcome.is_ok();
            if counts && (sockets.down_since.is_some() || outcome.is_err()) {
                sockets.note_sent(now, way, outcome.err());
            }
            if let Route::Address(way, to) = run.route {
                sockets.note_unicast(now, (way, to), outcome.err());
            }
            match outcome {
                Ok(()) if to_all => sockets.use_again(way),
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if waits || sockets.ways[way].answers.is_none() => {
                    sent.waits += 1;
                    return Flushed::WhenWritable(way);
                }
                Err(Errno::ENOBUFS | Errno::ENOMEM) if waits => {
                    // The interface's queue is full, for which there is no readiness event.
                    sent.waits += 1;
                    return Flushed::At(now + QUEUE_PAUSE);
                }
                Err(error) => {
                    sent.failures += 1;
                    let is_skipped = to_all && sockets.skip_interface(way, error);
                    if !is_skipped && run.packets > 1 && self.shorten(&run, error) {
                        continue;
                    }
                    let is_temporary = sockets.is_temporary(way, error);
                    if waits
                        && is_temporary
                        && let Some(at) = self.retry(now, &run)
                    {
                        return Flushed::At(at);
                    }
                    self.skip_message(&run, sent);
                }
            }
        }
        self.bytes.clear();
        self.runs.clear();
        (self.run, self.message, self.refused_since) = (0, 0, None);
        Flushed::All
    }

    fn next_run(&mut self) {
        self.run += 1;
        (self.message, self.refused_since) = (0, None);
    }

    fn shorten(&mut self, run: &Run, error: Errno) -> bool {
        match error {
            // The network card computes no checksums, so no packet can be split.
            Errno::EIO | Errno::EOPNOTSUPP => self.segment_max = 0,
            // Too long for the path.
            Errno::EINVAL | Errno::EMSGSIZE => self.segment_max = run.segment - 1,
            _ => return false,
        }
        self.split_runs();
        true
    }

    pub(crate) fn send_singly(&mut self, singly: bool) -> bool {
        std::mem::replace(&mut self.singly, singly) != singly && self.segment_max > 0
    }

    /// Allows large packets again: the refusal may have had another reason, such as a lost address.
    pub(crate) fn allow_large(&mut self) {
        if self.segment_max > 0 {
            self.segment_max = usize::MAX;
        }
    }

    fn split_runs(&mut self) {
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in self.runs.drain(self.run..) {
            if run.segment <= self.segment_max || run.packets == 1 {
                runs.push(run);
                continue;
            }
            let end = run.start + run.len;
            for start in (run.start..end).step_by(run.segment) {
                let len = run.segment.min(end - start);
                runs.push(Run { start, len, segment: len, packets: 1, closed: false, ..run });
            }
        }
        // A part of a list may get the first run twice, which every protocol must tolerate.
        self.message = 0;
        self.run = 0;
        self.runs = runs;
    }

    /// Returns when to retry. `None` after [`OUTAGE_MAX`] or if one of several receivers fails.
    fn retry(&mut self, now: Time, run: &Run) -> Option<Time> {
        if self.messages(run) > 1 {
            return None;
        }
        let since = *self.refused_since.get_or_insert(now);
        (now.since(since) < OUTAGE_MAX).then(|| now + REFUSAL_PAUSE)
    }

    fn skip_message(&mut self, run: &Run, sent: &mut Sent) {
        sent.unsent += run.packets as u64;
        self.next_message(run);
    }

    fn next_message(&mut self, run: &Run) {
        self.message += 1;
        if self.message >= self.messages(run) {
            self.next_run();
        }
    }

    fn send_some(
        &mut self,
        run: &Run,
        sockets: &mut Sockets,
        sent: &mut Sent,
    ) -> Result<(), Errno> {
        let (way, address) = self.destination(run, self.message);
        let of = &mut sockets.ways[way];
        if run.hops != of.hops && run.route.is_group() {
            let raw = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
            of.set_hops(run.hops).map_err(|error| Errno::from_raw(raw(error)))?;
        }
        sent.calls += 1;
        let socket = |run: &Run, way: &Way| match run.route {
            Route::Group(_) => way.socket.as_raw_fd(),
            Route::Address(..) => way.answers.as_ref().unwrap_or(&way.socket).as_raw_fd(),
        };
        let fd = socket(run, of);
        if run.packets > 1 {
            let slice = [IoSlice::new(&self.bytes[run.start..run.start + run.len])];
            let segment = u16::try_from(run.segment).map_err(|_| Errno::EMSGSIZE)?;
            let cut = [ControlMessage::UdpGsoSegments(&segment)];
            sendmsg(fd, &slice, &cut, MsgFlags::empty(), Some(&address))?;
            sent.segmented += run.packets as u64;
            self.note_sent(1, sent);
            return Ok(());
        }
        let (mut slices, mut to) = (Vec::new(), Vec::new());
        let mut message = self.message;
        'batch: for run in self.runs[self.run..].iter().take_while(|other| {
            let hops = other.hops == run.hops || !other.route.is_group();
            other.packets == 1 && hops
        }) {
            let bytes = &self.bytes[run.start..run.start + run.len];
            for message in message..self.messages(run) {
                let (way, address) = self.destination(run, message);
                if slices.len() == MESSAGES_MAX || socket(run, &sockets.ways[way]) != fd {
                    break 'batch;
                }
                slices.push([IoSlice::new(bytes)]);
                to.push(Some(address));
            }
            message = 0;
        }
        let count = if let [slice] = &slices[..] {
            sendmsg(fd, slice, &[], MsgFlags::empty(), Some(&address))?;
            1
        } else {
            let mut headers = MultiHeaders::preallocate(slices.len(), None);
            sendmmsg(fd, &mut headers, &slices, &to, [], MsgFlags::empty())?.count()
        };
        self.note_sent(count, sent);
        Ok(())
    }

    fn note_sent(&mut self, count: usize, sent: &mut Sent) {
        self.refused_since = None;
        for _ in 0..count {
            let Some(&run) = self.runs.get(self.run) else { return };
            sent.datagrams += run.packets as u64;
            sent.bytes += run.len as u64;
            self.next_message(&run);
        }
    }

    fn destination(&self, run: &Run, message: usize) -> (usize, SockaddrStorage) {
        match run.route {
            Route::Group(group) => self.groups[group][message],
            Route::Address(way, to) => (way, to.into()),
        }
    }

    fn messages(&self, run: &Run) -> usize {
        match run.route {
            Route::Group(group) => self.groups[group].len(),
            Route::Address(..) => 1,
        }
    }
}

/// Bytes in a batch: enough to justify a system call, few enough for the cache.
const BATCH_BYTES: usize = 2 * SUPER_PACKET_MAX;

/// Most packets in a large packet: UDP_MAX_SEGMENTS of kernels before 6.9.
const SEGMENTS_MAX: usize = 64;

/// Most bytes in a large packet: the limit of an IPv4 packet.
const SUPER_PACKET_MAX: usize = 65_507;

const MESSAGES_MAX: usize = 64;

const QUEUE_PAUSE: Duration = Duration::from_micros(500);

const REFUSAL_PAUSE: Duration = Duration::from_millis(50);

/// Longest outage before waiting packets are dropped; receivers request what they still need.
const OUTAGE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
