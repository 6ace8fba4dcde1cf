//! Whatever is registered runs as a stream and as a transfer, follows what the source announces, and
//! says so at both ends where the two speak different schemes.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::RefCell;
use std::collections::BTreeMap;

use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, Time, Trace};
use faircast_proto::catalog::{self, SCHEMES, SchemeEntry};
use faircast_proto::congestion::Guarantees;
use faircast_proto::congestion::{
    Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, Scheme, SenderControl, Wire,
};
use faircast_proto::content::{InMemory, Packets};
use faircast_proto::object::{
    ContentSupply, Fec, InOrder, MemberState, ObjectReceiver, ObjectReceiverSetup, ObjectSource,
    ObjectSourceSetup, SlowPolicy, Stage,
};
use faircast_proto::options::{OptionSpec, OptionValue, Options, whole};
use faircast_proto::pgm::negotiation::SchemeMismatch;
use faircast_proto::pgm::wire::{Gsi, Nla, Packet, PacketType, Tsi};
use faircast_proto::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use faircast_proto::scheme_entry;
use faircast_proto::{AppEvent, Datagram, Destination, Machine, Transmit};

const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };
const SOURCE: NodeId = NodeId(1);
const DELAY: Duration = Duration::from_millis(10);

/// A scheme that this build does not know: a packet each millisecond, and no reports.
struct Metronome;

struct Beat {
    next: Time,
}

struct Mute;

