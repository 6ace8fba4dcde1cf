//! Tests of objects over TRAM: kept, late, growing and damaged content, and repair heads.

mod holes;
mod restarts;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use faircast_base::{Duration, Event, GroupId, NodeId, Purpose, Rng, Time};

use super::given_up::{Content, breaking};
use super::growing::{Flow, pipe_of};
use super::world::*;
use crate::catalog;
use crate::object::{
    MemberState, MemberStatus, ObjectReceiverSetup, ObjectSourceSetup, Stage, Supply,
    TramObjectReceiver, TramObjectSource,
};
use crate::options::{OptionValue, Options};
use crate::tram::OPTIONS;
use crate::world::FIRST_RECEIVER;
use crate::{Datagram, Destination, FlowEvent, Machine, Transmit};

type Loses = Box<dyn FnMut(NodeId, NodeId, &[u8], &mut Rng) -> bool>;

/// Packet in flight: sender, receiver, original destination, bytes, and zeros that follow.
type Flying = (NodeId, NodeId, Destination, Vec<u8>, u32);

struct Tree {
    now: Time,
    object: Object,
    source: Host<TramObjectSource>,
    receivers: Vec<Host<TramObjectReceiver>>,
    disks: Vec<Arc<Mutex<Disk>>>,
    flying: BTreeMap<(Time, u64), Flying>,
    launched: u64,
    paused: Option<usize>,
    waiting: Vec<Flying>,
    loses: Loses,
    rng: Rng,
}

type Settings<'a> = &'a [(&'a str, &'a str)];

fn options(settings: Settings<'_>) -> Options {
    let value = |text: &str| match text.parse() {
        Ok(number) => OptionValue::Integer(number),
        Err(_) => OptionValue::Text(text.to_string()),
    };
    let all = settings.iter().map(|&(key, text)| (key.to_string(), value(text)));
    Options::checked(all, OPTIONS).unwrap()
}

impl Tree {
    fn new(content: usize, wait_for: u32, settings: Settings<'_>) -> Self {
        let object = Object::new(content);
        let supply = Box::new(object.clone());
        Self::of(object, supply, wait_for, settings)
    }

    fn of(object: Object, supply: Box<dyn Supply>, wait_for: u32, settings: Settings<'_>) -> Self {
        let options = options(settings);
        let setup = ObjectSourceSetup::new(SOURCE, GROUP, TSI, supply, SYMBOL, &options);
        Self::begun(object, ObjectSourceSetup { wait_for, ..setup })
    }

    fn begun(object: Object, setup: ObjectSourceSetup<'_>) -> Self {
        let source = TramObjectSource::new(setup, catalog::stack("tram").unwrap());
        Self {
            now: Time::ZERO,
            object,
            source: Host::new(SOURCE, source, 1),
            receivers: Vec::new(),
            disks: Vec::new(),
            flying: BTreeMap::new(),
            launched: 0,
            paused: None,
            waiting: Vec::new(),
            loses: Box::new(|_, _, _, _| false),
            rng: Rng::new(1, NodeId(0), Purpose::Fault),
        }
    }

    fn add_all(&mut self, count: usize, settings: Settings<'_>) {
        for _ in 0..count {
            self.add(Disk::default(), settings);
        }
    }

    fn add(&mut self, disk: Disk, settings: Settings<'_>) -> usize {
        let name = alloc::format!("r{}", self.receivers.len());
        self.add_named(&name, disk, settings)
    }

    fn add_named(&mut self, name: &str, disk: Disk, settings: Settings<'_>) -> usize {
        let which = self.receivers.len();
        let node = NodeId(FIRST_RECEIVER + which as u32);
        let (disk, options) = (Arc::new(Mutex::new(disk)), options(settings));
        let store = Box::new(DiskStore(disk.clone()));
        let setup = ObjectReceiverSetup::new(node, GROUP, TSI, store, &options);
        let (id, name) = (u64::from(node.0), name.to_string());
        let setup = ObjectReceiverSetup { start: self.now, id, name, ..setup };
        let machine = TramObjectReceiver::new(setup, SOURCE, catalog::tree_negotiation(None));
        self.receivers.push(Host::new(node, machine, 1));
        self.disks.push(disk);
        which
    }

