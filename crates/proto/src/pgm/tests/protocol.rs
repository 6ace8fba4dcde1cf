//! Tests of a stream's session, one guarantee each.

use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Duration, Event, GroupId, NodeId, Time, TimeoutKind};

use super::control::{
    GROUP, SOURCE, WindowFeedback, World, at, endless, in_memory, losing, object, seq,
    source_config,
};
use crate::congestion::{Audience, boxed_feedback};
use crate::pgm::wire::{Body, OptionType, PacketType};
use crate::pgm::{PgmReceiver, ReceiverConfig};
use crate::world::{Host, Log};
use crate::{Datagram, Destination, FlowEvent, Machine};

pub(super) fn is_delivered(event: &Event) -> bool {
    matches!(event, Event::Delivered { .. })
}

pub(super) fn delivered(host: &Host<PgmReceiver>) -> Vec<u64> {
    let seq = |(_, event): &(Time, Event)| match event {
        Event::Delivered { seq, .. } => Some(*seq),
        _ => None,
    };
    host.log.events.iter().filter_map(seq).collect()
}

fn times(log: &Log, wanted: impl Fn(&Event) -> bool) -> Vec<Time> {
    log.events.iter().filter(|(_, event)| wanted(event)).map(|(at, _)| *at).collect()
}

fn is_expiry(event: &Event) -> bool {
    matches!(event, Event::Timeout { kind: TimeoutKind::SessionExpiry, .. })
}

#[test]
fn without_loss_everything_arrives_in_order_and_nobody_complains() {
    let mut world = World::simple(3, 10_050);
    world.deliver_by(at(60_000), 10_050);
    assert_eq!(world.sent_of(PacketType::Odata), 101);
    for kind in [PacketType::Nak, PacketType::Ncf, PacketType::Rdata, PacketType::Spmr] {
        assert_eq!(world.sent_of(kind), 0, "{kind:?}");
    }
    assert!(world.source.completed());
    assert_eq!(world.source.machine.next_timeout(), None);
    assert_eq!(world.source.log.count(|e| *e == Event::Completed { bytes: 10_050 }), 1);
    for host in &world.receivers {
        assert_eq!(host.log.count(is_delivered), 101);
        assert_eq!(host.log.count(|e| *e == Event::Completed { bytes: 10_050 }), 1);
        assert_eq!(host.log.count(|e| matches!(e, Event::BadInput { .. })), 0);
    }
    for sent in &world.sent {
        let packet = sent.packet();
        if let Body::Odata(data) = packet.body {
            let number = data.sequence.value();
            assert_eq!(packet.options.has(OptionType::SYN), number == 0);
            assert_eq!(packet.options.has(OptionType::FIN), number == 100);
            assert_eq!(sent.transmit.payload_len, if number == 100 { 50 } else { 100 });
            assert!(!sent.transmit.router_alert);
        }
    }
}

#[test]
fn an_object_of_nothing_is_complete_at_once() {
    let mut world = World::simple(2, 0);
    world.run_until(at(30_000));
    world.assert_all_delivered(&[]);
    assert_eq!(world.sent_of(PacketType::Odata), 0);
    assert!(world.source.completed());
}

#[test]
fn heartbeats_double_after_data_and_ambient_spms_go_on_beside_them() {
    let mut config = source_config();
    config.settings.spm_interval = Duration::from_millis(950);
    config.settings.linger = Duration::from_secs(20);
    let mut world = World::new(config, in_memory(100), [ReceiverConfig::new(GROUP)], 1);
    world.run_until(at(7_000));
    assert_eq!(world.times_of(PacketType::Odata), [0]);
    let spms = world.times_of(PacketType::Spm);
    // At 0 ms the first ambient SPM, and one that announces the end.
    let ambient = (0..8).map(|n| 950 * n);
    let heartbeat = [0, 100, 300, 700, 1500, 3100, 6300];
    let mut want: Vec<_> = ambient.chain(heartbeat).collect();
    want.sort_unstable();
    assert_eq!(spms, want);
    let fins = world.sent.iter().filter(|sent| sent.packet().kind() == PacketType::Spm);
    assert!(fins.skip(1).all(|sent| sent.packet().options.has(OptionType::FIN)));
}

