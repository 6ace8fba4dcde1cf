//! Malformed datagrams, and congestion marks.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/echo.rs"]
mod echo;

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;

use faircast_base::{Cx, Duration, GroupId, NodeId, Seq, Time};
use faircast_net::{
    AddressBook, App, Counters, Driver, DriverSettings, Ended, Envelope, Listen, Live, PgmDemux,
    PgmSettings, SessionOptions, SocketSettings, Sockets, Target,
};
use faircast_proto::pgm::wire::{Body, Encoder, Gsi, Header, Nla, Spm, Tsi};
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use socket2::SockRef;

use echo::Echo;

const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 0x8000 };

struct Until(u64);

impl App<Echo> for Until {
    fn tick(&mut self, live: &mut Live<Echo>) {
        let counters = live.counters();
        let all = counters.received.packets + counters.refused.total();
        if all >= self.0 || live.now() > Time::ZERO + Duration::from_secs(20) {
            live.stop();
        }
    }
}

fn attacked(
    count: u64,
    open: impl FnOnce() -> (Driver<Echo>, SocketAddr) + Send + 'static,
    attack: impl FnOnce(SocketAddr),
) -> (Vec<(NodeId, usize, bool)>, Counters) {
    let (ready, is_ready) = mpsc::channel();
    let driver = thread::spawn(move || {
        let (mut driver, address) = open();
        let id = driver.live().add(Echo::new(b""), SessionOptions::default());
        ready.send(address).unwrap();
        driver.run(&mut Until(count)).unwrap();
        let seen = driver.live().machine(id).unwrap().seen.clone();
        (seen, *driver.live().counters())
    });
    attack(is_ready.recv().unwrap());
    driver.join().unwrap()
}

fn settings() -> DriverSettings {
    let tick = Duration::from_millis(10);
    DriverSettings { tick, ends_when_idle: false, ..DriverSettings::default() }
}

fn receiver(on: &str, sockets: SocketSettings) -> (Driver<Echo>, SocketAddr) {
    receiver_of(on, sockets, PgmDemux::default())
}

fn receiver_of(on: &str, sockets: SocketSettings, demux: PgmDemux) -> (Driver<Echo>, SocketAddr) {
    let sockets = Sockets::receiver(Listen::Unicast(on.parse().unwrap()), sockets).unwrap();
    let address = sockets.local_address();
    (Driver::with_demux(sockets, AddressBook::native(), demux, settings()).unwrap(), address)
}

fn source(book: AddressBook) -> (Driver<Echo>, SocketAddr) {
    let target = Target::Unicast(vec!["127.0.0.1:9".parse().unwrap()]);
    let settings_here = SocketSettings { port: Some(0), ..SocketSettings::default() };
    let sockets = Sockets::source(target, settings_here).unwrap();
    let address = sockets.local_address();
    (Driver::with_demux(sockets, book, PgmDemux::default(), settings()).unwrap(), address)
}

fn spm(path: NodeId, tsi: Tsi) -> Vec<u8> {
    spm_of(0, path, tsi)
}

fn spm_of(number: u32, path: NodeId, tsi: Tsi) -> Vec<u8> {
    let mut out = Vec::new();
    let spm = Spm {
        sequence: Seq::new(number),
        trail: Default::default(),
        lead: Default::default(),
        path: Nla::from_node(path),
    };
    Encoder::new(&mut out, &Header::downstream(tsi, 7500), &Body::Spm(spm)).finish();
    out
}

fn spm_request() -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(&mut out, &Header::upstream(TSI, 7500), &Body::Spmr).finish();
    out
}

#[test]
fn empty_garbage_and_oversized_datagrams_are_refused_and_counted() {
    let sockets = SocketSettings { datagram_max: 9000, ..SocketSettings::default() };
    let (seen, counters) = attacked(
        6,
        || receiver("127.0.0.1:0", sockets),
        |to| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut data = spm(NodeId(7), TSI);
            data.resize(9001, 0);
            for bytes in [&[][..], &[0xff; 1400], &[0; 15], &data, &data[..9000], &[]] {
                socket.send_to(bytes, to).unwrap();
            }
        },
    );
    let refused = counters.refused;
    assert_eq!((refused.empty, refused.malformed, refused.oversized), (2, 2, 1));
    assert_eq!(seen, [(NodeId(7), 9000, false)]);
}

#[test]
fn a_burst_that_is_marked_arrives_marked() {
    for (on, from) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
        for class in [0b11, 0b10] {
            let open = || receiver(on, SocketSettings::default());
            let (seen, counters) = attacked(40, open, |to| {
                let socket = UdpSocket::bind(from).unwrap();
                if to.is_ipv4() {
                    SockRef::from(&socket).set_tos_v4(class).unwrap();
                } else {
                    SockRef::from(&socket).set_tclass_v6(class).unwrap();
                }
                let mut packet = spm(NodeId(7), TSI);
                packet.resize(1000, 0);
                let burst = packet.repeat(40);
                let segment = 1000;
                let cut = [ControlMessage::UdpGsoSegments(&segment)];
                let (slice, to) = ([IoSlice::new(&burst)], SockaddrStorage::from(to));
                let fd = socket.as_raw_fd();
                sendmsg(fd, &slice, &cut, MsgFlags::empty(), Some(&to)).unwrap();
            });
            let marked = class == 0b11;
            assert_eq!(seen, [(NodeId(7), 1000, marked); 40], "{on} {class:#b}");
            assert!(counters.received.calls < 40, "they came together: {counters:?}");
            assert_eq!(counters.received.marked, if marked { 40 } else { 0 });
        }
    }
}

