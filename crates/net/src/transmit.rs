//! The batch of packets that waits to leave, and how it leaves.
//!
//! Packets are written one behind the other into one buffer. Consecutive packets for one
//! destination that are of one length (the last may be shorter) are a *run*, and leave as one large
//! packet that the kernel or the network card cuts (UDP GSO); what goes to many destinations leaves
//! by `sendmmsg`.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use faircast_base::{Duration, Time};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg, sendmsg,
};

use crate::counters::Sent;
use crate::socket::{Health, Sockets, Way, passes};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To all of the target.
    Receivers,
    /// To one address, by this way.
    Address(usize, SocketAddr),
}

/// How sending went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// All has left, or was dropped and counted.
    All,
    /// The buffer of this way's socket is full: go on when it can be written.
    WhenWritable(usize),
    /// The system refuses for now: go on at this moment.
    At(Time),
}

/// Packets that wait.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The first run that has not left whole, and how many of its messages have.
    run: usize,
    message: usize,
    /// Longest packet that may leave within a larger one; 0 where the kernel or the network card
    /// refuses all.
    segment_max: usize,
    /// Since when the system has refused what is first.
    refused: Option<Time>,
    /// By which way, and where, packets to the target go.
    broadcast: Vec<(usize, SockaddrStorage)>,
}

/// Packets that can leave together.
#[derive(Clone, Copy, Debug)]
struct Run {
    route: Route,
    hops: u8,
    start: usize,
    len: usize,
    /// Bytes of every packet but the last.
    segment: usize,
    packets: usize,
    /// Whether a shorter packet has ended it.
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(sockets: &Sockets) -> Self {
        Self {
            bytes: Vec::with_capacity(BATCH_BYTES + 65_536),
            runs: Vec::new(),
            run: 0,
            message: 0,
            segment_max: if sockets.settings.offload { usize::MAX } else { 0 },
            refused: None,
            broadcast: sockets.destinations.iter().map(|&(way, to)| (way, to.into())).collect(),
        }
    }

    /// Whether it is time to send what waits before more is added.
    pub(crate) fn is_full(&self) -> bool {
        // Two large packets, and not the beginning of a third.
        let segment = self.runs.last().map_or(0, |run| run.segment);
        self.bytes.len() + 2 * segment >= BATCH_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds a packet, which `write` appends to the buffer.
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

    /// Sends what waits, as far as the system takes it.
    pub(crate) fn flush(&mut self, now: Time, sockets: &mut Sockets, sent: &mut Sent) -> Flushed {
        while let Some(&run) = self.runs.get(self.run) {
            if self.messages(&run) == 0 {
                sent.unaddressed += run.packets as u64;
                self.next_run();
                continue;
            }
            let (way, _) = self.destination(&run, self.message);
            let to_all = run.route == Route::Receivers;
            if to_all && sockets.ways[way].health == Health::Down {
                self.skip_message(&run, sent);
                continue;
            }
            // Nothing waits for the way to one host: anybody can ask in a name that nobody bears, and
            // who is there asks again.
            let waits = !sockets.is_source || to_all;
            match self.send_some(&run, sockets, sent) {
                Ok(()) if to_all => sockets.use_again(way),
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if waits || !sockets.ways[way].has_own_for_one() => {
                    sent.waits += 1;
                    return Flushed::WhenWritable(way);
                }
                Err(Errno::ENOBUFS | Errno::ENOMEM) if waits => {
                    // The interface's queue is full, which no readiness tells of.
                    sent.waits += 1;
                    return Flushed::At(now + QUEUE_PAUSE);
                }
                Err(error) => {
                    sent.failures += 1;
                    let out = to_all && sockets.leave_out(way, error);
                    if !out && run.packets > 1 && self.shorten(&run, error) {
                        continue;
                    }
                    if waits && let Some(at) = self.retry(now, &run, error) {
                        return Flushed::At(at);
                    }
                    self.skip_message(&run, sent);
                }
            }
        }
        self.bytes.clear();
        self.runs.clear();
        (self.run, self.message, self.refused) = (0, 0, None);
        Flushed::All
    }

    fn next_run(&mut self) {
        self.run += 1;
        (self.message, self.refused) = (0, None);
    }

    /// The system does not cut this large packet: it will get the packets one by one. Whether that
    /// is a reason.
    fn shorten(&mut self, run: &Run, error: Errno) -> bool {
        match error {
            // The network card computes no checksums, so nothing can be cut.
            Errno::EIO | Errno::EOPNOTSUPP => self.segment_max = 0,
            // Too long for the path.
            Errno::EINVAL | Errno::EMSGSIZE => self.segment_max = run.segment - 1,
            _ => return false,
        }
        self.split_runs();
        true
    }

    /// Takes runs that are no longer allowed apart.
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
        // What left of the first run as a large packet has left to some of a list; they get it
        // again, which every protocol must bear.
        self.message = 0;
        self.run = 0;
        self.runs = runs;
    }

