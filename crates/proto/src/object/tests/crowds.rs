//! Tests of the cost of a transfer as the group grows.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use std::vec::Vec;

use faircast_base::{Duration, Seq};

use super::world::*;
use crate::object::Fec;
use crate::pgm::wire::{Body, OptionType, PacketType};

/// Returns the overhead in data, and the packets of each receiver, at a loss of 1 %.
fn cost(receivers: usize, fec: Fec) -> (f64, f64) {
    let choices = Choices { fec, give_up: Duration::from_secs(600), ..Choices::default() };
    let mut world = World::new(128_000, receivers, &choices, 9).with_network(losing_data(0.01));
    world.spacing = ms(1);
    world.run_to_end(s(600));
    world.assert_all_complete();
    let feedback: u64 = world.receivers.iter().map(|host| host.sent).sum();
    (world.overhead(), feedback as f64 / receivers as f64)
}

#[test]
fn parity_keeps_the_cost_of_a_large_group_low() {
    for (receivers, with, without) in
        [(1, 1.03, 1.03), (10, 1.10, 1.15), (100, 1.15, 1.9), (1000, 1.25, 3.5)]
    {
        let (overhead, each) = cost(receivers, Fec::Auto);
        assert!(overhead < with, "{receivers} with parity: {overhead}");
        let (plain, plain_each) = cost(receivers, Fec::Off);
        assert!(plain < without, "{receivers} without parity: {plain}");
        if receivers >= 10 {
            assert!(overhead < plain, "{receivers}: {overhead} {plain}");
        }
        // One receiver acknowledges each packet.
        let acks = 1500.0 / receivers as f64;
        assert!(each - acks < 40.0, "{receivers}: {each}");
        assert!(plain_each - acks * without < 80.0, "{receivers}: {plain_each}");
    }
}

fn confirmed_reports(receivers: usize) -> usize {
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    let mut lose = losing_data(0.02);
    let choices = Choices { wait_for: receivers as u32, ..Choices::default() };
    let mut world = World::new(300_000, receivers, &choices, 3).with_network(move |hop, rng| {
        let of_report = hop.kind == PacketType::Ncf && !hop.has(OptionType::CONFIRM);
        seen.set(seen.get() + usize::from(of_report));
        lose(hop, rng)
    });
    world.run_to_end(s(600));
    world.assert_all_complete();
    count.get()
}

#[test]
fn reports_of_losses_are_confirmed_to_a_crowd_and_not_to_a_few() {
    assert_eq!(confirmed_reports(3), 0);
    assert!(confirmed_reports(12) > 0);
}

#[test]
fn a_request_names_the_loss_that_its_report_speaks_of() {
    const LOST: u32 = 40;
    let named = Rc::new(RefCell::new(Vec::new()));
    let seen = named.clone();
    let mut world = World::new(50_000, 1, &Choices::default(), 1).with_network(move |hop, _| {
        match hop.packet.body {
            Body::Odata(data) if data.sequence == Seq::new(LOST) => return Fate::drop(),
            Body::Odata(data) if data.sequence.after(Seq::new(LOST)) => {
                seen.borrow_mut().push(None);
            }
            Body::Nnak(nak) if hop.has(OptionType::WANT) => {
                seen.borrow_mut().push(Some(nak.first.value()));
            }
            _ => {}
        }
        Fate::pass()
    });
    world.run_to_end(s(60));
    world.assert_all_complete();
    let named = named.borrow();
    let after: Vec<_> = named.iter().skip_while(|what| what.is_some()).flatten().collect();
    assert!(!after.is_empty() && after.iter().all(|seq| **seq == LOST), "{after:?}");
}
