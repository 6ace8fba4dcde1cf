//! Tests of series.

use faircast_base::{CutReason, Duration, FlowId, LinkCounters, LinkId, SwitchReason};
use faircast_trace::{FlowHeader, LinkHeader};
use proptest::prelude::*;

use super::curve::CURVE_BUCKETS_MAX;
use super::links::LINKS_WATCHED_MAX;
use super::marks::{MARKS_MAX, Mark};
use super::*;

fn header(flows: &[&str], links: usize) -> Header {
    let flow = |protocol: &&str| FlowHeader {
        protocol: (*protocol).into(),
        to: vec![NodeId(1)],
        packet_bytes: 1000,
        ..FlowHeader::default()
    };
    Header {
        duration_s: 100.0,
        nodes: vec!["s".into(), "r".into()],
        links: vec![LinkHeader { to: NodeId(1), ..LinkHeader::default() }; links],
        flows: flows.iter().map(flow).collect(),
        ..Header::default()
    }
}

fn feed(series: &mut Series, at_s: f64, flow: u32, event: Event) {
    let subject = Subject::Endpoint { flow: FlowId(flow), node: NodeId(0), sender: true };
    series.record(&Record { at: Time::from_secs_f64(at_s), subject, event });
}

fn sample(series: &mut Series, at_s: f64, link: u32, counters: LinkCounters) {
    series.record(&Record {
        at: Time::from_secs_f64(at_s),
        subject: Subject::Link(LinkId(link)),
        event: Event::LinkSample(counters),
    });
}

proptest! {
    #[test]
    fn a_curve_is_bounded_and_keeps_ends_and_extremes(
        steps in prop::collection::vec((0u64..40_000_000_000, -1e6..1e6f64), 1..6_000)
    ) {
        let mut curve = Curve::default();
        let mut at = 0;
        let mut all = Vec::new();
        for (step, value) in steps {
            at += step;
            curve.push(Time::from_nanos(at), value);
            all.push((Time::from_nanos(at), value));
        }
        let kept = curve.points();
        prop_assert!(kept.len() <= 4 * CURVE_BUCKETS_MAX);
        prop_assert!(kept.is_sorted_by_key(|point| point.0));
        prop_assert_eq!(kept.first().map(|p| p.0), all.first().map(|p| p.0));
        prop_assert_eq!(kept.last(), all.last());
        let extreme = |points: &[(Time, f64)], pick: fn(f64, f64) -> f64| {
            points.iter().map(|point| point.1).reduce(pick)
        };
        prop_assert_eq!(extreme(&kept, f64::max), extreme(&all, f64::max));
        prop_assert_eq!(extreme(&kept, f64::min), extreme(&all, f64::min));
        prop_assert!(kept.iter().all(|point| all.contains(point)));
        if all.len() <= CURVE_BUCKETS_MAX {
            prop_assert_eq!(kept.len(), { all.dedup(); all.len() }, "few points are kept as they are");
        }
    }

    #[test]
    fn bins_lose_nothing_when_they_coarsen(
        amounts in prop::collection::vec((0u64..u64::MAX / 2, 0u64..1_000_000), 0..300)
    ) {
        let mut bins = Bins::new(Duration::from_secs(100));
        for (at, amount) in &amounts {
            bins.add(Time::from_nanos(*at), *amount);
        }
        prop_assert_eq!(bins.amounts.iter().sum::<u64>(), amounts.iter().map(|a| a.1).sum::<u64>());
        prop_assert!(bins.amounts.len() <= 480);
    }

    #[test]
    fn marks_are_bounded_and_counted(steps in prop::collection::vec(0u64..1 << 33, 0..5_000)) {
        let mut marks = Marks::default();
        let mut at = 0;
        for step in &steps {
            at += step;
            marks.push(Time::from_nanos(at), 1.0);
        }
        prop_assert!(marks.points.len() <= MARKS_MAX);
        prop_assert_eq!(marks.total, steps.len() as u64);
        prop_assert_eq!(marks.points.iter().map(|mark| mark.count).sum::<u64>(), marks.total);
        prop_assert!(marks.points.is_sorted_by(|a, b| a.at < b.at));
    }
}

#[test]
fn throughput_is_sampled_as_asked_for_as_long_as_that_fits() {
    let header = header(&["pgmcc"], 0);
    let mut series = Series::sampled(&header, Some(Duration::from_secs(2)));
    let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(0), sender: true };
    for (seq, second) in (0..).zip([0, 1, 2, 5]) {
        let event = Event::DataSent { seq, bytes: 10, repair: false };
        series.record(&Record { at: Time::ZERO + Duration::from_secs(second), subject, event });
    }
    let bins = &series.flows[0].curves.throughput;
    assert_eq!((bins.width, &bins.amounts[..]), (Duration::from_secs(2), &[20, 10, 10][..]));
    let mut bins = Bins::of_width(Duration::ZERO);
    bins.add(Time::ZERO + Duration::from_secs(1), 7);
    assert!(bins.amounts.len() as u64 <= BINS_GIVEN_MAX && bins.amounts.iter().sum::<u64>() == 7);
}