    /// Until when to wait where the network is down; `None` where that has lasted too long, or
    /// where only one of several receivers is concerned.
    fn retry(&mut self, now: Time, run: &Run, error: Errno) -> Option<Time> {
        if self.messages(run) > 1 || !passes(error) {
            return None;
        }
        let since = *self.refused.get_or_insert(now);
        (now.since(since) < REFUSAL_PATIENCE).then(|| now + REFUSAL_PAUSE)
    }

    /// Drops what the system refuses.
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

    /// One system call, beginning with the first message of `run` that has not left.
    fn send_some(
        &mut self,
        run: &Run,
        sockets: &mut Sockets,
        sent: &mut Sent,
    ) -> Result<(), Errno> {
        let (way, address) = self.destination(run, self.message);
        let of = &mut sockets.ways[way];
        if run.hops != of.hops() && run.route == Route::Receivers {
            of.set_hops(run.hops).map_err(errno)?;
        }
        sent.calls += 1;
        let socket = |run: &Run, way: &Way| match run.route {
            Route::Receivers => way.socket.as_raw_fd(),
            Route::Address(..) => way.for_one().as_raw_fd(),
        };
        let fd = socket(run, of);
        if run.packets > 1 {
            let slice = [IoSlice::new(&self.bytes[run.start..run.start + run.len])];
            let segment = u16::try_from(run.segment).map_err(|_| Errno::EMSGSIZE)?;
            let cut = [ControlMessage::UdpGsoSegments(&segment)];
            sendmsg(fd, &slice, &cut, MsgFlags::empty(), Some(&address))?;
            sent.segmented += run.packets as u64;
            self.left(1, sent);
            return Ok(());
        }
        let (mut slices, mut to) = (Vec::new(), Vec::new());
        let mut message = self.message;
        'batch: for run in self.runs[self.run..].iter().take_while(|other| {
            let hops = other.hops == run.hops || other.route != Route::Receivers;
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
        self.left(count, sent);
        Ok(())
    }

    /// `count` more messages have left.
    fn left(&mut self, count: usize, sent: &mut Sent) {
        self.refused = None;
        for _ in 0..count {
            let Some(&run) = self.runs.get(self.run) else { return };
            sent.datagrams += run.packets as u64;
            sent.bytes += run.len as u64;
            self.next_message(&run);
        }
    }

    /// By which way, and where, a message of a run goes.
    fn destination(&self, run: &Run, message: usize) -> (usize, SockaddrStorage) {
        match run.route {
            Route::Receivers => self.broadcast[message],
            Route::Address(way, to) => (way, to.into()),
        }
    }

