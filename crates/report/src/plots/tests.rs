//! Plots of hand-made runs: visible and hidden lines, and agreement of numbers and pictures.

use faircast_base::{Event, FlowId, LinkCounters, LinkId, NodeId, Time};
use faircast_trace::{FlowHeader, Header, LinkHeader, Record, Sink, Subject};

use super::paper::COLOURS;
use super::*;

fn run(protocols: &[&str]) -> Series {
    let link =
        |from, to| LinkHeader { from: NodeId(from), to: NodeId(to), ..LinkHeader::default() };
    let flow = |(i, protocol): (usize, &&str)| FlowHeader {
        name: format!("f{i}"),
        protocol: (*protocol).into(),
        to: vec![NodeId(1)],
        packet_bytes: 1000,
        ..FlowHeader::default()
    };
    let header = Header {
        duration_s: 100.0,
        warmup_s: 20.0,
        nodes: ["a", "b", "c"].map(String::from).to_vec(),
        links: vec![link(0, 1), link(1, 2)],
        flows: protocols.iter().enumerate().map(flow).collect(),
        ..Header::default()
    };
    let mut series = Series::new(&header);
    for tenth in 0..1000u64 {
        let at = Time::from_secs_f64(tenth as f64 / 10.0);
        for flow in 0..protocols.len() as u32 {
            let mut say = |event| {
                let subject =
                    Subject::Endpoint { flow: FlowId(flow), node: NodeId(0), sender: true };
                series.record(&Record { at, subject, event });
            };
            for i in 0..=u64::from(flow) {
                let seq = tenth * 100 + i;
                say(Event::DataSent { seq, bytes: 1000, repair: false });
                say(Event::AckReceived { seq, bytes: 1000, from: NodeId(1) });
            }
            let window_milli = if tenth < 50 { 90_000 } else { 1_000 * u64::from(flow + 1) };
            say(Event::Window { window_milli, flight: 1 });
            if tenth % 10 == 3 {
                say(Event::NakReceived { seq: tenth * 100, count: 1, from: NodeId(1) });
            }
        }
        for (link, waiting) in [(0, 10), (1, 0)] {
            let counters = LinkCounters {
                queue_packet_ns: waiting * at.as_nanos(),
                queue_max_packets: if waiting > 0 { 20 } else { 2 },
                ..LinkCounters::default()
            };
            let (subject, event) = (Subject::Link(LinkId(link)), Event::LinkSample(counters));
            series.record(&Record { at, subject, event });
        }
    }
    series
}

const MANY: [&str; 21] = {
    let mut protocols = ["tcp-sack"; 21];
    protocols[0] = "pgmcc";
    protocols
};

fn of<'a>(plots: &'a [Plot], key: &str) -> &'a Plot {
    plots.iter().find(|plot| plot.key == key).unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn of_many_flows_the_mean_and_the_range_of_each_protocol_are_shown() {
    let series = run(&MANY);
    let plots = plots(&series, series.ended);
    for key in ["sequence", "throughput", "mean", "window"] {
        let plot = of(&plots, key);
        let shown: Vec<&Line> = plot.lines.iter().filter(|line| !line.hidden).collect();
        let names: Vec<&str> = shown.iter().map(|line| &*line.owner).collect();
        assert_eq!(names, ["f0", "tcp-sack flows"], "{key}");
        assert_eq!([shown[0].colour, shown[1].colour], [0, 1], "{key}: a colour a protocol");
        let singles = plot.lines.iter().filter(|line| line.protocol == "tcp-sack" && line.hidden);
        let dashes: std::collections::BTreeSet<usize> =
            singles.clone().map(|line| line.dash).collect();
        assert_eq!(dashes.len(), 15, "{key}: dashes tell flows of a protocol apart");
        assert!(singles.into_iter().all(|line| line.colour == 1), "{key}");
        assert_eq!(shown[1].points.len(), shown[1].range.as_ref().unwrap().len(), "{key}");
    }
    // TCP flows 1 to 20 have 2 to 21 packets of 8 kbit ten times a second; 15 of them have lines.
    let throughput = of(&plots, "throughput").lines.last().unwrap();
    assert!(throughput.label.contains("mean of 20 flows, range of 15"), "{}", throughput.label);
    let at = throughput.points.len() / 2;
    assert_eq!(throughput.points[at].1, Some(11.5 * 80_000.0));
    assert_eq!(throughput.range.as_ref().unwrap()[at], (2.0 * 80_000.0, 16.0 * 80_000.0));
    let window = of(&plots, "window").lines.last().unwrap();
    let at = window.points.len() / 2;
    assert_eq!(window.points[at].1, Some(9.0));
    assert_eq!(window.range.as_ref().unwrap()[at], (2.0, 16.0));
    let naks: Vec<_> =
        of(&plots, "sequence").marks.iter().map(|row| (&*row.owner, row.total)).collect();
    assert_eq!(naks, [("pgmcc", 100), ("tcp-sack", 1500)]);
}