    fn kill(&mut self, which: usize, pause: Duration, settings: Settings<'_>) {
        let done = self.receivers[which].machine.status().bytes_done;
        let disk = Arc::new(Mutex::new(self.disk_with(Some(0..done))));
        let options = options(settings);
        let node = self.receivers[which].node;
        let setup =
            ObjectReceiverSetup::new(node, GROUP, TSI, Box::new(DiskStore(disk.clone())), &options);
        let (id, name) = (u64::from(node.0) + 1000, alloc::format!("r{which}"));
        let setup = ObjectReceiverSetup { start: self.now + pause, id, name, ..setup };
        let machine = TramObjectReceiver::new(setup, SOURCE, catalog::tree_negotiation(None));
        self.receivers[which] = Host::new(node, machine, 2 + self.launched);
        self.disks[which] = disk;
    }

    fn disk_with(&self, found: impl IntoIterator<Item = core::ops::Range<u64>>) -> Disk {
        let found: Vec<_> = found.into_iter().collect();
        let mut disk = Disk { found: found.clone(), ..Disk::default() };
        disk.parts[1] = alloc::vec![0xee; self.object.0[1].len()];
        for range in found {
            let place = range.start as usize..range.end as usize;
            disk.parts[1][place.clone()].copy_from_slice(&self.object.0[1][place]);
        }
        disk
    }

    fn launch(&mut self, from: NodeId, sent: Vec<(Transmit, Vec<u8>)>) {
        for (transmit, bytes) in sent {
            let all = [SOURCE].into_iter().chain(self.receivers.iter().map(|host| host.node));
            let to: Vec<NodeId> = match transmit.to {
                Destination::Node(node) => [node].into(),
                Destination::Group(_) => all.filter(|node| *node != from).collect(),
            };
            for node in to {
                if !(self.loses)(from, node, &bytes, &mut self.rng) {
                    self.launched += 1;
                    let packet = (from, node, transmit.to, bytes.clone(), transmit.zeros);
                    self.flying.insert((self.now + DELAY, self.launched), packet);
                }
            }
        }
    }

    fn inject(&mut self, from: NodeId, to: NodeId, destination: Destination, packet: (&[u8], u32)) {
        let datagram = Datagram::new(from, destination, packet.0);
        let datagram = Datagram { zeros: packet.1, ..datagram };
        let now = self.now;
        let sent = if to == SOURCE {
            self.source.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
            self.source.drain(now)
        } else {
            let host = &mut self.receivers[(to.0 - FIRST_RECEIVER) as usize];
            host.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
            host.drain(now)
        };
        self.launch(to, sent);
    }

    fn inject_other_content(&mut self, data: &mut [u8]) {
        data[crate::tram::DATA_HEADER..].fill(0xee);
        data[6..8].fill(0);
        let sum = crate::pgm::wire::checksum(data);
        data[6..8].copy_from_slice(&sum.to_be_bytes());
        let (to, group) = (NodeId(FIRST_RECEIVER), Destination::Group(GroupId::SESSION));
        self.inject(SOURCE, to, group, (data, 0));
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let paused = self.paused;
            let running = self.receivers.iter().enumerate().filter(|(i, _)| Some(*i) != paused);
            let timers = running.filter_map(|(_, host)| host.machine.next_timeout());
            let timer = timers.chain(self.source.machine.next_timeout()).min();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let next = timer.into_iter().chain(arrival).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if arrival.is_some_and(|at| at <= now) {
                let (_, (from, to, destination, bytes, zeros)) = self.flying.pop_first().unwrap();
                if paused.is_some_and(|it| self.receivers[it].node == to) {
                    self.waiting.push((from, to, destination, bytes, zeros));
                } else {
                    self.inject(from, to, destination, (&bytes, zeros));
                }
                continue;
            }
            if self.source.machine.next_timeout().is_some_and(|at| at <= now) {
                self.source.act(now, |machine, cx| machine.handle_timeout(cx));
                let sent = self.source.drain(now);
                self.launch(SOURCE, sent);
            }
            for i in 0..self.receivers.len() {
                let host = &mut self.receivers[i];
                if Some(i) != paused && host.machine.next_timeout().is_some_and(|at| at <= now) {
                    host.act(now, |machine, cx| machine.handle_timeout(cx));
                    let (node, sent) = (host.node, host.drain(now));
                    self.launch(node, sent);
                }
            }
        }
        self.now = end;
    }

    fn go_on(&mut self) {
        let Some(which) = self.paused.take() else { return };
        let (now, host) = (self.now, &mut self.receivers[which]);
        host.act(now, |machine, cx| machine.handle_timeout(cx));
        let (node, sent) = (host.node, host.drain(now));
        self.launch(node, sent);
        for (from, to, destination, bytes, zeros) in core::mem::take(&mut self.waiting) {
            self.inject(from, to, destination, (&bytes, zeros));
        }
    }

    fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    fn member(&self, name: &str) -> MemberStatus {
        let status = self.source.machine.status();
        status.members.into_iter().find(|member| member.name == name).unwrap()
    }

    fn assert_complete(&self, which: impl IntoIterator<Item = usize>) {
        for i in which {
            let host = &self.receivers[i];
            let status = host.machine.status();
            assert!(host.said(&FlowEvent::Completed), "{i} at {}: {status:?}", self.now);
            let disk = self.disks[i].lock().unwrap();
            let same = disk.parts.iter().zip(&self.object.0).all(|(have, sent)| have == &**sent);
            assert!(same, "{i} got other bytes");
            // A restarted program is another member of the same name.
            let (name, members) = (alloc::format!("r{i}"), self.source.machine.status().members);
            let is_done = |it: &MemberStatus| it.name == name && it.state == MemberState::Done;
            assert!(members.iter().any(is_done), "{name}: {members:?}");
        }
    }

    fn over_by(&mut self, end: Time) {
        self.run_until(end);
        self.assert_over();
    }

    fn assert_over(&self) {
        self.assert_complete(0..self.receivers.len());
        assert!(self.source.completed(), "{:?}", self.source.machine.status());
        assert_eq!(self.source.machine.next_timeout(), None);
    }
}

