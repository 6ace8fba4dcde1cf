//! Tests with hand-made traces and known answers.

use faircast_base::{
    BadInput, CutReason, DropReason, LinkCounters, LinkId, NodeId, Shortfall, SwitchReason,
    TimeoutKind,
};
use faircast_trace::{FlowHeader, LinkHeader, On, Reader, SpeaksHeader, Tee, Writer};

use super::*;
use crate::summary::{Drops, TreeSummary};

fn header(warmup_s: f64) -> Header {
    let flow = |name: &str, protocol: &str, to: &[u32]| FlowHeader {
        name: name.into(),
        protocol: protocol.into(),
        to: to.iter().copied().map(NodeId).collect(),
        packet_bytes: 1000,
        ..FlowHeader::default()
    };
    Header {
        duration_s: 100.0,
        warmup_s,
        nodes: ["s", "r", "a", "b", "c"].map(String::from).to_vec(),
        links: vec![LinkHeader { to: NodeId(1), rate_bps: 8_000, ..LinkHeader::default() }],
        flows: vec![flow("mcc", "pgmcc", &[2, 3, 4]), flow("tcp", "tcp-reno", &[2])],
        ..Header::default()
    }
}

const SENDER: u32 = 0;

fn record(at_s: f64, flow: u32, node: u32, event: Event) -> Record {
    Record {
        at: Time::from_secs_f64(at_s),
        subject: Subject::Endpoint {
            flow: FlowId(flow),
            node: NodeId(node),
            sender: node == SENDER,
        },
        event,
    }
}

fn link(at_s: f64, event: Event) -> Record {
    Record { at: Time::from_secs_f64(at_s), subject: Subject::Link(LinkId(0)), event }
}

fn sent(seq: u64) -> Event {
    Event::DataSent { seq, bytes: 1000, repair: false }
}

fn delivered(seq: u64) -> Event {
    Event::Delivered { seq, bytes: 1000 }
}

fn summary(warmup_s: f64, end_s: f64, records: &[Record]) -> Summary {
    let mut metrics = Metrics::new(&header(warmup_s));
    records.iter().for_each(|record| metrics.record(record));
    metrics.finish(&Outcome {
        at: Time::from_secs_f64(end_s),
        intact: vec![vec![Some(true), Some(false), None], vec![Some(true)]],
        events: 42,
        wall_s: 0.5,
        ..Outcome::default()
    })
}

#[test]
fn multicast_throughput_is_new_payload_sent_after_the_warmup() {
    let got = summary(
        20.0,
        100.0,
        &[
            record(19.999, 0, SENDER, sent(0)),
            record(20.0, 0, SENDER, sent(1)),
            record(50.0, 0, SENDER, sent(2)),
            record(51.0, 0, SENDER, Event::DataSent { seq: 1, bytes: 1000, repair: true }),
            record(52.0, 0, SENDER, Event::AckReceived { seq: 2, bytes: 1000, from: NodeId(2) }),
        ],
    );
    // 2 x 8000 bits in 80 s.
    assert_eq!(got.flows[0].rates.throughput_bps, 200.0);
    assert_eq!((got.flows[0].counts.sent_packets, got.flows[0].counts.repair_packets), (3, 1));
    assert_eq!(got.flows[0].counts.feedback_packets, 1);
}

#[test]
fn tcp_throughput_is_payload_acknowledged_for_the_first_time() {
    let ack = |bytes| Event::AckReceived { seq: 0, bytes, from: NodeId(2) };
    let got = summary(
        0.0,
        10.0,
        &[
            record(1.0, 1, SENDER, sent(0)),
            record(1.0, 1, SENDER, sent(1)),
            record(2.0, 1, SENDER, ack(1000)),
            record(3.0, 1, SENDER, ack(0)),
        ],
    );
    assert_eq!(got.flows[1].rates.throughput_bps, 800.0);
    assert_eq!(got.flows[1].loss_ratio, Some(0.0));
}

