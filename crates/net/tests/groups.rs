//! Groups other than the session's, which machines join and leave during a session.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/numbers.rs"]
mod numbers;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration as WallDuration, Instant};

use faircast_base::{Cx, Duration, GroupId, Time};
use faircast_lab::lan::Lan;
use faircast_net::{
    AddressBook, App, Driver, DriverSettings, Ended, Interface, Listen, Live, Multicast, NetError,
    SessionOptions, SocketSettings, Sockets, Target,
};
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Membership, Transmit};

use common::Place;
use numbers::Numbers;

const OTHER: GroupId = GroupId(7);
const EVERY: Duration = Duration::from_millis(5);

fn sockets(interface: &str, session: &str, others: &[(GroupId, &str)]) -> Sockets {
    let interfaces = vec![Interface::Name(interface.into())];
    let group = Multicast { interfaces, ..Multicast::new(session.parse().unwrap()) };
    let listen = Listen::Multicast(group);
    let mut sockets = Sockets::receiver(listen, SocketSettings::default()).unwrap();
    for (id, at) in others {
        sockets.add_group(*id, at.parse().unwrap()).unwrap();
    }
    sockets
}

/// Member of a group of two. The first sends until the other has enough, leaves, and reports so to
/// the session's group. The first then sends some more, and a full stop.
struct Member {
    talks: bool,
    changes: VecDeque<Membership>,
    out: VecDeque<(GroupId, &'static [u8])>,
    heard: Vec<(Destination, Vec<u8>)>,
    next: Option<Time>,
}

impl Member {
    fn new(now: Time, talks: bool, joins: bool) -> Self {
        let changes = joins.then_some(Membership::Join(OTHER)).into_iter().collect();
        let (out, heard) = (VecDeque::new(), Vec::new());
        Self { talks, changes, out, heard, next: Some(now) }
    }

    fn heard_in(&self, group: GroupId) -> usize {
        self.heard.iter().filter(|(to, _)| *to == Destination::Group(group)).count()
    }
}

impl Machine for Member {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.heard.push((datagram.to, datagram.bytes.to_vec()));
        match (self.talks, datagram.bytes) {
            (false, b"\x02word") if self.heard_in(OTHER) == 3 => {
                self.changes.push_back(Membership::Leave(OTHER));
                self.out.push_back((GroupId::SESSION, b"\x02enough"));
            }
            (true, b"\x02enough") => {
                self.out.extend([(OTHER, &b"\x02more"[..]); 5]);
                self.out.push_back((GroupId::SESSION, b"\x02."));
                self.out.push_back((GroupId::SESSION, b"\x03."));
                self.next = None;
            }
            (false, b"\x02." | b"\x03.") => self.next = None,
            _ => self.next = self.next.map(|_| cx.now + EVERY),
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_some_and(|next| next <= cx.now) {
            self.next = Some(cx.now + EVERY);
            if self.talks {
                self.out.extend([(OTHER, &b"\x02word"[..]), (OTHER, b"\x03secret")]);
            }
        }
    }

