//! Test bench: an element with the source behind port 0 and receivers behind ports 1 to 3.

use std::vec::Vec;

use faircast_base::{
    Cx, Duration, Event, FlowId, GroupId, NodeId, Purpose, Rng, Seq, Time, TimeoutKind,
};

use crate::Datagram;
use crate::catalog::SCHEMES;
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccReport};
pub(super) use crate::pgm::DATA_PORT;
use crate::pgm::element::*;
use crate::pgm::wire::Data;
use crate::relay::PacketKey;
use crate::world::Log;
pub(super) use crate::world::{GROUP, SOURCE, TSI, ms, packet};

pub(super) const ME: NodeId = NodeId(10);
pub(super) const RECEIVER: NodeId = NodeId(20);
pub(super) const FLOW: FlowId = FlowId(3);

pub(super) struct Bench {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) log: Log,
    pub(super) element: PgmElement,
    pub(super) key: u64,
    pub(super) last: (Vec<u8>, u32),
    pub(super) handling: Handling,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    Confirm(u32, Vec<u32>),
    Ask(Vec<u32>),
    Repair(u32, u32),
    Null(u32),
}

pub(super) const POLICIES: [Suppression; 5] = [
    Suppression::None,
    Suppression::Rfc3208,
    Suppression::Loss,
    Suppression::Throughput,
    Suppression::Random,
];

pub(super) fn spm(sequence: u32, path: NodeId) -> Vec<u8> {
    let (trail, lead) = (Seq::new(0), Seq::new(99));
    let body = Body::Spm(Spm { sequence: Seq::new(sequence), trail, lead, path: path.into() });
    encode(Header::downstream(TSI, DATA_PORT), &body, &[], None)
}

pub(super) fn nak_body(first: u32) -> Nak {
    Nak { first: Seq::new(first), source: SOURCE.into(), group: GROUP }
}

pub(super) fn nak(seqs: &[u32], report: Option<PgmccReport>) -> Vec<u8> {
    encode(Header::upstream(TSI, DATA_PORT), &Body::Nak(nak_body(seqs[0])), &seqs[1..], report)
}

pub(super) fn ncf(seqs: &[u32]) -> Vec<u8> {
    encode(Header::downstream(TSI, DATA_PORT), &Body::Ncf(nak_body(seqs[0])), &seqs[1..], None)
}

pub(super) fn data(seq: u32, repair: bool, announce: Option<PgmccAnnounce>) -> Vec<u8> {
    let data = Data { sequence: Seq::new(seq), trail: Seq::new(0) };
    let body = if repair { Body::Rdata(data) } else { Body::Odata(data) };
    packet(&body, |encoder| {
        if let Some(announce) = &announce {
            encoder.scheme_option(announce);
        }
        encoder.payload(|_| 1400);
    })
}

pub(super) fn encode(
    header: Header,
    body: &Body,
    list: &[u32],
    report: Option<PgmccReport>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, &header, body);
    encoder.nak_list(list.iter().map(|&seq| Seq::new(seq)));
    if let Some(report) = report {
        encoder.scheme_option(&report);
    }
    encoder.finish();
    bytes
}

pub(super) fn report(echo_ms: u32, loss: u16) -> Option<PgmccReport> {
    Some(PgmccReport { echo_ms, loss, receiver: Some(RECEIVER) })
}

impl Bench {
    pub(super) fn empty(config: ElementConfig) -> Self {
        let rng = Rng::new(1, ME, Purpose::Relay);
        let element = PgmElement::new(ME, config, SCHEMES);
        let (now, log, last) = (Time::ZERO, Log::keeping(), (Vec::new(), 0));
        Self { now, rng, log, element, key: 0, last, handling: Handling::Drop }
    }

    pub(super) fn new(config: ElementConfig) -> Self {
        let mut bench = Self::empty(config);
        bench.source_sends(0, spm(0, SOURCE), 0);
        bench.sent();
        bench
    }