#[test]
fn a_receiver_answers_to_where_packets_come_from_whatever_they_claim() {
    let (third, claimed) = (UdpSocket::bind("127.0.0.2:0").unwrap(), NodeId(0x7f00_0002));
    third.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let speaker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let liar = UdpSocket::bind("127.0.0.3:0").unwrap();
    let (seen, counters) = attacked(
        3,
        || receiver("127.0.0.1:0", SocketSettings::default()),
        |to| {
            speaker.send_to(&spm(claimed, TSI), to).unwrap();
            let mut answer = [0; 16];
            speaker.recv_from(&mut answer).unwrap();
            liar.send_to(&spm(claimed, TSI), to).unwrap();
            liar.send_to(&spm(claimed, Tsi { port: 0x8001, ..TSI }), to).unwrap();
        },
    );
    assert_eq!(seen, [(claimed, spm(claimed, TSI).len(), false)]);
    assert_eq!((counters.refused.spoofed, counters.refused.foreign), (1, 1));
    assert!(third.recv_from(&mut [0; 16]).is_err(), "nothing went to a third party");
}

#[test]
fn a_session_moves_only_where_a_newer_word_of_a_silent_source_comes_from() {
    let speaker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = UdpSocket::bind("127.0.0.3:0").unwrap();
    let numbered = |number| spm_of(number, NodeId(7), TSI);
    let silence = std::time::Duration::from_millis(400);
    let open = || {
        let moves_after = Duration::from_millis(300);
        let demux = PgmDemux::new(PgmSettings { moves_after, ..PgmSettings::default() });
        receiver_of("127.0.0.1:0", SocketSettings::default(), demux)
    };
    let (seen, counters) = attacked(5, open, |to| {
        let mut answer = [0; 16];
        speaker.send_to(&numbered(5), to).unwrap();
        speaker.recv_from(&mut answer).unwrap();
        other.send_to(&numbered(6), to).unwrap();
        thread::sleep(silence);
        // Repeated SPMs never have an effect.
        other.send_to(&numbered(5), to).unwrap();
        other.send_to(&numbered(6), to).unwrap();
        other.recv_from(&mut answer).unwrap();
        speaker.send_to(&numbered(7), to).unwrap();
    });
    assert_eq!((seen.len(), counters.refused.spoofed), (2, 3));
}

#[test]
fn a_source_answers_each_of_several_receivers_on_one_host() {
    let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (seen, counters) = attacked(
        3,
        || source(AddressBook::native()),
        |to| {
            for socket in &sockets {
                socket.send_to(&spm_request(), to).unwrap();
                let mut answer = [0; 16];
                assert_eq!(socket.recv_from(&mut answer).unwrap().0, spm_request().len());
            }
        },
    );
    // The address is the source's own, so the nodes have other numbers.
    let nodes: BTreeSet<NodeId> = seen.iter().map(|(node, ..)| *node).collect();
    assert!(nodes.len() == 3 && nodes.iter().all(|node| node.0 >= 0xf000_0000), "{nodes:?}");
    assert_eq!(counters.sent.datagrams, 3);
}

#[test]
fn a_fixed_book_lets_nobody_else_in() {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let known = sockets[0].local_addr().unwrap();
    let open = move || source(AddressBook::fixed([(NodeId(3), known)]));
    let (seen, counters) = attacked(2, open, |to| {
        for socket in &sockets {
            socket.send_to(&spm_request(), to).unwrap();
        }
    });
    assert_eq!(seen, [(NodeId(3), 16, false)]);
    assert_eq!(counters.refused.unknown, 1);
}

/// Envelope that puts the length in front and masks all bytes.
struct Mask;

impl Envelope for Mask {
    fn authenticates(&self) -> bool {
        false
    }

    fn overhead(&self) -> usize {
        1
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        out.push(plain.len() as u8);
        out.extend(plain.iter().map(|byte| byte ^ 0x5a));
    }

    fn open<'a>(&mut self, _: Time, _: SocketAddr, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let (&mut len, rest) = datagram.split_first_mut()?;
        rest.iter_mut().for_each(|byte| *byte ^= 0x5a);
        (rest.len() as u8 == len).then_some(&*rest)
    }
}

