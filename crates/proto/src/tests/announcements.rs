//! Tests of SPMs with an unknown SCHEME: newer versions end the receiver, malformed ones do not.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Event, GroupId, NodeId, Seq, Time};

use crate::catalog::{self, SCHEMES, SchemeEntry};
use crate::content::InMemory;
use crate::object::{
    ContentSupply, InOrder, ObjectReceiver, ObjectReceiverSetup, ObjectSourceSetup,
    ObjectTaker as _, Stage,
};
use crate::options::Options;
use crate::pgm::negotiation::{SchemeAnnouncement, SchemeMismatch};
use crate::pgm::wire::{Body, Nla, OptionType, Packet, PacketType, Spm};
use crate::pgm::{PgmReceiver, ReceiverConfig};
use crate::world::{GROUP, Host, SOURCE, TSI, forge, s};
use crate::{Datagram, Destination, FlowEvent, Machine, StreamEvent};

const MALFORMED: &[u8] = &[1, 0];
const NEWER: &[u8] = &[2, 0xff, 0, 0xfe];

struct Heard<M> {
    host: Host<M>,
    sent: Vec<Vec<u8>>,
}

impl<M: Machine<Event: Into<StreamEvent>>> Heard<M> {
    fn new(machine: M) -> Self {
        let host = Host::new(NodeId(9), machine, 1).keeping();
        let mut heard = Self { host, sent: vec![] };
        heard.act(0, |machine, cx| machine.handle_timeout(cx));
        heard
    }

    fn act(&mut self, second: u64, act: impl FnOnce(&mut M, &mut Cx<'_>)) {
        self.host.act(s(second), act);
        self.sent.extend(self.host.drain(s(second)).into_iter().map(|(_, bytes)| bytes));
    }

    fn hear(&mut self, second: u64, packet: &[u8]) {
        let datagram = Datagram::new(SOURCE, Destination::Group(GroupId::SESSION), packet);
        self.act(second, |machine, cx| machine.handle_datagram(cx, datagram));
    }

    fn app(&self) -> Vec<&StreamEvent> {
        self.host.app.iter().map(|(_, event)| event).collect()
    }

    fn refused(&self) -> Vec<BadInput> {
        let reason = |(_, event): &(Time, Event)| match event {
            Event::BadInput { reason } => Some(*reason),
            _ => None,
        };
        self.host.log.events.iter().filter_map(reason).collect()
    }
}

fn spm(sequence: u32, options: &[(u8, &[u8])]) -> Vec<u8> {
    let (trail, path) = (Seq::new(0), Nla::from_node(SOURCE));
    let body = Body::Spm(Spm { sequence: Seq::new(sequence), trail, lead: trail - 1, path });
    forge(&body, options, &[])
}

fn stream(entry: &SchemeEntry) -> Heard<PgmReceiver> {
    let options = Options::default();
    let config = ReceiverConfig::from_options(GROUP, &options);
    Heard::new(entry.stream_receiver(NodeId(9), config, &options))
}

fn transfer(entry: &SchemeEntry) -> Heard<ObjectReceiver> {
    let (store, options) = (Box::new(InOrder::default()), Options::default());
    let setup = ObjectReceiverSetup::new(NodeId(9), GROUP, TSI, store, &options);
    Heard::new(entry.object_receiver(setup))
}

fn notice(entry: &SchemeEntry) -> Vec<u8> {
    let content = Box::new(InMemory(vec![1; 10].into()));
    let (supply, options) = (Box::new(ContentSupply::new(content, 1000)), Options::default());
    let setup = ObjectSourceSetup::new(SOURCE, GROUP, TSI, supply, 1000, &options);
    let source = Heard::new(entry.object_source(setup));
    let packet = Packet::decode(&source.sent[0], 0).unwrap();
    packet.options.find(OptionType::OBJECT).unwrap().value.to_vec()
}

#[test]
fn a_sender_that_is_newer_ends_a_stream_with_the_advice_to_use_a_newer_faircast() {
    for entry in SCHEMES {
        let mut host = stream(entry);
        for second in 1..=3 {
            assert!(host.app().is_empty(), "a single packet may be anybody's");
            host.hear(second, &spm(second as u32, &[(OptionType::SCHEME, NEWER)]));
        }
        let mismatch = catalog::mismatch("", entry.name);
        assert!(mismatch.to_string().contains("use a newer faircast"), "{mismatch}");
        let SchemeMismatch { sender, receiver, .. } = mismatch;
        let want = StreamEvent::OtherScheme { node: SOURCE, sender, receiver };
        assert_eq!(host.app(), [&want], "{}", entry.name);
        assert_eq!(host.refused(), [BadInput::OtherScheme; 3], "{}", entry.name);
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
            host.hear(second, &spm(second as u32, &[(OptionType::SCHEME, NEWER)]));
        }
        let status = host.host.machine.status();
        assert_eq!(status.stage, Stage::Failed, "{}", entry.name);
        assert!(status.failure.mismatch.is_some_and(|mismatch| mismatch.is_newer()));
        assert!(status.reason.unwrap().contains("use a newer faircast"));
        host.act(4, |machine, cx| machine.handle_timeout(cx));
        let words = host.sent.concat();
        assert!(String::from_utf8_lossy(&words).contains("it is too old to know"), "{words:?}");
    }
}