#[test]
fn shares_are_compared_over_the_time_in_which_all_flows_were_on() {
    let mut header = header(5.0);
    header.flows[1].start_s = 10.0;
    let ack = |bytes| Event::AckReceived { seq: 0, bytes, from: NodeId(2) };
    let mut records = vec![
        record(9.9, 0, SENDER, sent(0)),
        record(10.0, 0, SENDER, sent(1)),
        record(20.0, 1, SENDER, ack(3000)),
        record(39.9, 0, SENDER, sent(2)),
    ];
    records.extend([2, 3, 4].map(|node| record(40.0, 0, node, delivered(2))));
    records.extend([2, 3, 4].map(|node| record(40.0, 0, node, Event::Completed { bytes: 3000 })));
    records.push(record(40.0, 1, SENDER, ack(30_000)));
    let summary = |header: &Header, end_s: f64| {
        let mut metrics = Metrics::new(header);
        records.iter().for_each(|record| metrics.record(record));
        metrics.finish(&Outcome { at: Time::from_secs_f64(end_s), ..Outcome::default() })
    };
    let got = summary(&header, 100.0);
    // 2 and 3 packets of 8000 bits in 30 s.
    let shares: Vec<_> = got.flows.iter().map(|flow| flow.rates.common_throughput_bps).collect();
    assert_eq!(shares, [Some(16_000.0 / 30.0), Some(24_000.0 / 30.0)]);
    let common = got.common.unwrap();
    assert_eq!((common.from_s, common.to_s), (10.0, 40.0));
    assert!((common.jain_index - 25.0 / 26.0).abs() < 1e-12, "{common:?}");
    let table = got.table();
    let row = table.lines().find(|line| line.starts_with("mcc")).unwrap();
    assert!(row.split_whitespace().nth(2) == Some("533.3"), "{table}");
    let head = "Flow  Protocol  While all on  Counted time";
    assert!(
        table.contains(head) && table.contains("Jain index 0.9615 while all were on"),
        "{table}"
    );
    let none = summary(&header, 9.0);
    assert_eq!((none.common, none.flows[0].rates.common_throughput_bps), (None, None));
    header.flows.truncate(1);
    assert_eq!(summary(&header, 100.0).common, None);
}

#[test]
fn a_flow_that_starts_late_has_its_own_average_beside_that_of_the_counted_time() {
    let mut header = header(0.0);
    header.flows[0].start_s = 50.0;
    header.flows[0].stop_s = Some(75.0);
    let mut metrics = Metrics::new(&header);
    metrics.record(&record(60.0, 0, SENDER, sent(0)));
    let got = metrics.finish(&Outcome { at: Time::from_secs_f64(100.0), ..Outcome::default() });
    assert_eq!(got.flows[0].rates.throughput_bps, 80.0);
    assert_eq!(got.flows[0].rates.active_throughput_bps, 320.0);
}

#[test]
fn what_the_network_carries_and_what_comes_back_count_while_the_flow_is_on_and_warm() {
    let again = Event::DataSent { seq: 0, bytes: 500, repair: true };
    let nak = Event::NakReceived { seq: 0, count: 1, from: NodeId(2) };
    let mut header = header(10.0);
    header.flows[0].stop_s = Some(30.0);
    let mut metrics = Metrics::new(&header);
    for (at, event) in [(5.0, sent(0)), (6.0, nak), (15.0, sent(1)), (16.0, nak), (20.0, again)] {
        metrics.record(&record(at, 0, SENDER, event));
    }
    metrics.record(&record(25.0, 0, SENDER, nak));
    let got = metrics.finish(&Outcome { at: Time::from_secs_f64(60.0), ..Outcome::default() });
    let flow = &got.flows[0];
    assert_eq!((flow.rates.throughput_bps, flow.rates.sent_bps), (160.0, 240.0));
    assert_eq!((flow.rates.feedback_per_s, flow.counts.feedback_packets), (0.1, 3));
}

#[test]
fn receivers_have_goodput_losses_and_their_time_of_completion() {
    let done = Event::Completed { bytes: 2000 };
    let got = summary(
        10.0,
        50.0,
        &[
            record(1.0, 0, SENDER, sent(0)),
            record(1.0, 0, SENDER, sent(1)),
            record(5.0, 0, 2, delivered(0)),
            record(15.0, 0, 2, delivered(1)),
            record(15.5, 0, 2, done),
            record(12.0, 0, 3, Event::LossDetected { seq: 0, count: 1 }),
            record(13.0, 0, 3, Event::Abandoned { seq: 0, count: 1 }),
            record(14.0, 0, 3, delivered(1)),
            record(30.0, 0, 4, delivered(0)),
            record(31.0, 0, 4, delivered(1)),
            record(32.0, 0, 4, done),
        ],
    );
    let [a, b, c] = &got.flows[0].receivers[..] else { panic!("three receivers") };
    assert_eq!((a.node.as_str(), a.goodput_bps, a.completed_s), ("a", 200.0, Some(15.0)));
    assert_eq!((b.lost_packets, b.abandoned_packets, b.completed_s), (1, 1, None));
    assert_eq!((b.loss_ratio, got.flows[0].loss_ratio), (0.5, Some(0.5)));
    assert_eq!((c.goodput_bps, c.completed_s), (400.0, Some(31.0)));
    assert_eq!((a.intact, b.intact, c.intact), (Some(true), Some(false), None));
    assert_eq!(got.flows[0].completed_s, None, "b lacks a packet");
}