fn losing_all(share: f64) -> Loses {
    Box::new(move |_, _, _, rng| rng.chance(share))
}

const CONTENT: usize = 200_000;

const fn symbols(bytes: usize) -> u64 {
    bytes.div_ceil(SYMBOL as usize) as u64
}

/// Symbols of manifests of a group that joins at once: one receiver finds a head slightly later
/// than the others, and requests the manifest again.
const MANIFESTS: u64 = 2 * symbols(250);

#[test]
fn a_lossy_group_gets_everything_and_the_source_ends() {
    for share in [0.0, 0.05] {
        let mut tree = Tree::new(CONTENT, 6, &[("members_max", "2")]);
        tree.loses = losing_all(share);
        tree.add_all(6, &[("head", "eager")]);
        tree.over_by(s(120));
        let status = tree.source.machine.status();
        let manifests = status.packets.symbols - status.packets.repairs - symbols(CONTENT) - 21;
        assert!(manifests <= 2 * MANIFESTS, "{manifests} symbols of it");
    }
}

#[test]
fn what_all_have_is_not_sent() {
    let mut tree = Tree::new(CONTENT, 3, &[]);
    for _ in 0..3 {
        let disk = tree.disk_with(Some(0..CONTENT as u64));
        tree.add(disk, &[]);
    }
    tree.over_by(s(30));
    let status = tree.source.machine.status();
    let sent = status.packets.symbols - status.packets.repairs;
    assert_eq!(sent, MANIFESTS + 21, "manifest and digests, and nothing else");
    assert!(tree.source.bytes_sent < 30_000, "{}", tree.source.bytes_sent);
    assert!(tree.receivers.iter().all(|it| it.machine.status().bytes_found == CONTENT as u64));
}

#[test]
fn what_somebody_lacks_is_sent_and_nothing_more() {
    let mut tree = Tree::new(CONTENT, 3, &[]);
    let (half, most) = (100_000, 150_000);
    for found in [alloc::vec![0..most], alloc::vec![50_000..CONTENT as u64], alloc::vec![0..half]] {
        let disk = tree.disk_with(found);
        tree.add(disk, &[]);
    }
    tree.over_by(s(30));
    let status = tree.source.machine.status();
    let sent = symbols(50_000) + symbols(CONTENT - half as usize);
    assert_eq!(status.packets.symbols - status.packets.repairs, MANIFESTS + 21 + sent);
    assert_eq!(tree.member("r1").found, CONTENT as u64 - 50_000);
}

