//! What the protocol promises, one promise a test.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Duration, Event, GroupId, NodeId, Time, TimeoutKind};

use super::control::{Window, WindowFeedback};
use super::world::{
    DELAY, Fate, GROUP, Hop, SOURCE, TSI, World, at, endless, in_memory, losing, losing_data,
    object, seq, source_config,
};
use crate::congestion::Audience;
use crate::congestion::{boxed_control, boxed_feedback};
use crate::pgm::wire::{Body, OptionType, PacketType};
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, Reliability, SourceConfig};
use crate::world::{Host, Log};
use crate::{AppEvent, Datagram, Destination, Machine};

fn is_delivered(event: &Event) -> bool {
    matches!(event, Event::Delivered { .. })
}

/// The numbers of what a receiver delivered, in order.
fn delivered(host: &Host<PgmReceiver>) -> Vec<u64> {
    let seq = |(_, event): &(Time, Event)| match event {
        Event::Delivered { seq, .. } => Some(*seq),
        _ => None,
    };
    host.log.events.iter().filter_map(seq).collect()
}

/// When what a log has of this kind happened.
fn times(log: &Log, wanted: impl Fn(&Event) -> bool) -> Vec<Time> {
    log.events.iter().filter(|(_, event)| wanted(event)).map(|(at, _)| *at).collect()
}

fn is_expiry(event: &Event) -> bool {
    matches!(event, Event::Timeout { kind: TimeoutKind::SessionExpiry, .. })
}