#[test]
fn a_flow_is_complete_when_all_that_stayed_are() {
    let done = Event::Completed { bytes: 1000 };
    let got = summary(
        0.0,
        50.0,
        &[
            record(1.0, 0, SENDER, sent(0)),
            record(2.0, 0, 2, delivered(0)),
            record(2.0, 0, 2, done),
            record(3.0, 0, 3, delivered(0)),
            record(3.5, 0, 3, done),
            record(4.0, 0, 4, Event::Left),
        ],
    );
    assert_eq!(got.flows[0].completed_s, Some(3.0));
    assert!((got.flows[0].rates.active_throughput_bps - 8000.0 / 3.0).abs() < 1e-9);
}

#[test]
fn what_a_receiver_sends_counts_for_its_flow_and_is_not_offered_to_it() {
    let mut header = header(0.0);
    header.flows[0].also_from = vec![NodeId(2)];
    let mut metrics = Metrics::new(&header);
    for seq in 0..8 {
        metrics.record(&record(1.0, 0, SENDER, sent(seq)));
    }
    for seq in 0..2 {
        metrics.record(&record(2.0, 0, 2, sent(seq)));
        metrics.record(&record(3.0, 0, 3, Event::LossDetected { seq, count: 1 }));
        metrics.record(&record(3.0, 0, 2, Event::LossDetected { seq, count: 1 }));
    }
    let flow = &metrics.finish(&Outcome::default()).flows[0];
    assert_eq!((flow.from.as_str(), flow.counts.sent_packets), ("s, a", 10));
    let ratios: Vec<f64> = flow.receivers.iter().map(|receiver| receiver.loss_ratio).collect();
    assert_eq!(ratios, [2.0 / 8.0, 2.0 / 10.0, 0.0]);
}

#[test]
fn repairs_count_as_packets_where_they_have_numbers_of_their_own_and_late_packets_as_arrived() {
    let repair = |seq| Event::DataSent { seq, bytes: 1000, repair: true };
    let lost = |seq, count| Event::LossDetected { seq, count };
    let got = summary(
        0.0,
        50.0,
        &[
            record(1.0, 0, SENDER, sent(0)),
            record(2.0, 0, SENDER, sent(1)),
            record(3.0, 0, SENDER, repair(1)),
            record(4.0, 0, SENDER, repair(2)),
            record(5.0, 0, SENDER, sent(3)),
            record(6.0, 0, 2, lost(0, 3)),
            record(7.0, 0, 2, Event::LossWithdrawn { seq: 1, count: 1 }),
            record(7.0, 0, 2, Event::Abandoned { seq: 0, count: 2 }),
        ],
    );
    let receiver = &got.flows[0].receivers[0];
    assert_eq!((receiver.lost_packets, receiver.loss_ratio), (2, 0.5));
    assert_eq!(receiver.abandoned_packets, 2);
    let header = Header { on: On::Net, ..header(0.0) };
    let mut metrics = Metrics::new(&header);
    for event in [lost(4, 2), Event::SessionExtent { packets: 8 }, delivered(0)] {
        metrics.record(&record(1.0, 0, 2, event));
    }
    assert_eq!(metrics.finish(&Outcome::default()).flows[0].receivers[0].loss_ratio, 0.25);
}

#[test]
fn a_loss_ratio_counts_only_what_was_sent_during_membership() {
    let mut records = Vec::new();
    for seq in 0..100 {
        if seq == 60 {
            records.push(record(60.0, 0, 2, Event::Joined));
        }
        if seq == 80 {
            records.push(record(80.0, 0, 2, Event::Left));
        }
        records.push(record(seq as f64, 0, SENDER, sent(seq)));
    }
    records.push(record(100.0, 0, 2, Event::LossDetected { seq: 70, count: 1 }));
    records.push(record(100.0, 0, 3, Event::LossDetected { seq: 70, count: 1 }));
    let got = summary(0.0, 100.0, &records);
    assert_eq!(got.flows[0].receivers[0].loss_ratio, 1.0 / 20.0);
    assert_eq!(got.flows[0].receivers[1].loss_ratio, 1.0 / 100.0);
}