#[test]
fn who_comes_late_and_has_it_is_sent_next_to_nothing() {
    let mut tree = Tree::new(CONTENT, 2, &[("rate_max", "200 kbit/s")]);
    tree.add_all(2, &[]);
    tree.run_until(s(7));
    let most = tree.receivers[0].machine.status().packets.symbols;
    assert!(most > symbols(CONTENT) / 3 && most < symbols(CONTENT), "{most}");
    let disk = tree.disk_with(Some(0..CONTENT as u64));
    tree.add(disk, &[]);
    tree.over_by(s(60));
    let status = tree.source.machine.status();
    let manifests = MANIFESTS + symbols(250);
    assert_eq!(status.packets.symbols - status.packets.repairs, manifests + symbols(CONTENT) + 21);
    let late = tree.receivers[2].machine.status();
    assert!(late.packets.symbols < symbols(CONTENT) - most + 50, "{late:?} after {most}");
}

#[test]
fn a_receiver_that_was_started_again_in_a_long_session_goes_on_at_once() {
    let content = 10_000_000;
    let mut tree = Tree::new(content, 1, &[("rate_max", "4 Mbit/s")]);
    tree.add(Disk::default(), &[]);
    let sent = |tree: &Tree| tree.source.machine.status().packets.symbols;
    // More than a receiver believes of a single packet.
    while sent(&tree) < 70_000 {
        tree.run_for(ms(10));
    }
    let disk = tree.disk_with(Some(0..6_900_000));
    let late = tree.add(disk, &[]);
    tree.run_for(Duration::from_secs(5));
    let before = sent(&tree);
    assert!(before < 98_000, "the session goes on: {before}");
    let status = tree.receivers[late].machine.status();
    assert!(status.bytes_done > 6_900_000 + 100_000, "{status:?}");
    tree.run_for(Duration::from_secs(20));
    tree.assert_over();
}

#[test]
fn packets_that_nobody_repairs_any_more_are_asked_for_as_symbols() {
    let mut tree = Tree::new(CONTENT, 2, &[("obsolete_after", "40"), ("rate_max", "200 kbit/s")]);
    tree.add_all(2, &[]);
    let number = |bytes: &[u8]| u64::from_be_bytes(*bytes[24..].first_chunk().unwrap());
    tree.loses = Box::new(move |_, to, bytes, _| {
        let is_data = bytes.get(3) == Some(&2);
        to == NodeId(FIRST_RECEIVER) && is_data && (500..520).contains(&number(bytes))
    });
    tree.over_by(s(60));
}

#[test]
fn who_leaves_may_come_back_while_others_are_served() {
    let mut tree = Tree::new(CONTENT, 2, &[("rate_max", "200 kbit/s")]);
    tree.add_all(2, &[]);
    tree.run_until(s(5));
    let now = tree.now;
    tree.receivers[0].act(now, |machine, cx| machine.handle_close(cx));
    let sent = tree.receivers[0].drain(now);
    tree.launch(NodeId(FIRST_RECEIVER), sent);
    tree.add(Disk::default(), &[]);
    tree.run_until(s(120));
    tree.assert_complete([1, 2]);
    assert_eq!(tree.member("r0").state, MemberState::Left);
    assert!(tree.source.completed());
}

fn piped(content: usize, wait_for: u32) -> (Tree, Flow) {
    let object = Object::new(content);
    let (supply, flow) = pipe_of(&object);
    (Tree::of(object, supply, wait_for, &[]), flow)
}

#[test]
fn a_pipe_of_any_length_gets_to_all() {
    for content in [0, 1, 6399, 6400, 6401, 120_000] {
        for (share, step) in [(0.0, 5000), (0.1, 5000), (0.1, 40_000)] {
            let (mut tree, flow) = piped(content, 3);
            tree.loses = losing_all(share);
            tree.add_all(3, &[]);
            loop {
                tree.run_for(ms(50));
                if flow.write(step) {
                    break;
                }
            }
            tree.add(Disk::default(), &[]);
            tree.run_for(Duration::from_secs(120));
            let case = alloc::format!("{content} bytes, {step} at once, {share} lost");
            tree.assert_complete(0..3);
            assert!(tree.source.completed(), "{case}");
            assert_eq!(tree.source.machine.next_timeout(), None, "{case}");
        }
    }
}