    /// How many messages a run is: one for each of its destinations.
    fn messages(&self, run: &Run) -> usize {
        match run.route {
            Route::Receivers => self.broadcast.len(),
            Route::Address(..) => 1,
        }
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Bytes that are gathered before they are sent: enough to pay for the calls, few enough to stay in
/// the processor's cache.
const BATCH_BYTES: usize = 2 * SUPER_PACKET_MAX;

/// Most packets in a large packet: UDP_MAX_SEGMENTS of kernels before 6.9.
const SEGMENTS_MAX: usize = 64;

/// Most bytes in a large packet: what an IPv4 packet holds.
const SUPER_PACKET_MAX: usize = 65_507;

/// Most messages in a call of `sendmmsg`.
const MESSAGES_MAX: usize = 64;

/// How long to wait where the interface's queue is full.
const QUEUE_PAUSE: Duration = Duration::from_micros(500);

/// How long to wait where the network is down.
const REFUSAL_PAUSE: Duration = Duration::from_millis(50);

/// How long the network may be down before what waits is dropped. Whoever needs it will ask for it;
/// and what is sent after the network is back should not be as old as the outage.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SocketSettings, Target};
    use std::net::UdpSocket;

    /// A source for so many receivers on this host, and those.
    fn ends(receivers: usize) -> (Sockets, Vec<UdpSocket>) {
        let sockets: Vec<_> =
            (0..receivers).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for socket in &sockets {
            socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        }
        let target = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let settings = SocketSettings { port: Some(0), ..SocketSettings::default() };
        (Sockets::source(Target::Unicast(target), settings).unwrap(), sockets)
    }

    fn arrived(socket: &UdpSocket) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2000];
        let next = || socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec());
        std::iter::from_fn(next).collect()
    }

    /// Packets of these lengths, each filled with its number.
    fn fill(outbox: &mut Outbox, lens: &[usize]) -> Vec<Vec<u8>> {
        let packets: Vec<_> = lens.iter().enumerate().map(|(i, &len)| vec![i as u8; len]).collect();
        for packet in &packets {
            outbox.push(Route::Receivers, 1, |out| out.extend_from_slice(packet));
        }
        packets
    }

    #[test]
    fn packets_of_one_length_leave_together_and_arrive_apart() {
        for (receivers, offload) in [(1, true), (3, true), (1, false), (3, false)] {
            let (mut sockets, others) = ends(receivers);
            sockets.settings.offload = offload;
            let mut outbox = Outbox::new(&sockets);
            // Few enough for the buffers of plain sockets.
            let mut lens = vec![200; 70];
            lens.extend([140, 200, 200, 60, 60]);
            let packets = fill(&mut outbox, &lens);
            let mut sent = Sent::default();
            assert_eq!(outbox.flush(Time::ZERO, &mut sockets, &mut sent), Flushed::All);
            for other in &others {
                assert!(arrived(other) == packets, "{receivers} {offload}");
            }
            assert_eq!(sent.datagrams, 75 * receivers as u64);
            // 64; 6 and a shorter one; two and a shorter one; the last alone.
            let calls = if offload { 4 * receivers as u64 } else { 2 * receivers as u64 };
            assert!(sent.calls <= calls, "{sent:?}");
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn what_the_system_does_not_cut_leaves_packet_by_packet() {
        let (mut sockets, others) = ends(2);
        let mut outbox = Outbox::new(&sockets);
        let packets = fill(&mut outbox, &[500; 10]);
        let first = outbox.runs[0];
        assert_eq!(first.packets, 10);
        assert!(!outbox.shorten(&first, Errno::EPERM), "no reason");
        assert!(outbox.shorten(&first, Errno::EINVAL));
        assert_eq!((outbox.runs.len(), outbox.segment_max), (10, 499));
        let mut sent = Sent::default();
        outbox.flush(Time::ZERO, &mut sockets, &mut sent);
        for other in &others {
            assert_eq!(arrived(other), packets);
        }
        assert_eq!((sent.segmented, sent.calls), (0, 1));
        fill(&mut outbox, &[400; 10]);
        outbox.flush(Time::ZERO, &mut sockets, &mut sent);
        assert_eq!(sent.segmented, 20, "shorter ones may still be cut");
        others.iter().for_each(|other| assert_eq!(arrived(other).len(), 10));
        assert!(outbox.shorten(&first, Errno::EIO));
        fill(&mut outbox, &[400; 10]);
        outbox.flush(Time::ZERO, &mut sockets, &mut sent);
        assert_eq!(sent.segmented, 20, "none after the system has said so");
    }

    #[test]
    fn one_receiver_that_cannot_be_reached_does_not_stop_the_others() {
        let (_, others) = ends(2);
        let there = [0, 1].map(|i| others[i].local_addr().unwrap());
        // Broadcast is refused without permission.
        let refused = "255.255.255.255:9".parse().unwrap();
        let settings = SocketSettings { port: Some(0), ..SocketSettings::default() };
        let target = Target::Unicast(vec![there[0], refused, there[1], there[0]]);
        let mut sockets = Sockets::source(target, settings).unwrap();
        let mut outbox = Outbox::new(&sockets);
        let mut sent = Sent::default();
        for lens in [&[600; 5][..], &[600][..]] {
            let packets = fill(&mut outbox, lens);
            assert_eq!(outbox.flush(Time::ZERO, &mut sockets, &mut sent), Flushed::All);
            others.iter().for_each(|other| assert!(arrived(other) == packets));
        }
        assert_eq!((sent.unsent, sent.failures, sent.datagrams), (6, 2, 12));
    }

    /// In a network namespace of its own, where there is a right to make one: on a link on which
    /// nobody else is.
    #[test]
    fn answers_to_hosts_that_are_not_there_hold_up_no_data() {
        if !nix::unistd::Uid::effective().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let alone = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            for command in [
                "link set lo up",
                "link add e0 type veth peer name e1",
                "addr add 10.9.0.1/16 dev e0",
                "link set e0 up",
                "link set e1 up",
                "route add 224.0.0.0/4 dev e0",
            ] {
                let done = std::process::Command::new("ip").args(command.split(' ')).status();
                assert!(done.unwrap().success(), "{command}");
            }
            let group = "239.192.7.3:7500".parse().unwrap();
            let interface = crate::Interface::Name("e0".into());
            let interfaces = vec![interface];
            let group = crate::Multicast { interfaces, ..crate::Multicast::new(group) };
            let (port, send_buffer) = (Some(0), faircast_base::Bytes::new(65_536));
            let settings = SocketSettings { port, send_buffer, ..SocketSettings::default() };
            let mut sockets = Sockets::source(Target::Multicast(group), settings).unwrap();
            let mut outbox = Outbox::new(&sockets);
            let mut sent = Sent::default();
            for host in 0..2000u16 {
                // The last of them are on no network that is known here.
                let net = if host < 1900 { 9 } else { 10 };
                let [high, low] = host.to_be_bytes();
                let to = SocketAddr::from(([10, net, 100 + high, low], 7500));
                outbox.push(Route::Address(0, to), 1, |out| out.extend_from_slice(&[1; 60]));
                outbox.push(Route::Receivers, 1, |out| out.extend_from_slice(&[2; 100]));
                let flushed = outbox.flush(Time::ZERO, &mut sockets, &mut sent);
                assert_eq!(flushed, Flushed::All, "{host}: {sent:?}");
            }
            assert!(sent.unsent >= 100 && sent.datagrams >= 2000, "{sent:?}");
            assert_eq!(sent.datagrams + sent.unsent, 4000, "{sent:?}");
        });
        alone.join().unwrap();
    }

    #[test]
    fn a_source_hears_what_is_sent_to_the_address_of_its_answers() {
        let group = crate::Multicast::new("239.192.7.3:7500".parse().unwrap());
        let interface = crate::Interface::Address([127, 0, 0, 1].into());
        let group = crate::Multicast { interfaces: vec![interface], ..group };
        let settings = SocketSettings { port: Some(0), ..SocketSettings::default() };
        let sockets = Sockets::source(Target::Multicast(group), settings).unwrap();
        let way = &sockets.ways[0];
        assert!(way.has_own_for_one());
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        other.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let (here, there) = (sockets.local_address(), other.local_addr().unwrap());
        way.for_one().send_to(b"answer", &there.into()).unwrap();
        let mut buffer = [0; 10];
        assert_eq!(other.recv_from(&mut buffer).unwrap(), (6, here), "from the source's own port");
        other.send_to(b"question", here).unwrap();
        way.socket.set_nonblocking(false).unwrap();
        way.socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let node: UdpSocket = sockets.into_parts().0;
        assert_eq!(node.recv(&mut buffer).unwrap(), 8);
        let taken = UdpSocket::bind(here);
        assert!(taken.is_err(), "the port is taken all the same");
    }

    #[test]
    fn while_the_network_is_down_packets_wait_and_after_a_second_they_are_dropped() {
        let (sockets, _others) = ends(1);
        let mut outbox = Outbox::new(&sockets);
        fill(&mut outbox, &[100]);
        let run = outbox.runs[0];
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut retry = |ms, error| outbox.retry(at(ms), &run, error);
        assert_eq!(retry(10, Errno::ENETUNREACH), Some(at(60)));
        assert_eq!(retry(900, Errno::ENETDOWN), Some(at(950)));
        assert_eq!(retry(1010, Errno::EPERM), None);
        assert_eq!(retry(1010, Errno::EMSGSIZE), None, "that will not pass");
    }
}
