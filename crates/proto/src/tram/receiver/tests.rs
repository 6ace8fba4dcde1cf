//! Tests of a receiver: forged claims, silence after the end, and changed settings.

use faircast_base::{NullTrace, Purpose, Rng};

use super::*;
use crate::catalog;
use crate::options::Options;
use crate::tram::{OPTIONS, announced};
use crate::world::{SOURCE, TSI, at, options};

const NODE: NodeId = NodeId(9);

fn with_cx<T>(act: impl FnOnce(&mut Cx<'_>) -> T) -> T {
    let (mut rng, mut trace) = (Rng::new(1, NODE, Purpose::Machine(0)), NullTrace);
    act(&mut Cx::new(at(0), &mut rng, &mut trace))
}

/// Receiver that begins with packet 1.
fn receiver(cx: &mut Cx<'_>) -> TramReceiver {
    let options = Options::default();
    let mut receiver = TramReceiver::new(&TramSetup::of(TSI, SOURCE, at(0), &options));
    receiver.handle_timeout(cx);
    receiver.begin_at(cx, 1);
    receiver
}

#[test]
fn beacons_alone_do_not_make_a_receiver_of_an_object_give_packets_up() {
    let next = with_cx(|cx| {
        let mut receiver = receiver(cx);
        receiver.delivery.retention = Retention::UntilReleased;
        receiver.on_highest_sent(cx, 40, false);
        let state = SourceState { sequence: 1 << 40, ..SourceState::default() };
        receiver.on_source_state(at(1000), state);
        receiver.give_up_backlog(cx);
        let window = receiver.window.as_ref().expect("it has begun");
        (window.reception.first_missing(), receiver.delivery.next)
    });
    assert_eq!(next, (1, 1));
}

#[test]
fn packets_of_which_only_forged_ones_told_are_void_once_its_head_says_so_for_a_second() {
    for (says, want) in [
        (&[(0, 20), (600, 20), (1200, 20)][..], 21),
        (&[(0, 20), (300, 20), (600, 20)], 41),
        (&[(0, 20), (600, 40), (1200, 20)], 41),
        (&[(0, 20), (600, 21), (1200, 22)], 23),
    ] {
        let end = with_cx(|cx| {
            let mut receiver = receiver(cx);
            receiver.on_highest_sent(cx, 40, false);
            for (ms, high) in says {
                cx.now = at(*ms);
                receiver.on_highest_claimed(cx, *high);
            }
            receiver.window.expect("it has begun").reception.end
        });
        assert_eq!(end, want, "{says:?}");
    }
}

#[test]
fn a_stream_whose_source_ended_and_that_no_head_repairs_is_given_up_soon() {
    for (done, want) in [(true, 31), (false, 251)] {
        let given_up_at = with_cx(|cx| {
            let mut receiver = receiver(cx);
            cx.now = at(1000);
            let state = SourceState { sequence: 40, done, ..SourceState::default() };
            receiver.on_source_state(cx.now, state);
            receiver.on_highest_sent(cx, 40, done);
            while let Some(next) = receiver.next_timeout() {
                cx.now = next;
                receiver.handle_timeout(cx);
            }
            assert!(receiver.is_over() && receiver.events.contains(&FlowEvent::Gone.into()));
            cx.now.as_nanos() / 1_000_000_000
        });
        assert_eq!(given_up_at, want, "{done}");
    }
}

#[test]
fn losses_and_packets_are_of_one_span_after_the_source_has_changed_its_settings() {
    let tree = catalog::stack("tram").expect("it is registered");
    let settings = |interval| {
        let options = options(&[("hello_interval", interval)], OPTIONS);
        announced(tree, &options).expect("short enough")
    };
    let own = Options::default();
    let setup = TramSetup::of(TSI, SOURCE, at(0), &own);
    let mut receiver = TramReceiver::following(&setup, NODE, catalog::tree_negotiation(None));
    with_cx(|cx| {
        receiver.handle_timeout(cx);
        receiver.on_settings(cx, SOURCE, &settings("100 ms")).unwrap();
        receiver.handle_timeout(cx);
        receiver.begin_at(cx, 1);
        receiver.on_highest_sent(cx, 40, false);
        assert_eq!(receiver.extent(), (40, 40));
        let changed = settings("120 ms");
        let believed = (1..100).find(|second| {
            cx.now = at(1000 * second);
            receiver.on_settings(cx, SOURCE, &changed).is_ok()
        });
        assert!(believed.is_some_and(|second| second > 1), "{believed:?}");
        receiver.handle_timeout(cx);
        assert_eq!(receiver.extent(), (40, 40));
        receiver.on_highest_sent(cx, 60, false);
        assert_eq!(receiver.extent(), (60, 60), "the first 40 are lost once");
    });
}