#[test]
fn a_store_that_takes_content_in_order_gets_all_though_it_comes_late() {
    let mut tree = Tree::new(CONTENT, 1, &[("rate_max", "100 kbit/s")]);
    let disk = tree.disk_with(Some(0..100_000));
    tree.add(disk, &[]);
    tree.run_until(s(4));
    let late = tree.add(Disk { window: Some(6400), ..Disk::default() }, &[]);
    let mut taken = 0;
    for _ in 0..600 {
        tree.run_for(ms(200));
        let mut disk = tree.disks[late].lock().unwrap();
        let here = disk.written[1].iter().take_while(|written| **written).count();
        assert!(here >= taken);
        taken = here;
        disk.window = Some((taken as u64 + 6400).min(CONTENT as u64));
    }
    tree.assert_over();
}

#[test]
fn what_a_disk_has_damaged_is_asked_for_again() {
    let mut tree = Tree::new(CONTENT, 2, &[]);
    tree.add(Disk::default(), &[]);
    let damaged = alloc::vec![5000..5200, 150_000..150_001];
    let bad = tree.add(Disk { damaged, ..Disk::default() }, &[]);
    tree.over_by(s(60));
    let status = tree.source.machine.status();
    let (first, again) = (MANIFESTS + symbols(CONTENT) + 21, 3);
    assert_eq!(status.packets.symbols - status.packets.repairs, first + again);
    assert_eq!(tree.disks[bad].lock().unwrap().damaged, []);
}

#[test]
fn a_head_whose_disk_is_full_fails_and_its_members_go_on() {
    let mut tree = Tree::new(CONTENT, 4, &[("members_max", "1"), ("rate_max", "100 kbit/s")]);
    // The source has room for one member: the others form a chain.
    let full = Disk { full_after: Some(50_000), ..Disk::default() };
    let mut full = Some(full);
    for _ in 0..4 {
        let first = full.take().unwrap_or_default();
        tree.add(first, &[("head", "eager")]);
        tree.run_for(Duration::from_secs(4));
    }
    while tree.source.machine.status().begun.is_none() {
        tree.run_for(ms(10));
    }
    let heads: Vec<u32> =
        tree.receivers.iter().map(|it| it.machine.status().place.unwrap().members).collect();
    assert_eq!(heads, [1, 1, 1, 0], "a chain, the first of which fails");
    tree.run_until(s(200));
    tree.assert_complete(1..4);
    let failed = tree.member("r0");
    assert_eq!(failed.state, MemberState::Failed);
    assert!(failed.reason.contains("full"), "{}", failed.reason);
    assert_eq!(tree.receivers[0].machine.status().stage, Stage::Failed);
    assert!(tree.source.completed());
}

#[test]
fn the_sources_settings_hold_at_its_receivers_unless_they_have_their_own() {
    let mut tree = Tree::new(CONTENT, 4, &[("members_max", "2"), ("defaults", "paper")]);
    tree.add(Disk::default(), &[("head", "eager")]);
    tree.add(Disk::default(), &[("head", "eager"), ("members_max", "1")]);
    tree.add_all(3, &[("head", "eager")]);
    let mut most = [0; 5];
    for _ in 0..600 {
        tree.run_for(ms(100));
        for (most, host) in most.iter_mut().zip(&tree.receivers) {
            *most = host.machine.status().place.unwrap().members.max(*most);
        }
    }
    tree.assert_over();
    assert!(most.iter().all(|members| *members <= 2) && most[1] <= 1, "{most:?}");
    assert!(most.iter().any(|members| *members > 0), "{most:?}");
}

#[test]
fn the_source_knows_who_hangs_under_whom_and_what_each_repaired() {
    let mut tree = Tree::new(CONTENT, 4, &[("members_max", "2")]);
    // The source does not receive NAKs for the losses of a head's members.
    tree.loses =
        Box::new(|from, _, bytes, rng| from == SOURCE && bytes.len() > 100 && rng.chance(0.05));
    tree.add_all(4, &[("head", "eager")]);
    tree.over_by(s(120));
    let status = tree.source.machine.status();
    let root = status.place.unwrap().number;
    let numbers: BTreeMap<u64, &MemberStatus> =
        status.members.iter().map(|it| (it.place.unwrap().number, it)).collect();
    let (mut repairs, mut deep) = (0, 0);
    for member in &status.members {
        let place = member.place.unwrap();
        repairs += place.repairs;
        if place.head == root {
            assert_eq!(place.level, 2);
        } else if place.head != 0 {
            let head = numbers[&place.head].place.unwrap();
            assert!(place.level > 2, "{place:?} under {head:?}");
            deep += 1;
        }
    }
    assert!(repairs > 0 && deep > 0, "{status:?}");
}

