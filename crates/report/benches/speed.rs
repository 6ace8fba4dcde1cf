//! Cost of a record in the summary and in the plots. `cargo bench -p faircast-report`

use divan::Bencher;
use divan::counter::ItemsCount;
use faircast_base::{Duration, Event, FlowId, LinkCounters, LinkId, NodeId, Time};
use faircast_report::{Metrics, Series};
use faircast_trace::{FlowHeader, Header, LinkHeader, Record, Sink, Subject};

/// Few enough for the cache: the benchmark measures the sink, not the memory.
const RECORDS: u64 = 6_000;
const STEP_NS: u64 = 3_733;
const RECEIVERS: [u32; 2] = [3, 10_000];

fn main() {
    divan::main();
}

fn feed(bencher: Bencher<'_, '_>, sink: &mut dyn Sink, receivers: u32) {
    let records: Vec<Record> = (0..RECORDS).map(|i| sample(i, receivers)).collect();
    let mut round = 0;
    bencher.counter(ItemsCount::new(RECORDS)).bench_local(|| {
        for record in &records {
            let at = record.at + Duration::from_nanos(round * RECORDS * STEP_NS);
            sink.record(&Record { at, ..*record });
        }
        round += 1;
    });
}

#[divan::bench(args = RECEIVERS)]
fn metrics(bencher: Bencher<'_, '_>, receivers: u32) {
    feed(bencher, &mut Metrics::new(&header(receivers)), receivers);
}

#[divan::bench(args = RECEIVERS)]
fn series(bencher: Bencher<'_, '_>, receivers: u32) {
    feed(bencher, &mut Series::new(&header(receivers)), receivers);
}

fn sample(i: u64, receivers: u32) -> Record {
    let seq = i / 6;
    let node = NodeId(1 + (seq as u32 * 7919) % receivers);
    let end = |sender| Subject::Endpoint { flow: FlowId(0), node, sender };
    let (subject, event) = match i % 6 {
        0 => (end(true), Event::DataSent { seq, bytes: 1400, repair: false }),
        1 => (end(false), Event::Delivered { seq, bytes: 1400 }),
        2 => (end(true), Event::AckReceived { seq, bytes: 1400, from: node }),
        3 => (end(true), Event::Window { window_milli: 12_000 + seq % 999, flight: 11 }),
        4 => (end(true), Event::RttSample { node, rtt_ns: 231_456_789 }),
        _ => {
            let counters =
                LinkCounters { sent_packets: seq, queue_packets: 3, ..Default::default() };
            (Subject::Link(LinkId(0)), Event::LinkSample(counters))
        }
    };
    Record { at: Time::from_nanos(i * STEP_NS), subject, event }
}

fn header(receivers: u32) -> Header {
    let flow = FlowHeader {
        name: "mcc".into(),
        to: (1..=receivers).map(NodeId).collect(),
        packet_bytes: 1400,
        ..FlowHeader::default()
    };
    Header {
        duration_s: 30.0,
        nodes: (0..=receivers).map(|i| format!("n{i}")).collect(),
        links: vec![LinkHeader { to: NodeId(1), ..LinkHeader::default() }],
        flows: vec![flow],
        ..Header::default()
    }
}