#[test]
fn an_spm_with_a_malformed_scheme_is_refused_before_it_changes_anything() {
    let bad: &[(u8, &[u8])] = &[(OptionType::SCHEME, MALFORMED), (OptionType::RST, &[])];
    for entry in SCHEMES {
        let mut host = stream(entry);
        let mut other = spm(7, bad);
        other[0] ^= 1;
        other[6..8].fill(0);
        host.hear(1, &other);
        host.hear(1, &spm(1, &[]));
        host.hear(2, &spm(9, bad));
        assert_eq!(host.refused(), [BadInput::Malformed; 2], "no other session was joined");
        host.hear(3, &spm(9, &[(OptionType::FIN, &[])]));
        assert_eq!(host.refused().len(), 2, "{}: its number was not taken", entry.name);
        assert_eq!(host.app(), [&FlowEvent::Completed.into()], "{}", entry.name);
    }
}

#[test]
fn spms_with_a_malformed_scheme_do_not_keep_a_source_alive() {
    for entry in SCHEMES {
        let mut host = stream(entry);
        host.hear(1, &spm(1, &[]));
        for second in 2..1000 {
            host.act(second, |machine, cx| machine.handle_timeout(cx));
            let bad = spm(second as u32, &[(OptionType::SCHEME, MALFORMED)]);
            host.hear(second, &bad);
        }
        assert_eq!(host.app(), [&FlowEvent::Gone.into()], "{}", entry.name);
    }
}

#[test]
fn a_transfer_counts_an_spm_with_a_malformed_scheme_once_and_goes_on() {
    for entry in SCHEMES {
        let mut host = transfer(entry);
        let (object, fin) = (notice(entry), (OptionType::FIN, &[][..]));
        let object = (OptionType::OBJECT, object.as_slice());
        host.hear(1, &spm(1, &[object]));
        let stage = host.host.machine.status().stage;
        host.hear(2, &spm(2, &[object, (OptionType::SCHEME, MALFORMED), fin]));
        assert_eq!(host.refused(), [BadInput::Malformed], "{}", entry.name);
        assert_eq!(host.host.machine.status().stage, stage, "{}", entry.name);
        host.hear(3, &spm(2, &[object, fin]));
        assert_eq!(host.host.machine.status().stage, stage, "{}: it may go on", entry.name);
        host.act(6, |machine, cx| machine.handle_timeout(cx));
        assert_eq!(host.host.machine.status().stage, Stage::Failed, "{}: of a source", entry.name);
    }
}
