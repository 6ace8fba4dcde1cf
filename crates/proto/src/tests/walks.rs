//! Tests of forged data with numbers ahead of a paused source.

use alloc::vec;

use faircast_base::{NodeId, Seq};

use super::black_holes::{BYTES, stream};
use crate::catalog::SCHEMES;
use crate::pgm::wire::{Body, Data};
use crate::world::{FIRST_RECEIVER, Fate, at, forge, s};
use crate::{FlowEvent, StreamEvent};

const FIRST: NodeId = NodeId(FIRST_RECEIVER);
const OUTSIDER: NodeId = NodeId(66);
const SENT: u32 = 50;

#[test]
fn packets_that_a_pausing_source_has_not_sent_are_forgotten() {
    for entry in SCHEMES {
        let mut world = stream(entry, (Some(SENT.into()), 1), |_, _| Fate::pass());
        world.run_until(at(10_000));
        assert_eq!(world.receivers[0].payload.len(), (SENT * BYTES) as usize, "{}", entry.name);
        let data = Data { sequence: Seq::new(SENT + 5), trail: Seq::new(0) };
        world.multicast(OUTSIDER, FIRST, &forge(&Body::Odata(data), &[], &vec![1; BYTES as usize]));
        world.run_until(at(10_500));
        assert_eq!(world.receivers[0].machine.missing_packets(), 5, "{}", entry.name);
        world.run_until(at(14_000));
        assert_eq!(world.receivers[0].machine.missing_packets(), 0, "{}", entry.name);
        world.run_until(s(60));
        let lost = world.receivers[0]
            .app
            .iter()
            .any(|it| matches!(it.1, StreamEvent::Flow(FlowEvent::Lost { .. })));
        assert!(!lost, "{}", entry.name);
    }
}