#[test]
fn links_are_judged_by_the_difference_between_warmup_and_end() {
    let sample = |busy_s: u64, queue_packet_s: u64, dropped_packets, queue_max_packets| {
        Event::LinkSample(LinkCounters {
            offered_packets: 10 * busy_s,
            sent_packets: 5 * busy_s,
            sent_bytes: 1000 * busy_s,
            dropped_packets,
            busy_ns: busy_s * 1_000_000_000,
            queue_packet_ns: queue_packet_s * 1_000_000_000,
            queue_packets: 0,
            queue_max_packets,
        })
    };
    let dropped = |reason| Event::PacketDropped { flow: FlowId(1), bytes: 1000, reason };
    let got = summary(
        20.0,
        100.0,
        &[
            link(10.0, sample(5, 100, 3, 30)),
            link(19.0, dropped(DropReason::Loss)),
            link(20.0, sample(10, 200, 3, 29)),
            link(60.0, sample(30, 300, 5, 12)),
            link(61.0, dropped(DropReason::QueueFull)),
            link(100.0, sample(70, 1000, 8, 17)),
        ],
    );
    let link = &got.links[0];
    assert_eq!((link.from.as_str(), link.to.as_str()), ("s", "r"));
    assert_eq!(link.utilisation, 60.0 / 80.0);
    assert_eq!(link.queue_mean_packets, 10.0);
    assert_eq!((link.dropped_packets, link.queue_max_packets), (5, 17));
    assert_eq!((link.sent_packets, link.throughput_bps), (300, 6000.0));
    assert_eq!(link.drop_ratio, 5.0 / 600.0);
    assert_eq!(link.drops, Drops { queue_full: 1, ..Drops::default() });
    assert_eq!(got.flows[1].faults.dropped_packets, 2);
}

#[test]
fn what_the_sender_says_is_counted() {
    let rtt = |rtt_ns| Event::RttSample { node: NodeId(2), rtt_ns };
    let chosen = |node: Option<u32>| Event::Representative {
        node: node.map(NodeId),
        reason: SwitchReason::First,
    };
    let got = summary(
        10.0,
        100.0,
        &[
            record(1.0, 0, SENDER, rtt(900_000_000)),
            record(1.0, 0, SENDER, chosen(Some(2))),
            record(2.0, 0, SENDER, Event::Cut { reason: CutReason::Loss, window_milli: 1 }),
            record(3.0, 0, SENDER, Event::Timeout { kind: TimeoutKind::Stall, after_ns: 1 }),
            record(3.0, 0, SENDER, Event::NakReceived { seq: 1, count: 1, from: NodeId(3) }),
            record(3.0, 0, 3, Event::Timeout { kind: TimeoutKind::NakRepair, after_ns: 1 }),
            record(4.0, 0, SENDER, chosen(None)),
            record(5.0, 0, SENDER, chosen(Some(3))),
            record(11.0, 0, SENDER, rtt(200_000_000)),
            record(12.0, 0, SENDER, rtt(300_000_000)),
        ],
    );
    let flow = &got.flows[0];
    assert_eq!((flow.counts.cuts, flow.counts.timeouts, flow.counts.nak_packets), (1, 1, 1));
    assert_eq!(
        (flow.counts.representative_changes, flow.representative.as_deref()),
        (2, Some("b"))
    );
    assert_eq!(flow.rtt_mean_s, Some(0.25));
}

#[test]
fn receivers_that_the_sender_names_at_the_end_are_marked_and_all_others_are_counted() {
    let lacks = |node: Option<u32>, receivers, reason| {
        record(9.0, 0, SENDER, Event::Incomplete { node: node.map(NodeId), receivers, reason })
    };
    let all = [
        lacks(Some(3), 1, Shortfall::Pruned),
        lacks(Some(77), 1, Shortfall::Left),
        lacks(None, 5, Shortfall::Unnamed),
    ];
    let flow = &summary(0.0, 10.0, &all).flows[0];
    let marks: Vec<_> = flow.receivers.iter().map(|it| it.incomplete.as_deref()).collect();
    assert_eq!((marks, flow.faults.unnamed_receivers), (vec![None, Some("pruned"), None], 6));
}