thread_local! {
    /// The setting `beats` with which each receiver's side was made.
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

impl Scheme for Metronome {
    const NAME: &'static str = "metronome";
    const ABOUT: &'static str = "a packet each millisecond";
    const OPTIONS: &'static [OptionSpec] =
        &[whole("beats", (1, 9), "1", "none"), whole("bars", (1, 9), "1", "none")];
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

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Option<Note<0x70>> {
        Some(self.on_sent(cx, seq, len))
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: Carrier, _: &Note<0x71>) {}

    fn on_leave(&mut self, _: &mut Cx<'_>, _: NodeId) {}

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

    fn report_for_nak(&mut self, _: &mut Cx<'_>) -> Option<Note<0x71>> {
        None
    }

    fn on_timeout(&mut self, _: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

const METRONOME: SchemeEntry = scheme_entry!(Metronome);

/// All that are registered, and one that is not.
fn all() -> impl Iterator<Item = &'static SchemeEntry> {
    SCHEMES.iter().chain([&METRONOME])
}

/// Settings, with the scheme announced or not.
fn options(entry: &SchemeEntry, announced: bool, more: &[(&str, OptionValue)]) -> Options {
    let announce = ("announce_scheme".to_string(), OptionValue::Bool(announced));
    let more = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
    Options::checked([announce].into_iter().chain(more), entry.options).unwrap()
}

#[derive(Default)]
struct Log {
    refused: usize,
    bad: Vec<BadInput>,
}

impl Trace for Log {
    fn emit(&mut self, _: Time, event: Event) {
        if let Event::BadInput { reason } = event {
            self.refused += usize::from(reason == BadInput::OtherScheme);
            self.bad.push(reason);
        }
    }
}

struct Host<M> {
    node: NodeId,
    machine: M,
    rng: Rng,
    log: Log,
    app: Vec<AppEvent>,
    sent: BTreeMap<u8, usize>,
}

impl<M: Machine> Host<M> {
    fn new(node: NodeId, machine: M) -> Self {
        let rng = Rng::new(1, node, Purpose::Machine(0));
        Self { node, machine, rng, log: Log::default(), app: Vec::new(), sent: BTreeMap::new() }
    }

    fn act<T>(&mut self, now: Time, act: impl FnOnce(&mut M, &mut Cx<'_>) -> T) -> T {
        act(&mut self.machine, &mut Cx { now, rng: &mut self.rng, trace: &mut self.log })
    }

    fn drain(&mut self, now: Time) -> Vec<(Transmit, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            let mut buf = Vec::new();
            match self.act(now, |machine, cx| machine.poll_transmit(cx, &mut buf)) {
                Some(transmit) => sent.push((transmit, buf)),
                None => break,
            }
        }
        self.app.extend(std::iter::from_fn(|| self.machine.poll_event()));
        for (_, bytes) in &sent {
            let kind = Packet::decode(bytes, 0).unwrap().kind();
            *self.sent.entry(kind as u8).or_default() += 1;
        }
        sent
    }

    fn sent(&self, kind: PacketType) -> usize {
        self.sent.get(&(kind as u8)).copied().unwrap_or(0)
    }

    /// What it delivered.
    fn bytes(&self) -> Vec<u8> {
        let delivered = self.app.iter().filter_map(|event| match event {
            AppEvent::Delivered { bytes, zeros: 0 } => Some(bytes.as_slice()),
            _ => None,
        });
        delivered.collect::<Vec<_>>().concat()
    }

    fn mismatches(&self) -> Vec<(NodeId, SchemeMismatch)> {
        let all = self.app.iter().filter_map(|event| match event {
            AppEvent::OtherScheme { node, sender, receiver } => {
                Some((*node, catalog::mismatch(sender, receiver)))
            }
            _ => None,
        });
        all.collect()
    }
}

/// A packet on its way: to whom, from whom, as what.
type Flying = (NodeId, NodeId, Destination, Vec<u8>);

/// A source and its receivers, `DELAY` apart; one packet in 20 is lost.
struct World<S, R> {
    now: Time,
    source: Host<S>,
    receivers: Vec<Host<R>>,
    flying: BTreeMap<(Time, u64), Flying>,
    launched: u64,
    rng: Rng,
    /// What the SPMs of the source say.
    spoken: Option<String>,
}

impl<S: Machine, R: Machine> World<S, R> {
    fn new(source: S, receivers: Vec<R>) -> Self {
        let receivers = receivers.into_iter().zip(10..).map(|(r, i)| Host::new(NodeId(i), r));
        Self {
            now: Time::ZERO,
            source: Host::new(SOURCE, source),
            receivers: receivers.collect(),
            flying: BTreeMap::new(),
            launched: 0,
            rng: Rng::new(7, NodeId(0), Purpose::Fault),
            spoken: None,
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = Time::ZERO + Duration::from_secs(seconds);
        for step in 0.. {
            assert!(step < 10_000_000, "no end at {}", self.now);
            let timers = self.receivers.iter().filter_map(|host| host.machine.next_timeout());
            let timer = timers.chain(self.source.machine.next_timeout()).min();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let Some(next) = timer.into_iter().chain(arrival).min() else { return };
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            let now = self.now;
            if arrival == Some(next) {
                let (_, (to, from, destination, bytes)) = self.flying.pop_first().unwrap();
                let datagram = Datagram {
                    from,
                    to: destination,
                    bytes: &bytes,
                    zeros: 0,
                    congestion_experienced: false,
                };
                if to == SOURCE {
                    self.source.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
                } else {
                    let host = self.receivers.iter_mut().find(|host| host.node == to).unwrap();
                    host.act(now, |machine, cx| machine.handle_datagram(cx, datagram));
                }
            } else {
                self.source.act(now, |machine, cx| machine.handle_timeout(cx));
                for host in &mut self.receivers {
                    host.act(now, |machine, cx| machine.handle_timeout(cx));
                }
            }
            let sent = self.source.drain(now);
            if let Some(spm) = sent.iter().find(|(t, _)| t.payload_len == 0) {
                self.spoken = catalog::scheme_spoken(&spm.1).or(self.spoken.take());
            }
            self.launch(SOURCE, sent);
            for i in 0..self.receivers.len() {
                let (node, sent) = (self.receivers[i].node, self.receivers[i].drain(now));
                self.launch(node, sent);
            }
        }
    }

    fn launch(&mut self, from: NodeId, sent: Vec<(Transmit, Vec<u8>)>) {
        let nodes: Vec<NodeId> = self.receivers.iter().map(|host| host.node).collect();
        for (transmit, bytes) in sent {
            let to = match transmit.to {
                Destination::Node(node) => vec![node],
                Destination::Group(_) => nodes.iter().copied().filter(|to| *to != from).collect(),
            };
            for to in to {
                if self.rng.chance(0.05) {
                    continue;
                }
                self.launched += 1;
                let flying = (to, from, transmit.to, bytes.clone());
                self.flying.insert((self.now + DELAY, self.launched), flying);
            }
        }
    }
}

/// An application's packets, each of another length.
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
    World::new(source, receivers.collect())
}

fn assert_all_written(host: &Host<PgmReceiver>, case: &str) {
    assert_eq!(host.app.last(), Some(&AppEvent::Completed), "{case}: {:?}", host.log.bad);
    let all: Vec<u8> = (0..PACKETS).flat_map(written).collect();
    assert!(host.bytes() == all, "{case}");
}

#[test]
fn streams_of_every_scheme_arrive_whole_at_four_receivers() {
    for entry in all() {
        for announced in [true, false] {
            let settings = options(entry, announced, &[]);
            let mut world = stream(entry, &settings, &vec![(entry, Options::default()); 4]);
            world.run(600);
            for host in &world.receivers {
                assert_all_written(host, entry.name);
                assert_eq!(host.log.refused, 0, "{}", entry.name);
            }
            assert!(world.source.mismatches().is_empty());
            assert_eq!(world.spoken.as_deref(), announced.then_some(entry.name));
        }
    }
}

#[test]
fn whoever_speaks_another_scheme_gets_nothing_of_a_stream_and_both_ends_say_so() {
    for sender in all() {
        for other in all().filter(|other| other.name != sender.name) {
            let settings = options(sender, true, &[]);
            let receivers = [(sender, Options::default()), (other, Options::default())];
            let mut world = stream(sender, &settings, &receivers);
            world.run(600);
            let case = format!("{} to {}", sender.name, other.name);
            assert_all_written(&world.receivers[0], &case);
            let refused = &world.receivers[1];
            let mismatch = catalog::mismatch(sender.name, other.name);
            assert_eq!(refused.mismatches(), [(SOURCE, mismatch.clone())], "{case}");
            assert_eq!(refused.app.len(), refused.app.iter().position(is_mismatch).unwrap() + 1);
            let doubts = refused.log.refused;
            assert!(doubts >= 3, "{case}: its trace says so {doubts} times");
            assert_eq!(refused.machine.next_timeout(), None, "{case}: it has ended");
            assert_eq!(world.source.mismatches(), [(refused.node, mismatch)], "{case}");
            assert_eq!(world.source.log.refused, 1, "{case}: so does the source's, once");
            let feedback = [PacketType::Nak, PacketType::Nnak, PacketType::Ack];
            assert!(feedback.iter().all(|kind| refused.sent(*kind) == 0), "{case}");
        }
    }
}

fn is_mismatch(event: &AppEvent) -> bool {
    matches!(event, AppEvent::OtherScheme { .. })
}

#[test]
fn data_alone_tells_a_registered_scheme() {
    let mut pairs = 0;
    for sender in SCHEMES {
        for other in all().filter(|other| other.name != sender.name) {
            let settings = options(sender, false, &[]);
            let mut world = stream(sender, &settings, &[(other, Options::default())]);
            world.run(60);
            let refused = &world.receivers[0];
            let mismatch = catalog::mismatch(sender.name, other.name);
            assert_eq!(refused.mismatches(), [(SOURCE, mismatch.clone())]);
            assert_eq!(world.source.mismatches(), [(refused.node, mismatch)]);
            assert!(refused.bytes().is_empty());
            assert!(world.spoken.is_none(), "nothing was announced");
            pairs += 1;
        }
    }
    assert_eq!(pairs, SCHEMES.len() * SCHEMES.len());
}

#[test]
fn receivers_follow_the_senders_settings_and_their_own_go_first() {
    let beats = |beats: i64| ("beats", OptionValue::Integer(beats));
    let sent =
        [beats(3), ("bars", OptionValue::Integer(2)), ("linger", OptionValue::Text("1 s".into()))];
    let settings = options(&METRONOME, true, &sent);
    for (own, want) in [(vec![], vec![None, Some(3)]), (vec![beats(5)], vec![Some(5), Some(5)])] {
        let own = options(&METRONOME, false, &own);
        BEATS.take();
        let mut world = stream(&METRONOME, &settings, &[(&METRONOME, own)]);
        world.run(60);
        assert_all_written(&world.receivers[0], "metronome");
        assert_eq!(BEATS.take(), want, "made before an SPM came, and once after");
    }
}

type Transfers = World<ObjectSource, ObjectReceiver>;

fn transfer(
    entry: &SchemeEntry,
    wait_for: u32,
    receivers: &[&SchemeEntry],
) -> (Transfers, Vec<u8>) {
    let content: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let settings = options(entry, true, &[]);
    let source = entry.object_source(ObjectSourceSetup {
        node: SOURCE,
        group: GROUP,
        tsi: TSI,
        data_port: 7500,
        start: Time::ZERO,
        supply: Box::new(ContentSupply::new(Box::new(InMemory(content.clone().into())), 1000)),
        symbol_bytes: 1000,
        fec: Fec::Auto,
        wait_for,
        give_up: Duration::from_secs(20),
        slow: SlowPolicy::Wait,
        options: &settings,
    });
    let receivers = receivers.iter().zip(10..).map(|(entry, i)| {
        entry.object_receiver(ObjectReceiverSetup {
            node: NodeId(i),
            group: GROUP,
            tsi: TSI,
            data_port: 7500,
            start: Time::ZERO,
            store: Box::new(InOrder::new()),
            id: u64::from(i) << 20,
            name: format!("receiver {i}"),
            options: &Options::default(),
        })
    });
    (World::new(source, receivers.collect()), content)
}

#[test]
fn transfers_of_every_scheme_complete_at_four_receivers() {
    for entry in all() {
        let (mut world, content) = transfer(entry, 4, &[entry; 4]);
        world.run(600);
        for host in &world.receivers {
            assert!(host.app.contains(&AppEvent::Completed), "{}: {:?}", entry.name, host.log.bad);
            assert!(host.bytes() == content, "{}", entry.name);
            assert_eq!(host.machine.status().mismatch, None);
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
            world.run(600);
            let case = format!("{} to {}", sender.name, other.name);
            assert!(world.receivers[0].bytes() == content, "{case}");
            let status = world.receivers[1].machine.status();
            assert_eq!(status.stage, Stage::Failed, "{case}");
            let mismatch = status.mismatch.unwrap();
            assert_eq!((&*mismatch.sender, &*mismatch.receiver), (sender.name, other.name));
            assert_eq!(status.reason, Some(mismatch.to_string()), "{case}");
            assert_eq!(status.symbols + status.parity, 0, "{case}");
            let status = world.source.machine.status();
            assert_eq!(status.stage, Stage::Finished, "{case}");
            let states: Vec<_> = status.members.iter().map(|member| member.state).collect();
            assert_eq!(states, [MemberState::Done, MemberState::Failed], "{case}");
            let reason = &status.members[1].reason;
            assert!(reason.contains(sender.name), "{case}: {reason}");
            let known = SCHEMES.iter().any(|entry| entry.name == sender.name);
            assert_eq!(reason.contains("does not know"), !known, "{case}: {reason}");
            assert!(world.now < Time::ZERO + Duration::from_secs(60), "{case}: {}", world.now);
        }
    }
}

#[test]
fn a_source_whom_nobody_understands_ends_and_says_that_nobody_has_it() {
    let (mut world, _) = transfer(&METRONOME, 1, &[&SCHEMES[0]]);
    world.run(60);
    assert!(world.source.app.contains(&AppEvent::Gone));
    let status = world.source.machine.status();
    assert_eq!(status.reason.as_deref(), Some("no receiver has got it all"));
    assert_eq!(world.source.sent(PacketType::Odata), 0, "content for nobody is not sent");
}
