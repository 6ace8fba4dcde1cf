//! Tests of every scheme: streams, objects, negotiation, and different schemes at both ends.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use faircast_base::{BadInput, Cx, Duration, NodeId, Seq, Time};

use crate::catalog::{self, SCHEMES, SchemeEntry};
use crate::congestion::{
    Arrival, Audience, Carrier, Gauges, Guarantees, Permit, ReceiverFeedback, Scheme,
    SenderControl, Wire,
};
use crate::content::{InMemory, Packets};
use crate::object::{
    ContentSupply, InOrder, MemberState, ObjectReceiver, ObjectReceiverSetup, ObjectSender as _,
    ObjectSource, ObjectSourceSetup, ObjectTaker as _, Stage,
};
use crate::options::{OptionKind, OptionSpec, OptionValue, Options};
use crate::pgm::negotiation::SchemeMismatch;
use crate::pgm::wire::PacketType;
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::world::{FIRST_RECEIVER, Fate, GROUP, Host, SOURCE, SentPacket, TSI, World, s};
use crate::{FlowEvent, Machine, StreamEvent};

/// Scheme unknown to this build: a packet each millisecond, and no reports.
struct Metronome;

struct Beat {
    next: Time,
}

struct Mute;

std::thread_local! {
    static BEATS: RefCell<Vec<Option<i64>>> = const { RefCell::new(Vec::new()) };
}

struct Note<const OPTION: u8>;

impl<const OPTION: u8> Wire for Note<OPTION> {
    const OPTION: u8 = OPTION;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(7);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes == [7]).then_some(Self)
    }
}

const fn whole(name: &'static str) -> OptionSpec {
    let kind = OptionKind::Integer { min: 1, max: 9 };
    OptionSpec { name, kind, default: "1", doc: "none" }
}

impl Scheme for Metronome {
    const NAME: &'static str = "metronome";
    const ABOUT: &'static str = "a packet each millisecond";
    const OPTIONS: &'static [OptionSpec] = &[whole("beats"), whole("bars")];
    const GUARANTEES: Guarantees = Guarantees::SILENT;
    type Control = Beat;
    type Feedback = Mute;

    fn control(_: &Options) -> Beat {
        Beat { next: Time::ZERO }
    }

    fn feedback(options: &Options, _: NodeId) -> Mute {
        BEATS.with_borrow_mut(|beats| beats.push(options.integer("beats")));
        Mute
    }
}

impl SenderControl for Beat {
    type Announce = Note<0x70>;
    type Report = Note<0x71>;

    fn permit(&mut self, cx: &mut Cx<'_>, _: u32, _: bool) -> Permit {
        if self.next > cx.now { Permit::At(self.next) } else { Permit::Now }
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, _: Seq, _: u32) -> Note<0x70> {
        self.next = cx.now + Duration::from_millis(1);
        Note
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: Carrier, _: &Note<0x71>) {}