#[test]
fn a_repair_tree_is_that_of_the_last_heads() {
    let head = |node: Option<u32>, level| Event::RepairHead { node: node.map(NodeId), level };
    let repair = Event::DataSent { seq: 1, bytes: 10, repair: true };
    let got = summary(
        0.0,
        100.0,
        &[
            record(1.0, 0, 2, head(Some(SENDER), 2)),
            record(1.5, 0, 3, head(Some(SENDER), 2)),
            record(2.0, 0, SENDER, repair),
            record(3.0, 0, 3, head(None, 0)),
            record(4.0, 0, 3, head(Some(2), 3)),
            record(5.0, 0, 2, repair),
        ],
    );
    let flow = &got.flows[0];
    let tree = TreeSummary {
        members: 2,
        direct_members: 1,
        heads: 1,
        levels: 3,
        head_changes: 1,
        sender_repairs: 1,
    };
    assert_eq!(flow.tree, Some(tree));
    // 10 bytes of the sender's in 100 s; repairs by heads do not count.
    assert_eq!((flow.rates.sent_bps, flow.counts.repair_packets), (0.8, 2));
    let told: Vec<_> = flow
        .receivers
        .iter()
        .map(|r| (r.repair_head.as_deref(), r.level, r.repairs_sent))
        .collect();
    assert_eq!(
        told[..2],
        [(Some("s"), Some(2), Some(1)), (Some("a"), Some(3), Some(0))],
        "{told:?}"
    );
    assert_eq!(got.flows[1].tree, None);
}

#[test]
fn who_speaks_what_to_no_avail_is_told_with_what_to_do() {
    let other = Event::BadInput { reason: BadInput::OtherScheme };
    let told = |speaks: &[(u32, &str)]| {
        let mut header = header(0.0);
        let speaks = speaks.iter().map(|(node, protocol)| SpeaksHeader {
            node: NodeId(*node),
            protocol: protocol.to_string(),
        });
        header.flows[0].speaks = speaks.collect();
        let mut metrics = Metrics::new(&header);
        for node in [3, 4, SENDER] {
            metrics.record(&record(1.0, 0, node, other));
        }
        let got = metrics.finish(&Outcome { at: Time::from_secs_f64(9.0), ..Outcome::default() });
        let page = crate::run_page(&header, &got, &crate::Series::new(&header));
        let notes = got.mismatch_notes();
        assert!(
            notes.iter().all(|note| page.contains(&maud::html! { (note) }.into_string())),
            "{notes:?}"
        );
        (got.flows[0].clone(), notes)
    };
    let (flow, notes) = told(&[(2, "ormcc"), (3, "tfmcc"), (4, "tfmcc")]);
    assert_eq!(
        notes,
        [
            "mcc: the sender speaks pgmcc, and b and 1 more were told to speak tfmcc and got nothing, \
          as the sender has heard: name pgmcc or no scheme there, or tfmcc at the sender"
        ]
    );
    let spoken = flow.receivers.iter().map(|r| (r.other_scheme, r.speaks.as_deref()));
    let want = [(false, None), (true, Some("tfmcc")), (true, Some("tfmcc"))];
    assert_eq!(spoken.collect::<Vec<_>>(), want, "a has taken everything");
    assert_eq!(flow.faults.mismatched_receivers, 1, "one of them was heard");
    assert_eq!(told(&[(3, "tfmcc"), (4, "ormcc")]).1.len(), 2);
    let unknown = &told(&[]).1[..];
    assert!(matches!(unknown, [note] if note.contains("speak another scheme than the sender")));
}

#[test]
fn jains_index_has_its_known_values() {
    for (throughputs, want) in [
        (&[][..], 1.0),
        (&[0.0, 0.0], 1.0),
        (&[5.0], 1.0),
        (&[3.0, 3.0, 3.0], 1.0),
        (&[1.0, 0.0, 0.0, 0.0], 0.25),
        (&[1.0, 3.0], 0.8),
    ] {
        assert_eq!(jain_index(throughputs.iter().copied()), want, "{throughputs:?}");
    }
}

