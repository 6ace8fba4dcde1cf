//! What a receiver makes of an SPM whose SCHEME it cannot read: one of a newer version ends it with
//! advice, a malformed one changes nothing.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use faircast_base::{
    BadInput, Cx, Duration, Event, GroupId, NodeId, Purpose, Rng, Seq, Time, Trace,
};
use faircast_proto::catalog::{self, SCHEMES, SchemeEntry};
use faircast_proto::content::InMemory;
use faircast_proto::object::{
    ContentSupply, Fec, InOrder, ObjectReceiver, ObjectReceiverSetup, ObjectSourceSetup,
    SlowPolicy, Stage,
};
use faircast_proto::options::Options;
use faircast_proto::pgm::negotiation::{SchemeAnnouncement, SchemeMismatch};
use faircast_proto::pgm::wire::{
    Body, Encoder, Gsi, Header, Nla, OptionType, Packet, PacketType, Spm, Tsi,
};
use faircast_proto::pgm::{PgmReceiver, ReceiverConfig};
use faircast_proto::{AppEvent, Datagram, Destination, Machine};

const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };
const SOURCE: NodeId = NodeId(1);
const MALFORMED: &[u8] = &[1, 0];

#[derive(Default)]
struct Log(Vec<BadInput>);

impl Trace for Log {
    fn emit(&mut self, _: Time, event: Event) {
        if let Event::BadInput { reason } = event {
            self.0.push(reason);
        }
    }
}

/// A receiver, and all that it says.
struct Host<M> {
    machine: M,
    rng: Rng,
    log: Log,
    app: Vec<AppEvent>,
    sent: Vec<Vec<u8>>,
}

impl<M: Machine> Host<M> {
    fn new(machine: M) -> Self {
        let rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
        let mut host = Self { machine, rng, log: Log::default(), app: vec![], sent: vec![] };
        host.act(0, |machine, cx| machine.handle_timeout(cx));
        host
    }