#[test]
fn packets_of_no_object_that_are_forged_in_a_pause_end_nobody() {
    let (mut tree, flow) = piped(CONTENT, 1);
    let last: Arc<Mutex<Vec<u8>>> = Arc::default();
    let heard = last.clone();
    tree.loses = Box::new(move |from, _, bytes, _| {
        if from == SOURCE && bytes.get(3) == Some(&2) {
            *heard.lock().unwrap() = bytes.to_vec();
        }
        false
    });
    tree.add(Disk::default(), &[]);
    for _ in 0..60 {
        flow.write(1000);
        tree.run_for(ms(50));
    }
    assert_eq!(tree.member("r0").state, MemberState::Receiving);
    tree.run_for(Duration::from_secs(2));
    let number = |bytes: &[u8]| u64::from_be_bytes(*bytes[24..].first_chunk().unwrap());
    let sound = last.lock().unwrap().clone();
    let mut forged = sound.clone();
    for i in 0..100u64 {
        forged[24..32].copy_from_slice(&(number(&sound) + 1 + i).to_be_bytes());
        tree.inject_other_content(&mut forged);
        tree.run_for(ms(if i < 20 { 10 } else { 450 }));
        let status = tree.receivers[0].machine.status();
        assert_eq!(status.stage, Stage::Sending, "{i}: {status:?}");
    }
    while !flow.write(5000) {
        tree.run_for(ms(50));
    }
    tree.run_for(Duration::from_secs(120));
    tree.assert_complete([0]);
}

#[test]
fn what_is_no_object_ends_a_receiver_that_hears_nothing_else() {
    let mut tree = Tree::new(CONTENT, 1, &[("rate_max", "100 kbit/s")]);
    tree.add(Disk::default(), &[]);
    tree.run_until(s(3));
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let heard = seen.clone();
    tree.loses = Box::new(move |from, to, bytes, _| {
        let data = from == SOURCE && to == NodeId(FIRST_RECEIVER) && bytes.get(3) == Some(&2);
        if data {
            heard.lock().unwrap().push(bytes.to_vec());
        }
        data
    });
    for _ in 0..100 {
        tree.run_for(ms(50));
        for mut bytes in core::mem::take(&mut *seen.lock().unwrap()) {
            tree.inject_other_content(&mut bytes);
        }
    }
    let status = tree.receivers[0].machine.status();
    assert_eq!(status.reason.as_deref(), Some("the source now sends something else"));
}

#[test]
fn a_source_that_is_closed_ends_its_receivers() {
    let mut tree = Tree::new(CONTENT, 1, &[("rate_max", "100 kbit/s")]);
    tree.add(Disk::default(), &[]);
    tree.run_until(s(5));
    tree.add(Disk::default(), &[]);
    tree.run_for(ms(1100));
    let now = tree.now;
    tree.source.act(now, |machine, cx| machine.handle_close(cx));
    let sent = tree.source.drain(now);
    tree.launch(SOURCE, sent);
    tree.run_until(s(20));
    let status = tree.receivers[0].machine.status();
    assert_eq!(status.reason, Some("the source ended before everything was here".to_string()));
    assert!(tree.receivers.iter().all(|host| host.said(&FlowEvent::Gone)));
    assert!(!tree.source.completed());
    assert_eq!(tree.source.machine.next_timeout(), None);
    assert_eq!(tree.source.log.count(|event| matches!(event, Event::Completed { .. })), 0);
}

#[test]
fn what_has_changed_is_given_up_over_a_tree_too() {
    for (what, want) in [(Content::Changed, true), (Content::Unreadable, false)] {
        let object = Object::new(8_000_000);
        let (supply, content) = breaking(&object);
        let mut tree = Tree::of(object, supply, 3, &[]);
        tree.add_all(3, &[]);
        tree.run_until(s(3));
        assert!(tree.receivers.iter().all(|host| host.app.is_empty()), "it was not over before");
        *content.lock().unwrap() = what;
        tree.run_until(s(120));
        for (i, host) in tree.receivers.iter().enumerate() {
            let status = host.machine.status();
            assert!(host.said(&FlowEvent::Gone), "{what:?} {i}: {status:?}");
            let end = (status.stage, status.failure.given_up);
            assert_eq!(end, (Stage::Failed, want), "{what:?} {i}");
        }
        assert_eq!(tree.source.machine.next_timeout(), None, "{what:?}");
    }
}