#[test]
fn a_run_without_counted_time_gives_zeros_and_valid_json() {
    let got = summary(90.0, 5.0, &[record(1.0, 0, SENDER, sent(0))]);
    assert_eq!((got.flows[0].rates.throughput_bps, got.links[0].utilisation), (0.0, 0.0));
    let json: serde_json::Value = serde_json::from_str(&got.to_json()).unwrap();
    assert_eq!(json["flows"][0]["throughput_bps"], 0.0);
}

#[test]
fn ten_thousand_receivers_are_found_by_their_nodes() {
    let mut header = header(0.0);
    header.nodes = (0..20_000).map(|i| format!("n{i}")).collect();
    header.flows[0].to = (0..10_000).map(|i| NodeId(19_999 - i)).collect();
    let mut metrics = Metrics::new(&header);
    for node in [19_999, 10_000, 9_999, 0] {
        metrics.record(&record(1.0, 0, node.max(1), Event::LossDetected { seq: 0, count: 1 }));
    }
    let got = metrics.finish(&Outcome::default());
    let lost: Vec<usize> =
        (0..10_000).filter(|i| got.flows[0].receivers[*i].lost_packets > 0).collect();
    assert_eq!(lost, [0, 9_999], "nodes 9999 and 1 are no receivers");
}

#[test]
fn the_summary_has_the_keys_of_the_scenario_language() {
    let json: serde_json::Value = serde_json::from_str(&summary(0.0, 10.0, &[]).to_json()).unwrap();
    let has = |value: &serde_json::Value, keys: &str| {
        for key in keys.split(' ') {
            assert!(value.get(key).is_some(), "{key} is missing in {value}");
        }
    };
    has(
        &json,
        "faircast scenario on seed duration_s warmup_s flows links jain_index wall_s events",
    );
    let flow = "name protocol from throughput_bps sent_packets repair_packets feedback_packets \
                timeouts completed_s receivers";
    has(&json["flows"][0], flow);
    let receiver = "node goodput_bps lost_packets completed_s intact";
    has(&json["flows"][0]["receivers"][0], receiver);
    let link = "from to utilisation dropped_packets queue_max_packets queue_mean_packets";
    has(&json["links"][0], link);
    assert_eq!((&json["on"], &json["events"]), (&"sim".into(), &42.into()));
}

#[test]
fn a_summary_from_a_file_is_that_of_the_live_run() {
    let header = header(5.0);
    let mut live = Tee(Metrics::new(&header), Writer::new(Vec::new(), &header).unwrap());
    for i in 0..5_000u64 {
        let at = i as f64 / 50.0;
        live.record(&record(at, 0, SENDER, sent(i)));
        let ack = Event::AckReceived { seq: i, bytes: 999, from: NodeId(2) };
        live.record(&record(at, 1, SENDER, ack));
        live.record(&record(at, 0, 2 + (i % 3) as u32, delivered(i)));
        let counters = LinkCounters { busy_ns: i * 7, ..LinkCounters::default() };
        live.record(&link(at, Event::LinkSample(counters)));
    }
    let outcome = Outcome {
        at: Time::from_secs_f64(100.0),
        interrupted: true,
        wall_s: 1.0 / 3.0,
        events: 20_000,
        intact: vec![vec![Some(true); 3], vec![Some(false)]],
        trace_hash: None,
        lateness: None,
    };
    let want = live.0.finish(&outcome);
    let file = live.1.finish(&outcome).unwrap();
    let mut reader = Reader::new(&file[..], "file").unwrap();
    let mut metrics = Metrics::new(reader.header());
    let read = reader.replay(&mut metrics).unwrap().unwrap().clone();
    assert_eq!(metrics.finish(&read), want);
    assert!(want.interrupted && want.flows[0].rates.throughput_bps > 0.0);
    let back: Summary = serde_json::from_str(&want.to_json()).unwrap();
    assert_eq!(back, want);
}

#[test]
fn a_link_that_is_idle_until_after_the_warm_up_is_averaged_over_the_counted_time() {
    let mut metrics = Metrics::new(&header(10.0));
    let counters = LinkCounters {
        offered_packets: 10,
        sent_packets: 10,
        busy_ns: 9_000_000_000,
        ..LinkCounters::default()
    };
    metrics.record(&link(100.0, Event::LinkSample(counters)));
    let summary = metrics.finish(&Outcome { at: Time::from_secs_f64(100.0), ..Outcome::default() });
    assert_eq!(summary.links[0].utilisation, 0.1);
}