#[test]
fn without_loss_everything_arrives_in_order_and_nobody_complains() {
    let mut world = World::simple(3, 10_050);
    world.run_until(at(60_000));
    world.assert_all_delivered(&object(10_050));
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
        assert_eq!(host.machine.window_feedback().consumed, 10_050);
        assert_eq!(host.log.count(|e| matches!(e, Event::BadInput { .. })), 0);
    }
    // Exactly the first packet says that it is the first, and the last that it is the last.
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
fn any_one_lost_packet_is_made_good() {
    type Lost = fn(&Hop<'_>) -> bool;
    let cases: [(&str, Lost); 9] = [
        ("the first SPM", |hop| hop.kind == PacketType::Spm && hop.nth == 0),
        ("the first data", |hop| hop.is_data() && hop.seq() == Some(0)),
        ("data in the middle", |hop| hop.is_data() && hop.seq() == Some(50)),
        ("the last data", |hop| hop.is_data() && hop.seq() == Some(99)),
        ("the tail", |hop| hop.is_data() && hop.seq() >= Some(90)),
        ("its NAK too", |hop| {
            hop.seq() == Some(50) && hop.is_data() || hop.kind == PacketType::Nak && hop.nth == 0
        }),
        ("its confirmation too", |hop| {
            hop.seq() == Some(50) && hop.is_data() || hop.kind == PacketType::Ncf && hop.nth == 0
        }),
        ("its repair too", |hop| {
            hop.seq() == Some(50) && hop.is_data() || hop.kind == PacketType::Rdata && hop.nth == 0
        }),
        ("ten in a row", |hop| hop.is_data() && hop.seq().is_some_and(|n| (40..50).contains(&n))),
    ];
    for (case, lost) in cases {
        let mut world = World::simple(1, 10_000).with_network(losing(lost));
        world.run_until(at(4_000));
        assert!(world.receivers[0].completed(), "{case}: {:?}", world.receivers[0].machine);
        world.assert_all_delivered(&object(10_000));
        assert_eq!(world.receivers[0].lost(), 0, "{case}");
    }
}

#[test]
fn a_lost_start_is_asked_for_where_the_source_lets_receivers() {
    // Neither SPM nor first data tell this receiver where the session begins.
    for (open_start, begin) in [(0, 100), (1, 100), (2, 0), (64, 0)] {
        let config = SourceConfig { open_start, ..source_config() };
        let mut world = World::new(config, in_memory(1_000), [ReceiverConfig::new(GROUP)], 1)
            .with_network(losing(|hop| {
                let early = hop.kind == PacketType::Spm && hop.now < at(200);
                early || hop.is_data() && hop.seq() == Some(0)
            }));
        world.run_until(at(4_000));
        let host = &world.receivers[0];
        assert_eq!(host.payload, object(1_000)[begin..], "{open_start}");
        assert_eq!(host.completed(), begin == 0, "{open_start}: else it has not got everything");
    }
}

#[test]
fn a_burst_of_losses_is_asked_for_in_one_nak_and_repaired_once_each() {
    let burst = losing_data(|n| (30..36).contains(&n));
    let mut world = World::simple(1, 10_000).with_network(burst);
    world.run_until(at(20_000));
    world.assert_all_delivered(&object(10_000));
    assert_eq!(world.sent_of(PacketType::Nak), 1);
    assert_eq!(world.sent_of(PacketType::Ncf), 1);
    assert_eq!(world.repaired(), (30..36).collect::<Vec<_>>());
    let of = |kind| world.sent.iter().find(|sent| sent.packet().kind() == kind).unwrap();
    let (nak, ncf) = (of(PacketType::Nak), of(PacketType::Ncf));
    assert!(nak.packet().nak_sequence().eq(ncf.packet().nak_sequence()), "identical");
    assert_eq!(nak.transmit.to, Destination::Node(SOURCE));
    assert_eq!(ncf.at, nak.at + DELAY, "confirmed at once");
    assert!(ncf.transmit.router_alert);
    let host = &world.receivers[0];
    assert_eq!(host.machine.window_feedback().missing, [(30, 35)]);
    assert_eq!(host.log.count(|e| matches!(e, Event::LossDetected { .. })), 6);
    let naks =
        world.source.log.count(|e| matches!(e, Event::NakReceived { seq: 30, count: 6, .. }));
    assert_eq!(naks, 1);
    assert_eq!(world.source.machine.window().naks, 1, "its report was handed on");
}

#[test]
fn ns2_settings_ask_for_each_packet_alone_and_repair_after_70_ms() {
    let burst = losing_data(|n| (30..36).contains(&n));
    let mut config = SourceConfig::ns2(SOURCE, GROUP, TSI);
    config.payload = 100;
    let mut world =
        World::new(config, in_memory(10_000), [ReceiverConfig::ns2(GROUP)], 3).with_network(burst);
    world.run_until(at(20_000));
    world.assert_all_delivered(&object(10_000));
    // What is asked for after 50 ms without confirmation is asked for but once: these are 20 ms.
    assert_eq!(world.sent_of(PacketType::Nak), 6);
    assert_eq!(world.sent_of(PacketType::Ncf), 6);
    let (ncf, rdata) = (world.times_of(PacketType::Ncf), world.times_of(PacketType::Rdata));
    let delays: Vec<_> = ncf.iter().zip(&rdata).map(|(ncf, rdata)| rdata - ncf).collect();
    assert_eq!(delays, [70; 6]);
    assert!(world.times_of(PacketType::Spm).windows(2).all(|pair| pair[1] - pair[0] <= 500));
}

#[test]
fn packets_that_only_overtake_each_other_cause_no_nak() {
    for (distance, config, naks) in
        [(1, ReceiverConfig::new(GROUP), 0), (1, ReceiverConfig::ns2(GROUP), 1)]
    {
        let content = in_memory(5_000);
        let mut world = World::new(source_config(), content, [config], 1);
        world.network = Box::new(move |hop, _| {
            // Number 20 comes after number 21, just before 22.
            let late = hop.is_data() && hop.seq() == Some(20);
            let slot = Duration::from_micros(10 * u64::from(hop.seq().unwrap_or(0)));
            let extra =
                if late { Duration::from_micros(10 * distance + 5) } else { Duration::ZERO };
            Fate { delays: vec![DELAY + slot + extra], damage: false }
        });
        world.run_until(at(5_000));
        world.assert_all_delivered(&object(5_000));
        let missing = world.receivers[0].machine.window_feedback().missing.len();
        assert_eq!(missing, naks, "found missing");
    }
}

#[test]
fn confirmations_and_copies_of_naks_silence_neighbours() {
    for (copies, at_most) in [(false, 14), (true, 14)] {
        let mut receiver = ReceiverConfig::new(GROUP);
        receiver.nak_copies = copies;
        receiver.nak_backoff = Duration::from_millis(500);
        let mut world = World::new(source_config(), in_memory(5_000), vec![receiver; 100], 1)
            .with_network(losing_data(|n| n == 20));
        world.run_until(at(5_000));
        world.assert_all_delivered(&object(5_000));
        let naks = world.source.log.count(|e| matches!(e, Event::NakReceived { .. }));
        // Of 100 receivers with back-offs over 500 at, those ask that draw less than the first one
        // and the 20 ms until its confirmation: 5 on average, 14 with probability below 1e-3.
        assert!((1..=at_most).contains(&naks), "{naks} NAKs with copies {copies}");
        assert_eq!(world.repaired(), [20]);
        let overheard: u32 =
            world.receivers.iter().map(|host| host.machine.window_feedback().overheard).sum();
        assert_eq!(overheard > 0, copies);
    }
}

#[test]
fn thousands_of_naks_for_one_packet_cost_few_confirmations() {
    let mut world = World::simple(1000, 3_000).with_network(losing_data(|n| n == 20));
    world.run_until(at(3_000));
    world.assert_all_delivered(&object(3_000));
    let naks = world.source.log.count(|e| matches!(e, Event::NakReceived { .. }));
    assert!(naks > 300, "{naks} NAKs");
    // 20 ms of round trip plus what flies, one confirmation in 10 ms.
    assert!(world.sent_of(PacketType::Ncf) <= 8, "{}", world.sent_of(PacketType::Ncf));
    assert!(world.repaired().len() <= 4, "{:?}", world.repaired());
}

#[test]
fn heartbeats_double_after_data_and_ambient_spms_go_on_beside_them() {
    let mut config = source_config();
    config.ambient_interval = Duration::from_millis(950);
    config.linger = Duration::from_secs(20);
    let mut world = World::new(config, in_memory(100), [ReceiverConfig::new(GROUP)], 1);
    world.run_until(at(7_000));
    assert_eq!(world.times_of(PacketType::Odata), [0]);
    let spms = world.times_of(PacketType::Spm);
    // At 0 ms the first ambient one, and one that says that this was all.
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
    config.ambient_interval = Duration::from_secs(1000);
    config.heartbeat_min = Duration::from_secs(1000);
    let mut world = World::new(config, in_memory(1_000), [ReceiverConfig::new(GROUP)], 1)
        .with_network(losing(|hop| {
            let early = hop.kind == PacketType::Spm && hop.now < at(50);
            early || hop.is_data() && hop.seq() == Some(3)
        }));
    world.run_until(at(3_000));
    world.assert_all_delivered(&object(1_000));
    // One to the group, for the neighbours alone, and one to the source.
    let requests: Vec<_> =
        world.sent.iter().filter(|sent| sent.packet().kind() == PacketType::Spmr).collect();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        (requests[0].transmit.to, requests[0].transmit.time_to_live),
        (Destination::Group(GroupId::SESSION), 1)
    );
    assert_eq!(requests[1].transmit.to, Destination::Node(SOURCE));
    assert!(requests[0].at <= at(400));
    // Both reach the source at once, and are answered once.
    let answers = world.times_of(PacketType::Spm).iter().filter(|at| **at > 50).count();
    assert_eq!(answers, 1);
}