#[test]
fn an_envelope_wraps_what_is_sent_and_what_comes() {
    let open = || {
        let (mut driver, address) = source(AddressBook::native());
        driver.set_envelope(Box::new(Mask));
        (driver, address)
    };
    let (seen, counters) = attacked(2, open, |to| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sealed = Vec::new();
        Mask.seal(&spm_request(), &mut sealed);
        socket.send_to(&spm_request(), to).unwrap();
        socket.send_to(&sealed, to).unwrap();
        let mut answer = [0; 20];
        let len = socket.recv_from(&mut answer).unwrap().0;
        let from = "127.0.0.1:1".parse().unwrap();
        assert_eq!(Mask.open(Time::ZERO, from, &mut answer[..len]), Some(&spm_request()[..]));
    });
    assert_eq!((seen.len(), counters.refused.sealed), (1, 1));
}

/// Machine with a timer every 20 us that sends on expiry and records the time.
struct Metronome {
    next: Time,
    left: u32,
    due: bool,
    closed: bool,
}

impl Machine for Metronome {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _: &mut Cx<'_>, _: Datagram<'_>) {}

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        assert!(cx.now >= self.next, "never before the moment that it is told");
        if self.left > 0 {
            (self.left, self.due) = (self.left - 1, true);
            self.next = cx.now + Duration::from_micros(20);
        }
    }

    fn handle_close(&mut self, _: &mut Cx<'_>) {
        self.closed = true;
    }

    fn poll_transmit(&mut self, _: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        buf.extend_from_slice(&[0; 100]);
        Some(Transmit::control(Destination::Group(GroupId::SESSION)))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        (self.left > 0 || !self.closed).then_some(if self.left > 0 { self.next } else { Time::MAX })
    }
}

#[derive(Default)]
struct Punctual {
    next: Time,
    late: Vec<Duration>,
}

impl Machine for Punctual {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _: &mut Cx<'_>, _: Datagram<'_>) {}

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.late.push(cx.late);
        self.next = cx.now + Duration::from_millis(10);
    }

    fn handle_close(&mut self, _: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, _: &mut Cx<'_>, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
}

/// Blocks the driver's thread once, for this time, and ends the driver after ten ticks.
struct Blocking {
    pause: std::time::Duration,
    ticks: u32,
}

impl App<Punctual> for Blocking {
    fn tick(&mut self, live: &mut Live<Punctual>) {
        self.ticks += 1;
        match self.ticks {
            3 => std::thread::sleep(self.pause),
            10 => live.stop(),
            _ => {}
        }
    }
}

#[test]
fn a_machine_is_told_how_late_it_is_called() {
    // Of the longer pause the clock counts one second; the machine is informed of all of it.
    for pause_ms in [300, 1_500] {
        let settings = SocketSettings::default();
        let sockets = Sockets::receiver(Listen::Unicast("127.0.0.1:0".parse().unwrap()), settings);
        let settings = DriverSettings { tick: Duration::from_millis(20), ..Default::default() };
        let mut driver = Driver::new(sockets.unwrap(), settings).unwrap();
        let id = driver.live().add(Punctual::default(), SessionOptions::default());
        let pause = std::time::Duration::from_millis(pause_ms);
        driver.run(&mut Blocking { pause, ticks: 0 }).unwrap();
        let late = &driver.live().machine(id).unwrap().late;
        let longest = late.iter().max().unwrap();
        assert!(*longest >= Duration::from_millis(pause_ms - 20), "{pause_ms} ms: {longest}");
    }
}

#[test]
fn packets_that_come_within_a_while_are_read_together() {
    let begun = std::time::Instant::now();
    let open = || {
        let (mut driver, address) = receiver("127.0.0.1:0", SocketSettings::default());
        driver.live().set_gather(Duration::from_millis(1));
        (driver, address)
    };
    let (seen, counters) = attacked(400, open, |to| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..400 {
            socket.send_to(&spm(NodeId(7), TSI), to).unwrap();
        }
    });
    assert_eq!(seen.len(), 400);
    // One read per millisecond, 16 datagrams in a call.
    let most = begun.elapsed().as_millis() as u64 + 400 / 16 + 2;
    assert!(counters.received.calls <= most, "{} calls, {most}", counters.received.calls);
}

#[test]
fn timers_closer_than_the_grain_are_met_together_and_closing_ends_the_driver() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = Target::Unicast(vec![sink.local_addr().unwrap()]);
    let sockets = SocketSettings { port: Some(0), ..SocketSettings::default() };
    let sockets = Sockets::source(target, sockets).unwrap();
    let grain = Duration::from_micros(500);
    let settings = DriverSettings { grain, ..DriverSettings::default() };
    let mut driver = Driver::new(sockets, settings).unwrap();
    let next = driver.live().now();
    let machine = Metronome { next, left: 1000, due: false, closed: false };
    driver.live().add(machine, SessionOptions::default());
    let waker = driver.waker();
    let closer = thread::spawn(move || {
        thread::sleep(std::time::Duration::from_millis(100));
        assert!(waker.run(|live| assert_eq!(live.sessions().count(), 1)));
        waker.close();
    });
    assert_eq!(driver.run(&mut ()).unwrap(), Ended::Idle);
    closer.join().unwrap();
    let counters = driver.live().counters();
    assert_eq!(counters.sent.datagrams, 1000);
    assert_eq!(counters.timers.fired + counters.timers.early, 1000, "{counters:?}");
    assert!(counters.sent.calls < 500, "they left together: {counters:?}");
}