#[test]
fn a_receiver_without_spm_asks_for_one_and_then_for_its_packets() {
    let mut config = source_config();
    config.settings.spm_interval = Duration::from_secs(1000);
    config.settings.heartbeat_min = Duration::from_secs(1000);
    let mut world = World::new(config, in_memory(1_000), [ReceiverConfig::new(GROUP)], 1)
        .with_network(losing(|hop| {
            let early = hop.kind == PacketType::Spm && hop.now < at(50);
            early || hop.is_data() && hop.seq() == Some(3)
        }));
    world.deliver_by(at(3_000), 1_000);
    // One to the group, limited to the neighbours, and one to the source.
    let requests: Vec<_> =
        world.sent.iter().filter(|sent| sent.packet().kind() == PacketType::Spmr).collect();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        (requests[0].transmit.to, requests[0].transmit.time_to_live),
        (Destination::Group(GroupId::SESSION), 1)
    );
    assert_eq!(requests[1].transmit.to, Destination::Node(SOURCE));
    assert!(requests[0].at <= at(400));
    let answers = world.times_of(PacketType::Spm).iter().filter(|at| **at > 50).count();
    assert_eq!(answers, 1);
}

#[test]
fn a_late_joiner_gets_what_comes_and_with_a_join_option_what_was() {
    for (start, first) in [(at(200), 100..400), (at(25), 0..1)] {
        let mut late = ReceiverConfig::new(GROUP);
        late.start = start;
        let receivers = [ReceiverConfig::new(GROUP), late];
        let mut world = World::new(source_config(), in_memory(50_000), receivers, 1);
        world.run_until(at(30_000));
        let (early, late) = (&world.receivers[0], &world.receivers[1]);
        assert!(early.completed() && early.payload == object(50_000));
        let begin = delivered(late)[0] as usize;
        assert!(first.contains(&begin), "from {begin} on");
        assert!(late.payload == object(50_000)[100 * begin..]);
        assert_eq!(late.said(&FlowEvent::Gone), begin > 0);
        assert!(late.log.events[0].0 >= start, "it says nothing before its start");
    }
}

#[test]
fn elections_are_answered_by_ack_or_by_a_nak_that_asks_for_nothing() {
    for (election, kind, answers) in
        [(Audience::SenderAck, PacketType::Ack, 1), (Audience::SenderNak, PacketType::Nnak, 1)]
    {
        let configs = [ReceiverConfig::new(GROUP)];
        let mut world = World::new(source_config(), in_memory(100), configs, 1);
        let mut feedback = WindowFeedback::new(NodeId(10));
        feedback.election = election;
        world.receivers[0].machine =
            PgmReceiver::new(ReceiverConfig::new(GROUP), boxed_feedback(feedback));
        world.run_until(at(3_000));
        assert_eq!(world.sent_of(kind), answers, "{election:?}");
        assert_eq!(world.source.machine.window().acks, u32::from(kind == PacketType::Ack));
        assert_eq!(world.source.machine.window().naks, u32::from(kind == PacketType::Nnak));
        for kind in [PacketType::Ncf, PacketType::Rdata] {
            assert_eq!(world.sent_of(kind), 0, "{election:?}");
        }
    }
}

#[test]
fn who_leaves_is_whom_its_reports_name_and_not_the_address_they_come_from() {
    let configs = vec![ReceiverConfig::new(GROUP); 2];
    let mut world = World::new(source_config(), endless(), configs, 1);
    // A host chooses its own number; the driver of the source knows its address by another one.
    let elsewhere = WindowFeedback::new(NodeId(0x7001));
    world.receivers[0].machine =
        PgmReceiver::new(ReceiverConfig::new(GROUP), boxed_feedback(elsewhere));
    world.run_until(at(500));
    assert_eq!(world.source.machine.window().named, 0x7001);
    world.close_receiver(0);
    world.run_until(at(1_000));
    assert_eq!(world.source.machine.window().left, [NodeId(0x7001)]);
    assert_eq!(world.source.machine.window().named, 11);
}

#[test]
fn acknowledged_bytes_are_counted_once_and_the_acker_says_when_it_leaves() {
    let configs = vec![ReceiverConfig::new(GROUP); 2];
    let mut world = World::new(source_config(), endless(), configs, 1);
    world.run_until(at(500));
    let acker = world.source.machine.window().named;
    assert_eq!(acker, 10, "the first to answer");
    let bytes = |(_, event): &(Time, Event)| match event {
        Event::AckReceived { bytes, .. } => u64::from(*bytes),
        _ => 0,
    };
    let acked: u64 = world.source.log.events.iter().map(bytes).sum();
    let sent = world.sent_of(PacketType::Odata) as u64;
    assert!(acked >= 100 * (sent - 16) && acked <= 100 * sent, "{acked} of {sent} packets");

    world.close_receiver(0);
    let last = world.sent.last().unwrap();
    assert!(last.packet().options.has(OptionType::ACKER_LEAVING));
    assert!(last.packet().options.has(0x13), "with its last report");
    world.run_until(at(1_000));
    assert_eq!(world.source.machine.window().left, [NodeId(10)]);
    assert_eq!(world.source.machine.window().named, 11);
    let host = &world.receivers[0];
    assert_eq!(host.machine.next_timeout(), None);
    let silent = world.sent.iter().all(|sent| sent.from != NodeId(10) || sent.at <= at(500));
    assert!(silent, "it said nothing more");
}