#[test]
fn what_falls_out_of_the_window_is_lost_and_the_rest_goes_on() {
    let mut config = source_config();
    config.window_packets = 10;
    let receivers = vec![ReceiverConfig::new(GROUP); 2];
    let mut world = World::new(config.clone(), in_memory(50_000), receivers, 1)
        .with_network(losing(|hop| hop.to == NodeId(10) && hop.now > at(100) && hop.now < at(400)));
    let mut control = Window::new(4);
    control.named = 11;
    world.source.machine = PgmSource::new(config, in_memory(50_000), boxed_control(control));
    world.run_until(at(30_000));
    let (cut, whole) = (&world.receivers[0], &world.receivers[1]);
    assert!(whole.completed() && whole.payload == object(50_000));
    let lost = cut.lost();
    assert!(lost > 20, "{lost}");
    assert_eq!(cut.log.count(|e| matches!(e, Event::Abandoned { .. })) as u32, lost);
    assert_eq!(cut.log.count(is_delivered) as u32, 500 - lost);
    assert_eq!(cut.last_word(), Some(&AppEvent::Gone));
    // What it has is the object with a gap, in order.
    let gaps = cut.app.iter().filter(|(_, event)| matches!(event, AppEvent::Lost { .. })).count();
    assert!(gaps >= 1);
    let object = object(50_000);
    let packets = delivered(cut).into_iter().map(|seq| &object[100 * seq as usize..][..100]);
    let want: Vec<u8> = packets.flatten().copied().collect();
    assert!(cut.payload == want);
}

#[test]
fn a_nak_for_the_oldest_packet_holds_the_window_until_its_repair() {
    // Four receivers lose packet 0; the window of one packet would drop it with the next.
    let mut config = source_config();
    config.window_packets = 1;
    config.heartbeat_min = Duration::from_millis(5);
    let receivers = vec![ReceiverConfig::new(GROUP); 4];
    let mut world = World::new(config, in_memory(1_000), receivers, 1)
        .with_network(losing(|hop| hop.is_data() && hop.nth == 0));
    world.run_until(at(20_000));
    assert!(world.source.completed());
    let delivered: usize = world.receivers.iter().map(|host| host.log.count(is_delivered)).sum();
    assert!(delivered >= 36, "{delivered}");
}