    fn on_timeout(&mut self, _: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl ReceiverFeedback for Mute {
    type Announce = Note<0x70>;
    type Report = Note<0x71>;

    fn on_data(&mut self, _: &mut Cx<'_>, _: &Arrival, _: Option<&Note<0x70>>) {}

    fn on_missing(&mut self, _: &mut Cx<'_>, _: Seq, _: Seq) {}

    fn poll_report(&mut self, _: &mut Cx<'_>) -> Option<(Audience, Note<0x71>)> {
        None
    }

    fn on_timeout(&mut self, _: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

static METRONOME: SchemeEntry = SchemeEntry::of::<Metronome>();

fn all() -> impl Iterator<Item = &'static SchemeEntry> {
    SCHEMES.iter().chain([&METRONOME])
}

fn options(entry: &'static SchemeEntry, announced: bool, more: &[(&str, OptionValue)]) -> Options {
    let announce = ("announce_scheme".to_string(), OptionValue::Bool(announced));
    let more = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
    Options::checked([announce].into_iter().chain(more), &catalog::over_pgm(entry).options())
        .unwrap()
}

fn world<S: Machine<Event: Into<StreamEvent>>, R: Machine<Event: Into<StreamEvent>>>(
    source: S,
    receivers: impl Iterator<Item = R>,
) -> World<S, R> {
    let mut world = World::of(Host::new(SOURCE, source, 1), true, 7);
    for (node, receiver) in (FIRST_RECEIVER..).zip(receivers) {
        world.receivers.push(Host::new(NodeId(node), receiver, 1));
    }
    world.network = Box::new(|_, rng| if rng.chance(0.05) { Fate::drop() } else { Fate::pass() });
    world
}

fn spoken(world: &Stream) -> Option<String> {
    let control = |s: &&SentPacket| s.from == SOURCE && s.transmit.payload_len == 0;
    let mut control = world.sent.iter().rev().filter(control);
    control.find_map(|sent| catalog::scheme_spoken(&sent.bytes))
}

fn mismatches<M>(host: &Host<M>) -> Vec<(NodeId, SchemeMismatch)> {
    let all = host.app.iter().filter_map(|(_, event)| match event {
        StreamEvent::OtherScheme { node, sender, receiver } => {
            Some((*node, catalog::mismatch(sender, receiver)))
        }
        _ => None,
    });
    all.collect()
}

struct Written(u64);

fn written(index: u64) -> Vec<u8> {
    (0..100 + index % 900).map(|i| (i * 7 + index) as u8).collect()
}

impl Packets for Written {
    fn end(&self) -> Option<u64> {
        Some(self.0)
    }

    fn ready(&mut self, _: Time, index: u64) -> Option<u32> {
        Some(self.len(index))
    }

    fn len(&self, index: u64) -> u32 {
        written(index).len() as u32
    }

    fn read(&mut self, _: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        out.extend_from_slice(&written(index));
        0
    }

    fn completed(&self, count: u64) -> Option<u64> {
        Some((0..count).map(|index| u64::from(self.len(index))).sum())
    }
}

const PACKETS: u64 = 400;

type Stream = World<PgmSource, PgmReceiver>;

fn stream(
    entry: &SchemeEntry,
    settings: &Options,
    receivers: &[(&SchemeEntry, Options)],
) -> Stream {
    let config = SourceConfig::from_options(SOURCE, GROUP, TSI, settings);
    let source = entry.stream_source(config, Box::new(Written(PACKETS)), settings);
    let receivers = receivers.iter().zip(10..).map(|((entry, options), i)| {
        let config = ReceiverConfig::from_options(GROUP, options);
        entry.stream_receiver(NodeId(i), config, options)
    });
    world(source, receivers)
}

fn assert_all_written(host: &Host<PgmReceiver>, case: &str) {
    assert_eq!(host.last_word(), Some(&FlowEvent::Completed), "{case}");
    let all: Vec<u8> = (0..PACKETS).flat_map(written).collect();
    assert!(host.payload == all, "{case}");
}

#[test]
fn streams_of_every_scheme_arrive_whole_at_four_receivers() {
    for entry in all() {
        for announced in [true, false] {
            let settings = options(entry, announced, &[]);
            let mut world = stream(entry, &settings, &vec![(entry, Options::default()); 4]);
            world.run_until(s(600));
            for host in &world.receivers {
                assert_all_written(host, entry.name);
                assert_eq!(host.log.refused(BadInput::OtherScheme), 0, "{}", entry.name);
            }
            assert!(mismatches(&world.source).is_empty());
            assert_eq!(spoken(&world).as_deref(), announced.then_some(entry.name));
        }
    }
}

#[test]
fn a_receiver_of_another_scheme_gets_nothing_of_a_stream_and_both_ends_say_so() {
    for sender in all() {
        for other in all().filter(|other| other.name != sender.name) {
            let settings = options(sender, true, &[]);
            let receivers = [(sender, Options::default()), (other, Options::default())];
            let mut world = stream(sender, &settings, &receivers);
            world.run_until(s(600));
            let case = format!("{} to {}", sender.name, other.name);
            assert_all_written(&world.receivers[0], &case);
            let refused = &world.receivers[1];
            let mismatch = catalog::mismatch(sender.name, other.name);
            assert_eq!(mismatches(refused), [(SOURCE, mismatch.clone())], "{case}");
            let last = refused.app.last();
            assert!(matches!(last, Some((_, StreamEvent::OtherScheme { .. }))), "{case}");
            let doubts = refused.log.refused(BadInput::OtherScheme);
            assert!(doubts >= 3, "{case}: its trace says so {doubts} times");
            assert_eq!(refused.machine.next_timeout(), None, "{case}: it has ended");
            assert_eq!(mismatches(&world.source), [(refused.node, mismatch)], "{case}");
            let doubts = world.source.log.refused(BadInput::OtherScheme);
            assert_eq!(doubts, 1, "{case}: so does the source's, once");
            let feedback = [PacketType::Nak, PacketType::Nnak, PacketType::Ack];
            let mut own = world.sent.iter().filter(|sent| sent.from == refused.node);
            assert!(own.all(|sent| !feedback.contains(&sent.packet().kind())), "{case}");
        }
    }
}

#[test]
fn data_alone_tells_a_registered_scheme() {
    let mut pairs = 0;
    for sender in SCHEMES {
        for other in all().filter(|other| other.name != sender.name) {
            let settings = options(sender, false, &[]);
            let mut world = stream(sender, &settings, &[(other, Options::default())]);
            world.run_until(s(60));
            let refused = &world.receivers[0];
            let mismatch = catalog::mismatch(sender.name, other.name);
            assert_eq!(mismatches(refused), [(SOURCE, mismatch.clone())]);
            assert_eq!(mismatches(&world.source), [(refused.node, mismatch)]);
            assert!(refused.payload.is_empty());
            assert!(spoken(&world).is_none(), "nothing was announced");
            pairs += 1;
        }
    }
    assert_eq!(pairs, SCHEMES.len() * SCHEMES.len());
}

#[test]
fn receivers_follow_the_senders_settings_and_their_own_go_first() {
    let beats = |beats: i64| ("beats", OptionValue::Integer(beats));
    let told =
        [beats(3), ("bars", OptionValue::Integer(2)), ("linger", OptionValue::Text("1 s".into()))];
    let settings = options(&METRONOME, true, &told);
    for (own, want) in [(vec![], vec![None, Some(3)]), (vec![beats(5)], vec![Some(5), Some(5)])] {
        let own = options(&METRONOME, false, &own);
        BEATS.take();
        let mut world = stream(&METRONOME, &settings, &[(&METRONOME, own)]);
        world.run_until(s(60));
        assert_all_written(&world.receivers[0], "metronome");
        assert_eq!(BEATS.take(), want, "made before an SPM came, and once after");
    }
}

type Transfers = World<ObjectSource, ObjectReceiver>;

fn transfer(
    entry: &'static SchemeEntry,
    wait_for: u32,
    receivers: &[&SchemeEntry],
) -> (Transfers, Vec<u8>) {
    let content: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let settings = options(entry, true, &[]);
    let supply = ContentSupply::new(Box::new(InMemory(content.clone().into())), 1000);
    let setup = ObjectSourceSetup::new(SOURCE, GROUP, TSI, Box::new(supply), 1000, &settings);
    let source = entry.object_source(ObjectSourceSetup { wait_for, ..setup });
    let receivers = receivers.iter().zip(10..).map(|(entry, i)| {
        let (node, store, options) = (NodeId(i), Box::new(InOrder::default()), Options::default());
        let setup = ObjectReceiverSetup::new(node, GROUP, TSI, store, &options);
        entry.object_receiver(setup)
    });
    (world(source, receivers), content)
}

#[test]
fn transfers_of_every_scheme_complete_at_four_receivers() {
    for entry in all() {
        let (mut world, content) = transfer(entry, 4, &[entry; 4]);
        world.run_until(s(600));
        for host in &world.receivers {
            assert!(host.said(&FlowEvent::Completed), "{}", entry.name);
            assert!(host.payload == content, "{}", entry.name);
            assert_eq!(host.machine.status().failure.mismatch, None);
        }
        let status = world.source.machine.status();
        assert_eq!(status.stage, Stage::Finished, "{}", entry.name);
        assert!(status.members.iter().all(|member| member.state == MemberState::Done));
    }
}

#[test]
fn a_receiver_of_another_scheme_counts_as_failed_and_nobody_waits_for_it() {
    for sender in all() {
        for other in all().filter(|other| other.name != sender.name) {
            let (mut world, content) = transfer(sender, 2, &[sender, other]);
            world.run_until(s(600));
            let case = format!("{} to {}", sender.name, other.name);
            assert!(world.receivers[0].payload == content, "{case}");
            let status = world.receivers[1].machine.status();
            assert_eq!(status.stage, Stage::Failed, "{case}");
            let mismatch = status.failure.mismatch.unwrap();
            assert_eq!((&*mismatch.sender, &*mismatch.receiver), (sender.name, other.name));
            assert_eq!(status.reason, Some(mismatch.to_string()), "{case}");
            assert_eq!(status.packets.symbols + status.packets.parity, 0, "{case}");
            let status = world.source.machine.status();
            assert_eq!(status.stage, Stage::Finished, "{case}");
            let states: Vec<_> = status.members.iter().map(|member| member.state).collect();
            assert_eq!(states, [MemberState::Done, MemberState::Failed], "{case}");
            let reason = &status.members[1].reason;
            assert!(reason.contains(sender.name), "{case}: {reason}");
            let known = SCHEMES.iter().any(|entry| entry.name == sender.name);
            assert_eq!(reason.contains("does not know"), !known, "{case}: {reason}");
            let over = world.sent.last().unwrap().at;
            assert!(over < s(60), "{case}: {over}");
        }
    }
}

#[test]
fn a_source_whom_nobody_understands_ends_and_says_that_nobody_has_it() {
    let (mut world, _) = transfer(&METRONOME, 1, &[&SCHEMES[0]]);
    world.run_until(s(60));
    assert!(world.source.said(&FlowEvent::Gone));
    let status = world.source.machine.status();
    assert_eq!(status.reason.as_deref(), Some("no receiver has got it all"));
    assert_eq!(world.source.data_sent, 0, "content for nobody is not sent");
}