    pub(super) fn packet(
        &mut self,
        port: u32,
        from: NodeId,
        to: Destination,
        bytes: &[u8],
        zeros: u32,
    ) -> Handling {
        let ports_out: Vec<_> = (0..4).filter(|&out| out != port).map(PortId).collect();
        let datagram = Datagram { zeros, ..Datagram::new(from, to, bytes) };
        self.key += 1;
        let packet = RelayPacket {
            key: PacketKey(self.key),
            flow: FLOW,
            port: PortId(port),
            ports_out: &ports_out,
            datagram,
            time_to_live: 16,
        };
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.log);
        let mut altered = Vec::new();
        self.handling = self.element.handle_packet(&mut cx, &packet, &mut altered);
        let bytes = if self.handling == Handling::Alter { altered } else { bytes.to_vec() };
        self.last = (bytes, zeros);
        self.handling
    }

    pub(super) fn source_sends(&mut self, port: u32, bytes: Vec<u8>, zeros: u32) -> Handling {
        self.packet(port, SOURCE, Destination::Group(GroupId::SESSION), &bytes, zeros)
    }

    pub(super) fn nak(
        &mut self,
        port: u32,
        seqs: &[u32],
        report: Option<PgmccReport>,
    ) -> Vec<Output> {
        let handling = self.packet(port, RECEIVER, Destination::Node(ME), &nak(seqs, report), 0);
        assert_eq!(handling, Handling::Drop);
        self.sent()
    }

    pub(super) fn ncf(&mut self, port: u32, seqs: &[u32]) -> Vec<Output> {
        assert_eq!(self.source_sends(port, ncf(seqs), 0), Handling::Drop);
        self.sent()
    }

    pub(super) fn rdata(&mut self, seq: u32) -> Vec<Output> {
        let handling = self.source_sends(0, data(seq, true, None), 1400);
        assert!(matches!(handling, Handling::Hold | Handling::Drop));
        self.sent()
    }

    pub(super) fn advance(&mut self, span: Duration) -> Vec<Output> {
        let (end, mut sent) = (self.now + span, Vec::new());
        while let Some(at) = self.element.next_timeout().filter(|&at| at <= end) {
            assert!(at >= self.now);
            self.now = at;
            let mut cx = Cx::new(at, &mut self.rng, &mut self.log);
            self.element.handle_timeout(&mut cx);
            sent.append(&mut self.sent());
        }
        self.now = end;
        sent
    }

    pub(super) fn drain(&mut self) -> Vec<(Egress, Vec<u8>)> {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.log);
        core::iter::from_fn(|| {
            let mut buf = Vec::new();
            Some((self.element.poll_transmit(&mut cx, &mut buf)?, buf))
        })
        .collect()
    }

    pub(super) fn sent(&mut self) -> Vec<Output> {
        let mut sent = Vec::new();
        let mut holds = core::mem::replace(&mut self.handling, Handling::Drop) == Handling::Hold;
        for (egress, bytes) in self.drain() {
            match egress {
                Egress::Send(transmit) => sent.push(brief(&transmit, &bytes)),
                Egress::Copy(key, port) => {
                    assert!(holds && key == PacketKey(self.key), "it holds what it copies");
                    let packet = Packet::decode(&self.last.0, self.last.1).unwrap();
                    let Body::Rdata(data) = packet.body else { panic!("{packet:?}") };
                    sent.push(Output::Repair(port.0, data.sequence.value()));
                }
                Egress::Release(key) => {
                    assert!(holds && key == PacketKey(self.key));
                    holds = false;
                }
                Egress::Await(_) => panic!("an element waits for no port"),
            }
        }
        assert!(!holds, "nothing is held for long");
        sent
    }

    pub(super) fn path(&self) -> Option<NodeId> {
        let packet = Packet::decode(&self.last.0, self.last.1).ok()?;
        let Body::Spm(spm) = packet.body else { return None };
        spm.path.node()
    }

    pub(super) fn timeouts(&self, which: TimeoutKind) -> usize {
        self.log.count(|event| matches!(event, Event::Timeout { kind, .. } if *kind == which))
    }
}

pub(super) fn brief(sent: &RelayTransmit, bytes: &[u8]) -> Output {
    let packet = Packet::decode(bytes, sent.zeros).expect("an element sends good packets");
    assert_eq!((packet.tsi(), sent.flow), (TSI, FLOW));
    let port = sent.port.expect("an element knows the port").0;
    let seqs = || packet.nak_sequence().map(|seq| seq.value()).collect();
    match packet.body {
        Body::Ncf(nak) => {
            assert_eq!((sent.to, sent.from), (Destination::Group(GroupId::SESSION), SOURCE));
            assert_eq!((nak.source.node(), nak.group), (Some(SOURCE), GROUP));
            assert!(sent.router_alert);
            Output::Confirm(port, seqs())
        }
        Body::Nak(nak) => {
            assert_eq!((port, sent.to, sent.from), (0, Destination::Node(SOURCE), ME));
            assert_eq!(nak.source.node(), Some(SOURCE));
            Output::Ask(seqs())
        }
        Body::Nnak(nak) => Output::Null(nak.first.value()),
        other => panic!("an element does not send {other:?}"),
    }
}

pub(super) fn confirm(port: u32, seqs: &[u32]) -> Output {
    Output::Confirm(port, seqs.to_vec())
}

pub(super) fn ask(seqs: &[u32]) -> Output {
    Output::Ask(seqs.to_vec())
}