    fn handle_close(&mut self, _: &mut Cx<'_>) {}

    fn poll_membership(&mut self) -> Option<Membership> {
        self.changes.pop_front()
    }

    fn poll_transmit(&mut self, _: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (group, bytes) = self.out.pop_front()?;
        buf.extend_from_slice(bytes);
        Some(Transmit::control(Destination::Group(group)))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next
    }
}

struct Limit(Instant);

fn limit() -> Limit {
    Limit(Instant::now() + WallDuration::from_secs(30))
}

impl App<Member, Numbers> for Limit {
    fn tick(&mut self, live: &mut Live<Member, Numbers>) {
        if Instant::now() > self.0 {
            live.stop();
        }
    }
}

fn drive(sockets: Sockets, members: &[(u8, bool, bool)]) -> (Vec<Member>, u64) {
    let book = AddressBook::native();
    let (demux, settings) = (Numbers::default(), DriverSettings::default());
    let mut driver = Driver::with_demux(sockets, book, demux, settings).unwrap();
    let now = driver.live().now();
    let ids = members.iter().map(|(number, talks, joins)| {
        let options = SessionOptions { key: *number, subject: None };
        driver.live().add(Member::new(now, *talks, *joins), options)
    });
    let ids: Vec<_> = ids.collect();
    assert_eq!(driver.run(&mut limit()).unwrap(), Ended::Idle);
    let foreign = driver.live().counters().refused.foreign;
    let mut take = |id| {
        let machine = driver
            .live()
            .with(id, |member, _| std::mem::replace(member, Member::new(now, false, false)));
        machine.unwrap()
    };
    (ids.into_iter().map(&mut take).collect(), foreign)
}

fn members_hear_a_group_while_they_are_in_it(
    places: [Place; 2],
    interface: &'static str,
    session: &'static str,
    other: &'static str,
) {
    let groups = [(OTHER, other)];
    let [first, second] = places;
    let second = thread::spawn(move || {
        second.enter();
        drive(sockets(interface, session, &groups), &[(2, false, true), (3, false, false)])
    });
    let first = thread::spawn(move || {
        first.enter();
        drive(sockets(interface, session, &groups), &[(2, true, true)])
    });
    let (first, _) = first.join().unwrap();
    let (second, foreign) = second.join().unwrap();
    assert_eq!(first[0].heard_in(OTHER), 0, "{session}: what one says oneself");
    assert!(first[0].heard.iter().all(|(_, bytes)| bytes == b"\x02enough"), "{session}");
    assert_eq!(second[0].heard_in(OTHER), 3, "{session}: nothing after it has left");
    assert_eq!(second[1].heard_in(OTHER), 0, "{session}: it has not joined");
    assert!(foreign >= 2, "{session}: {foreign}");
}

#[test]
fn on_one_host_members_hear_a_group_while_they_are_in_it_and_nobody_hears_itself() {
    let places = [Place::default(), Place::default()];
    let (session, other) = ("239.192.77.1:30561", "239.192.77.2:30561");
    members_hear_a_group_while_they_are_in_it(places, "lo", session, other);
}

#[test]
fn between_hosts_members_hear_a_group_while_they_are_in_it() {
    for (session, other) in
        [("239.192.77.1:30561", "239.192.77.2:30561"), ("[ff15::77:1]:30562", "[ff15::77:2]:30562")]
    {
        let Some(lan) = Lan::or_skip(2) else { return };
        let places = [0, 1].map(|host| Place::on(&lan, host));
        members_hear_a_group_while_they_are_in_it(places, "e0", session, other);
    }
}

#[test]
fn a_bad_group_is_refused_by_name() {
    let mut sockets = sockets("lo", "239.192.77.3:30563", &[(OTHER, "239.192.77.4:30563")]);
    let mut add = |id, at: &str| sockets.add_group(id, at.parse().unwrap()).unwrap_err();
    assert!(matches!(add(GroupId(1), "10.0.0.1:1"), NetError::NotMulticast(_)));
    assert!(matches!(add(GroupId(1), "[ff15::1]:1"), NetError::Family(..)));
    for (id, at) in [
        (GroupId::SESSION, "239.192.77.5:1"),
        (OTHER, "239.192.77.5:1"),
        (GroupId(1), "239.192.77.4:30563"),
    ] {
        let error = add(id, at).to_string();
        assert!(error.contains("with this name or this address"), "{id:?} {error}");
    }
    let listed = Target::Unicast(vec![SocketAddr::from(([127, 0, 0, 1], 9))]);
    let mut listed = Sockets::source(listed, SocketSettings::default()).unwrap();
    let refused = listed.add_group(OTHER, "239.192.77.5:1".parse().unwrap()).unwrap_err();
    assert!(refused.to_string().contains("need one of the session"), "{refused}");
}

#[test]
fn who_joins_or_sends_where_there_is_no_group_goes_on() {
    let sockets = sockets("lo", "239.192.77.6:30566", &[]);
    let (demux, settings) = (Numbers::default(), DriverSettings::default());
    let mut driver = Driver::with_demux(sockets, AddressBook::native(), demux, settings).unwrap();
    let now = driver.live().now();
    let mut member = Member::new(now, false, true);
    member.out.push_back((OTHER, b"\x02word"));
    member.next = None;
    driver.live().add(member, SessionOptions { key: 2, subject: None });
    assert_eq!(driver.run(&mut limit()).unwrap(), Ended::Idle);
    assert_eq!(driver.live().counters().sent.unaddressed, 1);
}