#[test]
fn a_closed_source_tells_the_end_and_still_repairs() {
    let mut world = World::new(source_config(), endless(), [ReceiverConfig::new(GROUP)], 1);
    world.run_until(at(510));
    // Everything is lost for a while, including the packet sent at 520 ms.
    world.network = losing(|hop| hop.now < at(600));
    world.run_until(at(530));
    world.close_source();
    world.run_until(at(30_000));
    let sent = world.sent_of(PacketType::Odata);
    assert!(world.source.completed());
    assert!(world.receivers[0].completed(), "{:?}", world.receivers[0].last_word());
    assert_eq!(world.receivers[0].payload.len(), 100 * sent);
    assert!(!world.repaired().is_empty());
    let last = world.times_of(PacketType::Odata).last().copied();
    assert!(last <= Some(530), "no new data after the close");
}

#[test]
fn a_source_that_falls_silent_is_gone_after_the_expiry() {
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.expiry = Duration::from_secs(30);
    let mut world = World::new(source_config(), endless(), [receiver], 1)
        .with_network(losing(|hop| hop.now > at(100)));
    world.run_until(at(60_000));
    let host = &world.receivers[0];
    assert_eq!(host.last_word(), Some(&FlowEvent::Gone));
    let expiries = times(&host.log, is_expiry);
    assert_eq!(expiries.len(), 1);
    assert!(expiries[0] >= at(30_100) && expiries[0] <= at(30_111), "{expiries:?}");
    assert_eq!(host.machine.next_timeout(), None);
}

#[test]
fn what_a_source_has_said_before_is_no_sign_that_it_is_there() {
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.expiry = Duration::from_secs(30);
    for reliable in [true, false] {
        receiver.settings.reliable = reliable;
        let receiver = receiver.clone();
        let mut world = World::new(source_config(), endless(), [receiver], 1)
            .with_network(losing(|hop| hop.now > at(100) || hop.seq() == Some(5)));
        world.run_until(at(20_000));
        let node = world.receivers[0].node;
        let said: Vec<_> = world.sent.iter().filter(|sent| sent.at <= at(100)).collect();
        let from = said[0].from;
        let said: Vec<_> =
            said.iter().filter(|s| s.from == from).map(|s| (s.bytes.clone(), s.transmit)).collect();
        assert!(said.len() > 10, "{}", said.len());
        for second in 20..60 {
            world.run_until(at(second * 1000));
            for (bytes, transmit) in &said {
                let datagram = Datagram::new(from, Destination::Group(GroupId::SESSION), bytes);
                world.inject(node, Datagram { zeros: transmit.zeros, ..datagram });
            }
        }
        let host = &world.receivers[0];
        assert_eq!(host.last_word(), Some(&FlowEvent::Gone), "{reliable}");
        let gone = times(&host.log, is_expiry)[0];
        assert!(gone <= at(50_111), "{reliable}: {gone}");
    }
}

#[test]
fn events_of_the_window_are_sparse() {
    let mut world = World::simple(1, 100_000);
    world.run_until(at(5_000));
    let at = times(&world.source.log, |event| matches!(event, Event::Window { .. }));
    assert!(at.len() > 10);
    assert!(at.windows(2).all(|pair| pair[1].since(pair[0]) >= Duration::from_millis(10)));
    assert_eq!(world.source.machine.window().idle, 1, "idle once, after the end");
}

#[test]
fn sequence_numbers_may_wrap_in_mid_session() {
    let mut config = source_config();
    config.first = seq(u32::MAX - 20);
    let mut world = World::new(config, in_memory(10_000), vec![ReceiverConfig::new(GROUP); 2], 1)
        .with_network(losing(|hop| hop.is_data() && hop.nth % 7 == 3));
    world.deliver_by(at(20_000), 10_000);
    let first = u64::from(u32::MAX - 20);
    assert_eq!(delivered(&world.receivers[0]), (first..first + 100).collect::<Vec<_>>());
}

#[test]
fn a_machine_begins_with_its_start_as_first_timeout_and_keeps_small() {
    let mut config = source_config();
    config.start = at(700);
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.start = at(300);
    let mut world = World::new(config, in_memory(1_000), [receiver], 1);
    assert_eq!(world.source.machine.next_timeout(), Some(at(700)));
    assert_eq!(world.receivers[0].machine.next_timeout(), Some(at(300)));
    world.run_until(at(650));
    assert!(world.sent.is_empty());
    world.deliver_by(at(3_000), 1_000);
    // A simulation has ten thousand receivers, each with a scheme's half of some hundred bytes.
    assert!(size_of::<PgmReceiver>() < 1200);
}