#[test]
fn means_are_drawn_over_single_flows_of_other_protocols() {
    let mut protocols = ["tcp-sack"; 6];
    protocols[4..].fill("pgmcc");
    let series = run(&protocols);
    let plots = plots(&series, series.ended);
    for key in ["throughput", "window"] {
        let shown: Vec<&str> = of(&plots, key)
            .lines
            .iter()
            .filter(|line| !line.hidden)
            .map(|line| &*line.owner)
            .collect();
        assert_eq!(shown, ["f4", "f5", "tcp-sack flows"], "{key}");
    }
}

#[test]
fn few_flows_have_lines_of_their_own_and_lanes_for_their_marks() {
    let series = run(&["pgmcc", "tcp-sack"]);
    let plots = plots(&series, series.ended);
    let sequence = of(&plots, "sequence");
    let labels: Vec<&str> = sequence.lines.iter().map(|line| &*line.label).collect();
    assert_eq!(labels, ["f0, sent", "f1, sent", "f0, acknowledged", "f1, acknowledged"]);
    assert_eq!(sequence.lanes().map(|row| row.total).collect::<Vec<_>>(), [100, 100]);
    assert!(plots.iter().all(|plot| plot.lines.iter().all(|line| line.range.is_none())));
}

/// Receivers m1 to m3: all join the sender, m3 moves below m1, m1 loses its head, and m2 leaves.
fn tree() -> Series {
    let flow =
        FlowHeader { name: "f".into(), to: (1..4).map(NodeId).collect(), ..FlowHeader::default() };
    let nodes = ["s", "m1", "m2", "m3"].map(String::from).to_vec();
    let mut series = Series::new(&Header { nodes, flows: vec![flow], ..Header::default() });
    for (at_s, node, head, level) in [
        (1, 1, Some(0), 2),
        (1, 2, Some(0), 2),
        (2, 3, Some(0), 2),
        (5, 3, Some(1), 3),
        (8, 1, None, 0),
    ] {
        let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(node), sender: false };
        let event = Event::RepairHead { node: head.map(NodeId), level };
        series.record(&Record { at: Time::from_secs_f64(f64::from(at_s)), subject, event });
    }
    let (at, node) = (Time::from_secs_f64(9.0), NodeId(2));
    let subject = Subject::Endpoint { flow: FlowId(0), node, sender: false };
    series.record(&Record { at, subject, event: Event::Left });
    series
}

#[test]
fn receivers_are_counted_by_level_and_changes_of_heads_marked() {
    let series = tree();
    let plots = plots(&series, Time::from_secs_f64(10.0));
    let plot = of(&plots, "tree");
    let at = |kind: &str, at_s: f64| {
        let line = plot.lines.iter().find(|line| line.kind == kind).expect("there is one");
        let before = line.points.iter().take_while(|(at, _)| *at <= at_s + 1e-3);
        before.last().and_then(|(_, value)| *value).expect("it has begun")
    };
    let levels = |at_s: f64| ["level 2", "level 3", "without a head"].map(|kind| at(kind, at_s));
    assert_eq!(levels(0.5), [0.0, 0.0, 0.0]);
    assert_eq!(levels(2.0), [3.0, 0.0, 0.0]);
    assert_eq!(levels(5.0), [2.0, 1.0, 0.0]);
    assert_eq!(levels(8.0), [1.0, 1.0, 1.0]);
    assert_eq!(levels(10.0), [0.0, 1.0, 1.0], "who has left counts nowhere");
    assert!(plot.lines.iter().all(|line| line.points.last().unwrap().0 == 10.0), "to the end");
    let moves: Vec<_> = plot.lanes().map(|row| (row.kind, row.total)).collect();
    assert_eq!(moves, [("other head", 1)], "the first head is no change, nor is having none");
}

