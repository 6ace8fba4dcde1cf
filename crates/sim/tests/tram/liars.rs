//! Misbehaving ends: silent or absurd members, heads that repair nothing, and eager heads.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Cx, FlowId, NodeId, Time};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::pgm::wire::checksum;
use faircast_proto::relay::Relay;
use faircast_proto::tram::OPTIONS;
use faircast_proto::transport::Role;
use faircast_proto::{FlowEvent, FlowMachine, Machine, Transmit, passes_on};
use faircast_scenario::{Flow, Program};
use faircast_sim::{Builtin, Protocols};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    NeverAcknowledges,
    /// Repeats its first acknowledgement, which lacks the next packet, for ever.
    StandsStill,
    Absurd,
    ServesNothing,
    /// Reports unknown lost receivers with each acknowledgement.
    Accuses,
}

pub(crate) struct Ends {
    pub(crate) liars: BTreeMap<NodeId, Lie>,
    pub(crate) eager: BTreeSet<NodeId>,
}

impl Protocols for Ends {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        let mut flow = flow.clone();
        if self.eager.contains(&node) {
            let eager = ("head".to_string(), OptionValue::Text("eager".into()));
            flow.options = Options::default()
                .under(&[eager], OPTIONS)
                .under(&flow.options.of(OPTIONS), OPTIONS);
        }
        let honest = Builtin.end(&flow, id, node, role, start);
        match self.liars.get(&node) {
            Some(lie) => Box::new(Liar { honest, lie: *lie, first: None, extra: None, told: 0 }),
            None => honest,
        }
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        Builtin.relay(program, node)
    }
}

struct Liar {
    honest: FlowMachine,
    lie: Lie,
    first: Option<Vec<u8>>,
    extra: Option<(Transmit, Vec<u8>)>,
    told: u64,
}

/// Kinds of packets, and offsets in them, as in docs/tram.md.
const KIND: usize = 3;
const CHECKSUM: std::ops::Range<usize> = 6..8;
const DATA: u8 = 2;
const ACK: u8 = 9;
const FIRST_MISSING: std::ops::Range<usize> = 24..32;
const ALLOWED: std::ops::Range<usize> = 32..40;
const MEMBERS: std::ops::Range<usize> = 50..52;
const BELOW: std::ops::Range<usize> = 52..56;
const HEADS: std::ops::Range<usize> = 56..60;
const MASK: usize = 60;
const FLAGS: usize = 4;
const TELLS: u8 = 1 << 6;
const DEPARTED_MAX: u64 = 32;

fn seal(packet: &mut [u8]) {
    packet[CHECKSUM].fill(0);
    let sum = checksum(packet);
    packet[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
}

impl Liar {
    fn lie(&mut self, transmit: Transmit, packet: &mut Vec<u8>) -> bool {
        match (self.lie, packet[KIND]) {
            (Lie::NeverAcknowledges, ACK) | (Lie::ServesNothing, DATA) => return false,
            (Lie::StandsStill, ACK) => {
                let first = self.first.get_or_insert_with(|| {
                    let mut first = packet.clone();
                    first.truncate(MASK);
                    first.push(0x80);
                    seal(&mut first);
                    first
                });
                packet.clone_from(first);
            }
            (Lie::Absurd, ACK) => {
                let mut absurd = packet.clone();
                match self.told % 6 {
                    0 => absurd[ALLOWED].copy_from_slice(&(1u64 << 40).to_be_bytes()),
                    1 => absurd[FIRST_MISSING].copy_from_slice(&(1u64 << 40).to_be_bytes()),
                    2 => absurd[ALLOWED].fill(0),
                    3 => absurd.resize(MASK + 256, 0xff),
                    4 => {
                        absurd[MEMBERS].fill(0);
                        absurd[BELOW].fill(0xff);
                    }
                    _ => absurd[HEADS].fill(0xff),
                }
                self.told += 1;
                seal(&mut absurd);
                self.extra = Some((transmit, absurd));
            }
            (Lie::Accuses, ACK) if packet[FLAGS] & TELLS == 0 => {
                packet[FLAGS] |= TELLS;
                let mut told = vec![DEPARTED_MAX as u8, 0, 0, 0, 0, 0, 0, 0];
                for _ in 0..DEPARTED_MAX {
                    self.told += 1;
                    told.extend_from_slice(&self.told.to_be_bytes());
                    // Receiver that never existed: no origin, no address, no members, silent.
                    told.extend_from_slice(&[0; 8]);
                    told.extend_from_slice(&[0xff; 4]);
                    told.extend_from_slice(&[0, 0, 0, 0, 0, 0, 2, 0]);
                }
                packet.splice(MASK..MASK, told);
                seal(packet);
            }
            _ => {}
        }
        true
    }
}

impl Machine for Liar {
    type Event = FlowEvent;

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((transmit, packet)) = self.extra.take() {
            buf.extend_from_slice(&packet);
            return Some(transmit);
        }
        loop {
            let transmit = self.honest.poll_transmit(cx, buf)?;
            if self.lie(transmit, buf) {
                return Some(transmit);
            }
            buf.clear();
        }
    }

    passes_on!(honest: handle_datagram, handle_timeout, handle_close, poll_membership, poll_event, next_timeout);
}
