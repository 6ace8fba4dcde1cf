//! Benchmarks of hashing, writing and reading records: `cargo bench -p faircast-trace`.

use divan::Bencher;
use divan::counter::ItemsCount;
use faircast_base::{Event, FlowId, LinkCounters, LinkId, NodeId, Time};
use faircast_trace::{
    FlowHeader, Hasher, Header, LinkHeader, Outcome, Reader, Record, Sink, Subject, Writer,
};

/// Records that fit into the cache, as a record does when a simulator emits it.
const RECORDS: u64 = 6_000;

fn main() {
    divan::main();
}

fn per_record<T>(bencher: Bencher<'_, '_>, mut work: impl FnMut(&[Record]) -> T) {
    let records: Vec<Record> = (0..RECORDS).map(sample).collect();
    bencher.counter(ItemsCount::new(RECORDS)).bench_local(|| work(&records));
}

#[divan::bench]
fn hash(bencher: Bencher<'_, '_>) {
    let mut hasher = Hasher::default();
    per_record(bencher, |records| {
        records.iter().for_each(|record| hasher.record(record));
        hasher.digest()
    });
}

#[divan::bench]
fn format(bencher: Bencher<'_, '_>) {
    let mut lines = Vec::new();
    per_record(bencher, |records| {
        lines.clear();
        records.iter().for_each(|record| faircast_trace::write_line(record, &mut lines));
        lines.len()
    });
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).expect("memory takes all");
    records.iter().for_each(|record| writer.record(record));
    writer.finish(&Outcome::default()).expect("memory takes all")
}

#[divan::bench]
fn write(bencher: Bencher<'_, '_>) {
    per_record(bencher, written);
}

#[divan::bench]
fn read(bencher: Bencher<'_, '_>) {
    let mut bytes = None;
    per_record(bencher, |records| {
        let bytes = bytes.get_or_insert_with(|| written(records));
        let mut reader = Reader::new(&bytes[..], "bench").expect("just written");
        reader.replay(&mut ()).expect("just written").is_some()
    });
}

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
    let flow = FlowHeader { name: "mcc".into(), to: vec![NodeId(1)], ..FlowHeader::default() };
    Header {
        nodes: vec!["a".to_owned(), "b".to_owned()],
        links: vec![LinkHeader { to: NodeId(1), ..LinkHeader::default() }],
        flows: vec![flow],
        ..Header::default()
    }
}