    fn act(&mut self, second: u64, act: impl FnOnce(&mut M, &mut Cx<'_>)) {
        let now = Time::ZERO + Duration::from_secs(second);
        let mut cx = Cx { now, rng: &mut self.rng, trace: &mut self.log };
        act(&mut self.machine, &mut cx);
        loop {
            let mut packet = Vec::new();
            if self.machine.poll_transmit(&mut cx, &mut packet).is_none() {
                break;
            }
            self.sent.push(packet);
        }
        self.app.extend(std::iter::from_fn(|| self.machine.poll_event()));
    }

    fn hear(&mut self, second: u64, packet: &[u8]) {
        let datagram = Datagram {
            from: SOURCE,
            to: Destination::Group(GroupId::SESSION),
            bytes: packet,
            zeros: 0,
            congestion_experienced: false,
        };
        self.act(second, |machine, cx| machine.handle_datagram(cx, datagram));
    }
}

/// An SPM of a session in which nothing has been sent, with these options.
fn spm(tsi: Tsi, sequence: u32, options: &[(u8, &[u8])]) -> Vec<u8> {
    let (trail, path) = (Seq::new(0), Nla::from_node(SOURCE));
    let body = Body::Spm(Spm { sequence: Seq::new(sequence), trail, lead: trail - 1, path });
    let mut packet = Vec::new();
    let mut encoder = Encoder::new(&mut packet, &Header::downstream(tsi, 7500), &body);
    for (kind, value) in options {
        encoder.raw_option(*kind, 0, value);
    }
    encoder.finish();
    packet
}

fn stream(entry: &SchemeEntry) -> Host<PgmReceiver> {
    let options = Options::default();
    let config = ReceiverConfig::from_options(GROUP, &options);
    Host::new(entry.stream_receiver(NodeId(9), config, &options))
}

fn transfer(entry: &SchemeEntry) -> Host<ObjectReceiver> {
    Host::new(entry.object_receiver(ObjectReceiverSetup {
        node: NodeId(9),
        group: GROUP,
        tsi: TSI,
        data_port: 7500,
        start: Time::ZERO,
        store: Box::new(InOrder::new()),
        id: 9,
        name: "nine".to_string(),
        options: &Options::default(),
    }))
}

/// What a source of ten bytes says of them on its SPMs.
fn notice(entry: &SchemeEntry) -> Vec<u8> {
    let source = Host::new(entry.object_source(ObjectSourceSetup {
        node: SOURCE,
        group: GROUP,
        tsi: TSI,
        data_port: 7500,
        start: Time::ZERO,
        supply: Box::new(ContentSupply::new(Box::new(InMemory(vec![1; 10].into())), 1000)),
        symbol_bytes: 1000,
        fec: Fec::Auto,
        wait_for: 1,
        give_up: Duration::from_secs(20),
        slow: SlowPolicy::Wait,
        options: &Options::default(),
    }));
    let packet = Packet::decode(&source.sent[0], 0).unwrap();
    packet.options.find(OptionType::OBJECT).unwrap().value.to_vec()
}

/// What the next version of the option may look like: only its first byte is sure.
fn newer() -> Vec<u8> {
    vec![2, 0xff, 0, 0xfe]
}

#[test]
fn a_sender_that_is_newer_ends_a_stream_with_the_advice_to_use_a_newer_faircast() {
    for entry in SCHEMES {
        let mut host = stream(entry);
        for second in 1..=3 {
            assert!(host.app.is_empty(), "a single packet may be anybody's");
            host.hear(second, &spm(TSI, second as u32, &[(OptionType::SCHEME, &newer())]));
        }
        let mismatch = catalog::mismatch("", entry.name);
        assert!(mismatch.to_string().contains("use a newer faircast"), "{mismatch}");
        let SchemeMismatch { sender, receiver, .. } = mismatch;
        assert_eq!(
            host.app,
            [AppEvent::OtherScheme { node: SOURCE, sender, receiver }],
            "{}",
            entry.name
        );
        assert_eq!(host.log.0, [BadInput::OtherScheme; 3], "{}", entry.name);
        host.act(4, |machine, cx| machine.handle_timeout(cx));
        let said = Packet::decode(&host.sent[0], 0).unwrap();
        assert_eq!(said.kind(), PacketType::Spmr, "the source is told");
        let said = SchemeAnnouncement::decode(said.options.find(OptionType::SCHEME).unwrap().value);
        assert_eq!(said.unwrap().scheme, entry.name);
    }
}

#[test]
fn a_sender_that_is_newer_ends_a_transfer_and_hears_why() {
    for entry in SCHEMES {
        let mut host = transfer(entry);
        for second in 1..=3 {
            host.hear(second, &spm(TSI, second as u32, &[(OptionType::SCHEME, &newer())]));
        }
        let status = host.machine.status();
        assert_eq!(status.stage, Stage::Failed, "{}", entry.name);
        assert!(status.mismatch.is_some_and(|mismatch| mismatch.is_newer()));
        assert!(status.reason.unwrap().contains("use a newer faircast"));
        host.act(4, |machine, cx| machine.handle_timeout(cx));
        let words = host.sent.concat();
        assert!(String::from_utf8_lossy(&words).contains("it is too old to know"), "{words:?}");
    }
}

#[test]
fn an_spm_with_a_malformed_scheme_is_refused_before_it_changes_anything() {
    let other = Tsi { port: 6000, ..TSI };
    let bad: &[(u8, &[u8])] = &[(OptionType::SCHEME, MALFORMED), (OptionType::RST, &[])];
    for entry in SCHEMES {
        let mut host = stream(entry);
        host.hear(1, &spm(other, 7, bad));
        host.hear(1, &spm(TSI, 1, &[]));
        host.hear(2, &spm(TSI, 9, bad));
        assert_eq!(host.log.0, [BadInput::Malformed; 2], "no other session was joined");
        host.hear(3, &spm(TSI, 9, &[(OptionType::FIN, &[])]));
        assert_eq!(host.log.0.len(), 2, "{}: its number was not taken", entry.name);
        assert_eq!(host.app, [AppEvent::Completed], "{}", entry.name);
    }
}

#[test]
fn spms_with_a_malformed_scheme_do_not_keep_a_source_alive() {
    for entry in SCHEMES {
        let mut host = stream(entry);
        host.hear(1, &spm(TSI, 1, &[]));
        for second in 2..1000 {
            host.act(second, |machine, cx| machine.handle_timeout(cx));
            let bad = spm(TSI, second as u32, &[(OptionType::SCHEME, MALFORMED)]);
            host.hear(second, &bad);
        }
        assert_eq!(host.app, [AppEvent::Gone], "{}", entry.name);
    }
}

#[test]
fn a_transfer_counts_an_spm_with_a_malformed_scheme_once_and_goes_on() {
    for entry in SCHEMES {
        let mut host = transfer(entry);
        let (object, fin) = (notice(entry), (OptionType::FIN, &[][..]));
        let object = (OptionType::OBJECT, object.as_slice());
        host.hear(1, &spm(TSI, 1, &[object]));
        let stage = host.machine.status().stage;
        host.hear(2, &spm(TSI, 2, &[object, (OptionType::SCHEME, MALFORMED), fin]));
        assert_eq!(host.log.0, [BadInput::Malformed], "{}", entry.name);
        assert_eq!(host.machine.status().stage, stage, "{}", entry.name);
        host.hear(3, &spm(TSI, 2, &[object, fin]));
        assert_eq!(host.machine.status().stage, stage, "{}: it may go on", entry.name);
        host.act(6, |machine, cx| machine.handle_timeout(cx));
        assert_eq!(host.machine.status().stage, Stage::Failed, "{}: of a source", entry.name);
    }
}