#[test]
fn idle_links_are_left_out() {
    let series = run(&["pgmcc"]);
    let plots = plots(&series, series.ended);
    let queue = of(&plots, "queue");
    assert_eq!(series.links.worst().len(), 2, "both have been watched");
    let owners: Vec<&str> = queue.lines.iter().map(|line| &*line.owner).collect();
    assert_eq!(owners, ["a → b", "a → b"]);
    assert_eq!(queue.about, "Link a → b");
}

#[test]
fn tables_have_every_value_once_with_its_unit() {
    let series = run(&MANY);
    let plots = plots(&series, series.ended);
    let tables = csv(&plots);
    let names: Vec<&str> = tables.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        ["sequence.csv", "throughput.csv", "mean.csv", "queue.csv", "window.csv", "events.csv"]
    );
    let throughput = &tables[1].1;
    assert!(throughput.starts_with("time_s,flow,protocol,series,throughput_bps\n"), "{throughput}");
    for row in [
        "50,f0,pgmcc,throughput,80000",
        "50,f3,tcp-sack,throughput,320000",
        "50,tcp-sack flows,tcp-sack,mean of throughput,920000",
        "50,tcp-sack flows,tcp-sack,greatest of throughput,1280000",
    ] {
        assert_eq!(
            throughput.lines().filter(|line| *line == row).count(),
            1,
            "{row}: {throughput}"
        );
    }
    for (name, text) in &tables {
        let width = text.lines().next().unwrap().split(',').count();
        for line in text.lines() {
            assert_eq!(line.split(',').count(), width, "{name}: {line}");
            assert!(!line.ends_with(','), "{name}: {line}");
        }
    }
    let events = tables.last().unwrap().1.lines();
    let naks: u64 = events
        .filter(|line| line.contains(",NAK,"))
        .map(|line| line.split(',').nth(4).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(naks, 1600, "none is lost where they are many");
}

#[test]
fn names_in_tables_are_quoted_where_they_need_it() {
    let mut plots = plots(&run(&["pgmcc"]), Time::ZERO);
    plots.truncate(1);
    plots[0].lines[0].owner = "a, \"b\"".into();
    assert!(csv(&plots)[0].1.contains("\n0,\"a, \"\"b\"\"\",pgmcc,sent,1\n"));
}

#[test]
fn a_picture_is_scaled_to_the_counted_time_and_needs_no_colours() {
    let series = run(&["pgmcc", "tcp-sack", "tcp-sack"]);
    let plots = plots(&series, series.ended);
    let picture = svg(of(&plots, "window"), &series);
    // Windows are 90 until 5 s and at most 3 in the counted time: 0, 1, 2 and 3 are on the axis.
    let numbers: Vec<&str> = picture
        .match_indices("text-anchor=\"end\">")
        .map(|(at, start)| picture[at + start.len()..].split('<').next().unwrap())
        .collect();
    assert_eq!(numbers, ["0", "1", "2", "3"], "{picture}");
    assert!(picture.contains(">Time, s<") && picture.contains(">Window, packets<"), "{picture}");
    assert!(picture.contains("fill=\"#eee\""), "the warm-up is grey");
    let dashes: std::collections::BTreeSet<&str> = picture
        .lines()
        .filter(|line| line.contains("stroke-linejoin"))
        .map(|line| line.split("stroke-dasharray=").nth(1).unwrap_or("none"))
        .collect();
    assert_eq!(dashes.len(), 3, "three lines, three kinds of dashes: {picture}");
    let evil = Plot { axis: "<x>", ..plots[0].clone() };
    assert!(!svg(&evil, &series).contains("<x>"));
}

#[test]
fn the_page_has_the_colours_of_the_pictures() {
    let css = include_str!("../page/page.css");
    for (i, colour) in COLOURS.iter().enumerate() {
        assert!(css.contains(&format!("--c{i}: {colour};")), "--c{i} is not {colour}");
    }
}

#[test]
fn names_are_sorted_as_people_count() {
    let mut names = ["mr10", "mr2", "b", "mr1"];
    names.sort_by_key(|name| natural(name));
    assert_eq!(names, ["b", "mr1", "mr2", "mr10"]);
}