#[test]
fn bins_have_round_widths() {
    for (seconds, width_ms) in [(0.1, 1), (1.0, 5), (100.0, 500), (300.0, 2_000), (3_000.0, 20_000)]
    {
        let bins = Bins::new(Duration::from_secs_f64(seconds));
        assert_eq!(bins.width, Duration::from_millis(width_ms), "{seconds} s");
    }
    assert!(Bins::new(Duration::MAX).width > Duration::from_secs(1_000_000));
}

#[test]
fn a_flow_has_its_sequence_its_throughput_and_its_marks() {
    let mut series = Series::new(&header(&["pgmcc"], 0));
    for i in 0..10u64 {
        let at = i as f64;
        feed(&mut series, at, 0, Event::DataSent { seq: 500 + i, bytes: 1000, repair: false });
        feed(&mut series, at, 0, Event::DataSent { seq: 500, bytes: 1000, repair: true });
        let from = NodeId(1);
        feed(&mut series, at + 0.5, 0, Event::AckReceived { seq: 500 + i, bytes: 1000, from });
    }
    feed(&mut series, 9.9, 0, Event::NakReceived { seq: 503, count: 1, from: NodeId(1) });
    feed(&mut series, 9.9, 0, Event::Cut { reason: CutReason::Loss, window_milli: 1500 });
    feed(&mut series, 9.9, 0, Event::Window { window_milli: 1500, flight: 1 });
    let (node, reason) = (Some(NodeId(1)), SwitchReason::Slower);
    feed(&mut series, 9.95, 0, Event::Representative { node, reason });
    let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(1), sender: false };
    for (at_s, seq) in [(9.0, 507), (9.5, 3)] {
        let (at, event) = (Time::from_secs_f64(at_s), Event::LossDetected { seq, count: 1 });
        series.record(&Record { at, subject, event });
    }
    let flow = &series.flows[0];
    let heights: Vec<f64> = flow.marks.losses.points.iter().map(|mark| mark.height).collect();
    assert_eq!(heights, [7.0, 10.0], "a number from before the first stays on the plot");
    assert!(flow.curves.sent.points().contains(&(Time::from_secs_f64(4.0), 5.0)));
    assert_eq!(flow.curves.acked.points().last().unwrap().1, 10.0);
    assert_eq!(flow.curves.throughput.amounts.iter().sum::<u64>(), 10_000, "repairs do not count");
    let mark = |height| Mark { at: Time::from_secs_f64(9.9), height, count: 1 };
    assert_eq!(
        (&flow.marks.naks.points, &flow.marks.cuts.points),
        (&vec![mark(3.0)], &vec![mark(10.0)])
    );
    assert_eq!(flow.curves.window.points(), [(Time::from_secs_f64(9.9), 1.5)]);
    assert_eq!(flow.switches[0].name.as_deref(), Some("r"));
}

#[test]
fn multicast_flows_have_curves_before_background_flows() {
    let mut protocols = vec!["tcp-reno"; 40];
    protocols.push("pgmcc");
    let mut series = Series::new(&header(&protocols, 0));
    assert_eq!(series.flows.len(), FLOWS_MAX);
    assert_eq!(series.flows[0].flow, FlowId(40));
    assert_eq!((series.rest.len(), series.rest[0].flows), (1, 25));
    feed(&mut series, 1.0, 39, Event::AckReceived { seq: 0, bytes: 700, from: NodeId(1) });
    assert_eq!(series.rest[0].throughput.amounts.iter().sum::<u64>(), 700);
}

#[test]
fn the_links_that_drop_most_are_shown_and_idle_ones_never() {
    let mut series = Series::new(&header(&[], 1_000));
    for link in 0..1_000u32 {
        let dropped_packets = if link >= 900 { u64::from(link) } else { 0 };
        let queue_max_packets = if link < 100 { 1 } else { 5 };
        let queue_packet_ns = u64::from(link);
        let counters = LinkCounters {
            dropped_packets,
            queue_max_packets,
            queue_packet_ns,
            ..LinkCounters::default()
        };
        sample(&mut series, 1.0, link, LinkCounters::default());
        sample(&mut series, 2.0, link, counters);
    }
    let links: Vec<usize> = series.links.worst().iter().map(|link| link.link).collect();
    assert_eq!(links, (988..1_000).collect::<Vec<_>>());
    assert!(series.links.watched.len() <= LINKS_WATCHED_MAX);
}

#[test]
fn a_queue_has_its_mean_and_its_peak_between_samples() {
    let mut series = Series::new(&header(&[], 1));
    for i in 1..=3u64 {
        let counters = LinkCounters {
            queue_packet_ns: i * 4_000_000_000,
            queue_max_packets: 9,
            ..LinkCounters::default()
        };
        sample(&mut series, i as f64, 0, counters);
    }
    let link = series.links.worst()[0];
    assert_eq!(link.name, "s → r");
    assert_eq!(link.mean.points()[1..].iter().map(|p| p.1).collect::<Vec<_>>(), [4.0, 4.0]);
    assert!(link.max.points().iter().all(|point| point.1 == 9.0));
}
