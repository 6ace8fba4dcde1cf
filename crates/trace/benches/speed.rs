//! What a record costs: hashing, writing a compressed file, reading it back.
//! `cargo bench -p faircast-trace`

use std::hint::black_box;
use std::time::Instant;

use faircast_base::{Event, FlowId, LinkCounters, LinkId, NodeId, Time};
use faircast_trace::{
    FlowHeader, Hasher, Header, LinkHeader, On, Outcome, Reader, Record, SCHEMA_VERSION, Sink,
    Subject, Writer,
};

const RECORDS: u64 = 2_000_000;

fn main() {
    let records: Vec<Record> = (0..RECORDS).map(sample).collect();
    let mut hasher = Hasher::new();
    // A piece that stays in the cache, as a record does when a simulator hands it over.
    let piece = &records[..1_000];
    time("hash", || {
        (0..RECORDS / 1_000).for_each(|_| piece.iter().for_each(|record| hasher.record(record)));
    });
    println!("        {}", hasher.hex());
    let mut lines = Vec::with_capacity(256 << 20);
    time("format", || {
        records.iter().for_each(|record| faircast_trace::write_line(record, &mut lines));
    });
    let mut bytes = Vec::new();
    time("write", || {
        let mut writer = Writer::new(Vec::new(), &header()).expect("memory takes all");
        records.iter().for_each(|record| writer.record(record));
        bytes = writer.finish(&Outcome::default()).expect("memory takes all");
    });
    println!(
        "        {:.1} bytes per line, {:.2} compressed",
        lines.len() as f64 / RECORDS as f64,
        bytes.len() as f64 / RECORDS as f64
    );
    time("read", || {
        let mut reader = Reader::new(&bytes[..], "bench").expect("just written");
        black_box(reader.replay(&mut ()).expect("just written"));
    });
}

fn time(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let ns = start.elapsed().as_nanos() as f64 / RECORDS as f64;
    println!("{what:7} {ns:8.1} ns per record, {:6.2} M records/s", 1e3 / ns);
}

/// A mix like that of a long simulation.
fn sample(i: u64) -> Record {
    let seq = i / 6;
    let end = |sender| Subject::Endpoint { flow: FlowId(0), node: NodeId(1), sender };
    let (subject, event) = match i % 6 {
        0 => (end(true), Event::DataSent { seq, bytes: 1400, repair: false }),
        1 => (end(false), Event::Delivered { seq, bytes: 1400 }),
        2 => (end(true), Event::AckReceived { seq, bytes: 1400, from: NodeId(1) }),
        3 => (end(true), Event::Window { window_milli: 12_000 + seq % 999, flight: 11 }),
        4 => {
            (end(true), Event::RttSample { node: NodeId(1), rtt_ns: 231_456_789 + i * 7919 % 999 })
        }
        _ => (
            Subject::Link(LinkId(0)),
            Event::LinkSample(LinkCounters {
                offered_packets: seq,
                sent_packets: seq,
                sent_bytes: seq * 1500,
                busy_ns: i * 22_345,
                queue_packet_ns: i * 122_345,
                queue_max_packets: 30,
                ..LinkCounters::default()
            }),
        ),
    };
    Record { at: Time::from_nanos(i * 3_733_333), subject, event }
}

fn header() -> Header {
    let nodes = vec!["a".to_owned(), "b".to_owned()];
    let link = LinkHeader {
        from: NodeId(0),
        to: NodeId(1),
        rate_bps: 500_000,
        delay_s: 0.05,
        queue: "droptail, 30 packets".into(),
    };
    let flow = FlowHeader {
        name: "mcc".into(),
        protocol: "pgmcc".into(),
        from: NodeId(0),
        to: vec![NodeId(1)],
        packet_bytes: 1400,
        start_s: 0.0,
        stop_s: None,
    };
    Header {
        schema: SCHEMA_VERSION,
        faircast: "0.1.0".into(),
        scenario: "bench.toml".into(),
        title: "What does a record cost?".into(),
        text: String::new(),
        on: On::Sim,
        seed: 1,
        duration_s: 1.0,
        warmup_s: 0.0,
        nodes,
        links: vec![link],
        flows: vec![flow],
    }
}