#[test]
fn a_late_joiner_gets_what_comes_and_with_a_join_option_what_was() {
    for (late_join, first) in [(None, 100..400), (Some(1000), 0..1)] {
        let mut config = source_config();
        config.late_join = late_join;
        let mut late = ReceiverConfig::new(GROUP);
        late.start = at(200);
        let receivers = [ReceiverConfig::new(GROUP), late];
        let mut world = World::new(config, in_memory(50_000), receivers, 1);
        world.run_until(at(30_000));
        let (early, late) = (&world.receivers[0], &world.receivers[1]);
        assert!(early.completed() && early.payload == object(50_000));
        let begin = delivered(late)[0] as usize;
        assert!(first.contains(&begin), "from {begin} on");
        assert!(late.payload == object(50_000)[100 * begin..]);
        assert_eq!(late.said(&AppEvent::Gone), begin > 0);
        assert!(late.log.events[0].0 >= at(200), "it says nothing before its start");
    }
}

#[test]
fn where_nothing_is_repaired_holes_are_skipped_and_reports_are_few() {
    let mut config = source_config();
    config.reliability = Reliability::Unrepaired;
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.reliability = Reliability::Unrepaired;
    let mut world = World::new(config, in_memory(100_000), [receiver], 1)
        .with_network(losing_data(|n| n % 10 == 5));
    world.run_until(at(30_000));
    let host = &world.receivers[0];
    assert_eq!(world.repaired(), []);
    assert_eq!((host.log.count(is_delivered), host.lost()), (900, 100));
    assert_eq!(host.machine.window_feedback().missing.len(), 100);
    let naks = world.times_of(PacketType::Nak);
    assert!(naks.len() >= 3, "{naks:?}");
    assert!(naks.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{naks:?}");
    assert_eq!(world.sent_of(PacketType::Ncf), naks.len(), "each is confirmed");
    assert_eq!(world.source.machine.window().naks as usize, naks.len());
}

#[test]
fn elections_are_answered_by_ack_or_by_a_nak_that_asks_for_nothing() {
    for (election, kind, answers) in [
        (Audience::SenderAck, PacketType::Ack, 1),
        (Audience::SenderNak, PacketType::Nnak, 1),
        (Audience::OnNak, PacketType::Nak, 0),
    ] {
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
    // A host takes a number of its own; its address is another to the driver at the source.
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
    // All is lost for a while, among it what is sent at 520 ms.
    world.network = losing(|hop| hop.now < at(600));
    world.run_until(at(530));
    world.close_source();
    world.run_until(at(30_000));
    let sent = world.sent_of(PacketType::Odata);
    assert!(world.source.completed());
    assert!(world.receivers[0].completed(), "{:?}", world.receivers[0].machine);
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
    assert_eq!(host.last_word(), Some(&AppEvent::Gone));
    let expiries = times(&host.log, is_expiry);
    assert_eq!(expiries.len(), 1);
    assert!(expiries[0] >= at(30_100) && expiries[0] <= at(30_111), "{expiries:?}");
    assert_eq!(host.machine.next_timeout(), None);
}

#[test]
fn what_a_source_has_said_before_is_no_sign_that_it_is_there() {
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.expiry = Duration::from_secs(30);
    // Some packets are lost, and are new to the receiver when somebody repeats them.
    for reliability in [Reliability::Repaired, Reliability::Unrepaired] {
        let receiver = ReceiverConfig { reliability, ..receiver.clone() };
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
        assert_eq!(host.last_word(), Some(&AppEvent::Gone), "{reliability:?}");
        let gone = times(&host.log, is_expiry)[0];
        // The one that was lost was new when it came.
        assert!(gone <= at(50_111), "{reliability:?}: {gone}");
    }
}

#[test]
fn a_repair_and_data_that_both_wait_take_turns() {
    let lost = losing_data(|n| (200..300).contains(&n));
    let mut world = World::simple(1, 100_000).with_network(lost);
    let mut control = Window::new(1000);
    control.pace = Duration::from_millis(1);
    world.source.machine =
        PgmSource::new(source_config(), in_memory(100_000), boxed_control(control));
    world.run_until(at(10_000));
    world.assert_all_delivered(&object(100_000));
    let mut run = 0;
    let mut longest = 0;
    let mut data_left = 1000;
    for sent in &world.sent {
        match sent.packet().kind() {
            PacketType::Rdata => run += 1,
            PacketType::Odata => {
                data_left -= 1;
                run = 0;
            }
            _ => {}
        }
        if data_left > 0 {
            longest = longest.max(run);
        }
    }
    assert!(world.repaired().len() >= 100);
    assert_eq!(longest, 1, "repairs in a row while data waited");
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
    world.run_until(at(20_000));
    world.assert_all_delivered(&object(10_000));
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
    world.run_until(at(3_000));
    world.assert_all_delivered(&object(1_000));
    // Ten thousand of them in one simulation.
    assert!(size_of::<PgmReceiver>() < 1024);
}
