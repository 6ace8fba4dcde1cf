//! Tests of the schema, the hash and trace files.

use std::io::Write as _;

use faircast_base::{DropReason, LinkCounters, LinkId, SwitchReason};
use proptest::prelude::*;

use super::*;
use crate::reader::parse_record;
use crate::schema::FIELDS_MAX;

fn header() -> Header {
    let link = |i: u32| LinkHeader {
        from: NodeId(i),
        to: NodeId((i + 1) % 8),
        rate_bps: 500_000,
        delay_s: 0.05,
        queue: "droptail, 30 packets".into(),
    };
    let flow = |i: u32| FlowHeader {
        name: format!("f{i}"),
        protocol: "pgmcc".into(),
        to: vec![NodeId(1), NodeId(2)],
        packet_bytes: 1400,
        stop_s: i.is_multiple_of(2).then_some(100.0),
        speaks: vec![
            SpeaksHeader { node: NodeId(2), protocol: "tfmcc".into() };
            usize::from(i.is_multiple_of(2))
        ],
        ..FlowHeader::default()
    };
    Header {
        scenario: "two.toml".into(),
        title: "Does \"one\" flow <fit>?".into(),
        text: "title = \"x\"\n# ünïcode\n".into(),
        seed: u64::MAX,
        duration_s: 300.0,
        warmup_s: 20.5,
        nodes: (0..8).map(|i| format!("n{i}")).collect(),
        links: (0..8).map(link).collect(),
        flows: (0..8).map(flow).collect(),
        ..Header::default()
    }
}

fn outcome() -> Outcome {
    Outcome {
        at: Time::from_nanos(300_000_000_001),
        interrupted: true,
        wall_s: 0.25,
        events: 12,
        intact: vec![vec![Some(true), Some(false), None]],
        trace_hash: Some("ab".into()),
        lateness: Some(crate::Lateness {
            packets: 5,
            mean_s: 1e-5,
            p99_s: 1e-4,
            max_s: 2e-3,
            realtime: true,
            round_trip_s: Some(0.04),
            stolen_share: Some(0.02),
            verdict: Some(crate::Validity::Doubtful),
        }),
    }
}

fn values() -> impl Strategy<Value = Vec<String>> {
    let words: Vec<_> = WORDS.iter().map(|(_, words)| prop::sample::select(*words)).collect();
    let values = (any::<u64>(), any::<u32>(), any::<bool>(), words);
    let texts = values.prop_map(|(large, small, yes, words)| {
        let words = words.iter().map(|word| format!("\"{word}\""));
        let others = ["null".to_string(), large.to_string(), small.to_string(), yes.to_string()];
        others.into_iter().chain(words).collect::<Vec<_>>()
    });
    texts.prop_shuffle()
}

fn record() -> impl Strategy<Value = Record> {
    let subject = prop_oneof![
        (0..8u32, 0..8u32, prop::sample::select(&["sender", "receiver"][..]))
            .prop_map(|(flow, node, end)| format!("\"flow\":{flow},\"{end}\":{node}")),
        (0..8u32).prop_map(|link| format!("\"link\":{link}")),
        (0..8u32).prop_map(|node| format!("\"node\":{node}")),
    ];
    let values = prop::collection::vec(values(), FIELDS_MAX);
    (any::<u64>(), subject, prop::sample::select(KINDS), values).prop_map(
        |(at, subject, kind, values)| {
            let mut line = format!("{{\"t_ns\":{at},{subject},\"kind\":\"{}\"", kind.name);
            for (field, values) in kind.fields.iter().zip(values) {
                let fits = |value: &&String| {
                    let read = parse_record(format!("{line},\"{field}\":{value}}}").as_bytes());
                    read.err().is_none_or(|error| !error.contains(&format!("\"{field}\" must be")))
                };
                let value = values.iter().find(fits).expect("a value of each type is there");
                line += &format!(",\"{field}\":{value}");
            }
            line += "}\n";
            let record = parse_record(line.as_bytes()).unwrap();
            let mut written = Vec::new();
            write_line(&record, &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), line);
            record
        },
    )
}

fn file(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for record in records {
        writer.record(record);
    }
    writer.finish(&outcome()).unwrap()
}

fn error_of(lines: &str) -> String {
    let text = format!("{}\n{lines}", serde_json::to_string(&header()).unwrap());
    let mut reader = Reader::new(text.as_bytes(), "t.jsonl").unwrap();
    reader.replay(&mut ()).unwrap_err().to_string()
}

#[test]
fn texts_of_a_header_are_escaped_when_they_are_read() {
    let mut foreign = header();
    foreign.title = "\u{1b}[2J\u{202e}".into();
    foreign.text = "a\nb\u{2028}".into();
    foreign.nodes[0].push('\n');
    foreign.flows[0].name.push('\u{200b}');
    let text = serde_json::to_string(&foreign).unwrap() + "\n";
    let reader = Reader::new(text.as_bytes(), "t.jsonl").unwrap();
    let read = reader.header();
    assert_eq!((&*read.title, &*read.text), ("\\u001b[2J\\u202e", "a\nb\\u2028"));
    assert!(read.nodes[0].ends_with("\\n") && read.flows[0].name.ends_with("\\u200b"));
}

fn read_on(bytes: &[u8]) {
    if let Ok(mut reader) = Reader::new(bytes, "x") {
        let _ = reader.replay(&mut ());
        assert!(matches!(reader.next_record(), Ok(None)));
        assert!(reader.replay(&mut ()).is_ok());
    }
}

proptest! {
    #[test]
    fn every_record_comes_back_from_a_file_as_it_was(
        records in prop::collection::vec(record(), 0..60)
    ) {
        let bytes = file(&records);
        let mut reader = Reader::new(&bytes[..], "t.jsonl.gz").unwrap();
        prop_assert_eq!(reader.header(), &header());
        let mut back = Recording::default();
        let (mut live, mut read) = (Hasher::default(), Hasher::default());
        records.iter().for_each(|record| live.record(record));
        let end = reader.replay(&mut Tee(&mut back, &mut read)).unwrap().cloned();
        prop_assert_eq!(end, Some(outcome()));
        prop_assert_eq!(&back.records, &records);
        prop_assert_eq!(live.digest(), read.digest());
    }

    #[test]
    fn no_bytes_panic_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_on(&bytes);
    }

    #[test]
    fn no_damage_to_a_file_panics_the_reader(
        records in prop::collection::vec(record(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        plain in any::<bool>(),
    ) {
        let mut bytes = file(&records);
        if plain {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
                .unwrap();
            bytes = text;
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        read_on(&bytes);
    }

    #[test]
    fn a_change_of_one_record_or_of_the_order_changes_the_hash(
        mut records in prop::collection::vec(record(), 2..20),
        other in record(),
        at in any::<prop::sample::Index>(),
    ) {
        let hash = |records: &[Record]| {
            let mut hasher = Hasher::default();
            records.iter().for_each(|record| hasher.record(record));
            hasher.digest()
        };
        let before = hash(&records);
        let at = at.index(records.len() - 1);
        if records[at] != records[at + 1] {
            records.swap(at, at + 1);
            prop_assert_ne!(hash(&records), before);
            records.swap(at, at + 1);
        }
        if records[at] != other {
            records[at] = other;
            prop_assert_ne!(hash(&records), before);
        }
    }
}

#[test]
fn the_hash_is_the_same_on_every_platform() {
    let mut hasher = Hasher::default();
    for i in 0..1000u64 {
        let subject = match i % 3 {
            0 => Subject::Endpoint { flow: FlowId(1), node: NodeId(i as u32), sender: i % 2 == 0 },
            1 => Subject::Link(LinkId(7)),
            _ => Subject::Node(NodeId(3)),
        };
        let event = match i % 4 {
            0 => Event::DataSent { seq: i, bytes: 1400, repair: false },
            1 => Event::Representative { node: None, reason: SwitchReason::Silent },
            2 => Event::LinkSample(LinkCounters { busy_ns: i, ..LinkCounters::default() }),
            _ => Event::Joined,
        };
        hasher.record(&Record { at: Time::from_nanos(i * 1000), subject, event });
    }
    // A change here invalidates every published trace hash: raise the schema version.
    assert_eq!(hasher.hex(), "9f5a44dda4c33f267c4b1dcb0accfbc8");
}

#[test]
fn records_are_written_with_units_in_their_names() {
    let cases = [
        (
            Record {
                at: Time::from_nanos(1_500),
                subject: Subject::Endpoint { flow: FlowId(0), node: NodeId(3), sender: true },
                event: Event::DataSent { seq: 12, bytes: 1400, repair: false },
            },
            r#"{"t_ns":1500,"flow":0,"sender":3,"kind":"sent","seq":12,"bytes":1400,"repair":false}"#,
        ),
        (
            Record {
                at: Time::ZERO,
                subject: Subject::Endpoint { flow: FlowId(1), node: NodeId(2), sender: false },
                event: Event::Joined,
            },
            r#"{"t_ns":0,"flow":1,"receiver":2,"kind":"joined"}"#,
        ),
        (
            Record {
                at: Time::from_nanos(7),
                subject: Subject::Link(LinkId(4)),
                event: Event::PacketDropped {
                    flow: FlowId(1),
                    bytes: 1500,
                    reason: DropReason::QueueFull,
                },
            },
            r#"{"t_ns":7,"link":4,"kind":"dropped","packet_flow":1,"bytes":1500,"reason":"queue_full"}"#,
        ),
    ];
    for (record, want) in cases {
        let mut line = Vec::new();
        write_line(&record, &mut line);
        assert_eq!(String::from_utf8(line).unwrap(), format!("{want}\n"));
    }
}

#[test]
fn broken_lines_are_named_with_file_and_line() {
    for (line, want) in [
        ("{}\n", "t.jsonl:2: the field \"t_ns\" is missing"),
        ("nonsense\n", "t.jsonl:2: expected ident at column 2"),
        ("{\"t_ns\":1,\"node\":1,\"kind\":\"joined\"}", "t.jsonl:2: the file ends in the middle"),
        ("{\"t_ns\":-1,\"node\":1,\"kind\":\"joined\"}\n", "t.jsonl:2: invalid type: integer `-1`"),
        ("{\"t_ns\":1,\"node\":9,\"kind\":\"joined\"}\n", "t.jsonl:2: the header has no node 9"),
        (
            "{\"t_ns\":1,\"flow\":9,\"sender\":1,\"kind\":\"joined\"}\n",
            "t.jsonl:2: the header has no flow 9",
        ),
        ("{\"t_ns\":1,\"link\":9,\"kind\":\"joined\"}\n", "t.jsonl:2: the header has no link 9"),
        ("{\"t_ns\":1,\"kind\":\"joined\"}\n", "t.jsonl:2: exactly one of the fields"),
        ("{\"t_ns\":1,\"node\":1,\"kind\":\"jived\"}\n", "t.jsonl:2: there is no kind \"jived\""),
        (
            "{\"t_ns\":1,\"node\":1,\"kind\":\"joined\",\"seq\":1}\n",
            "t.jsonl:2: \"joined\" has no field \"seq\"",
        ),
        (
            "{\"t_ns\":1,\"node\":1,\"node\":1,\"kind\":\"joined\"}\n",
            "t.jsonl:2: the field \"node\" is there twice",
        ),
        (
            "{\"t_ns\":1,\"node\":1,\"kind\":\"loss\",\"seq\":null}\n",
            "t.jsonl:2: the field \"seq\" must be a whole number",
        ),
        (
            "{\"t_ns\":1,\"node\":1,\"kind\":\"joined\"}\n{\"end\":{}}\n",
            "t.jsonl:3: missing field `ended_ns`",
        ),
    ] {
        let error = error_of(line);
        assert!(error.starts_with(want), "{line}: {error}");
    }
}

#[test]
fn a_file_of_the_first_schema_is_read_still() {
    let mut older = header();
    older.schema = 1;
    let text = format!(
        "{}\n{{\"t_ns\":1,\"link\":0,\"kind\":\"dropped\",\"packet_flow\":0,\"bytes\":9,\
         \"reason\":\"listed\"}}\n{{\"t_ns\":2,\"flow\":0,\"receiver\":1,\"kind\":\"loss\",\"seq\":7}}\n",
        serde_json::to_string(&older).unwrap()
    );
    let mut back = Recording::default();
    Reader::new(text.as_bytes(), "old.jsonl").unwrap().replay(&mut back).unwrap();
    let event = Event::PacketDropped { flow: FlowId(0), bytes: 9, reason: DropReason::Listed };
    let subject = Subject::Link(LinkId(0));
    let dropped = Record { at: Time::from_nanos(1), subject, event };
    let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(1), sender: false };
    let event = Event::LossDetected { seq: 7, count: 1 };
    assert_eq!(back.records, [dropped, Record { at: Time::from_nanos(2), subject, event }]);
}

#[test]
fn a_newer_schema_is_refused_with_the_version_that_reads_it() {
    let mut newer = header();
    newer.schema = SCHEMA_VERSION + 1;
    newer.faircast = "9.1.0".into();
    let text = format!("{}\n", serde_json::to_string(&newer).unwrap());
    let error = Reader::new(text.as_bytes(), "new.jsonl").err().unwrap().to_string();
    assert!(error.contains("new.jsonl") && error.contains("version 4"), "{error}");
    assert!(error.contains("Use faircast 9.1.0 or newer"), "{error}");
}

#[test]
fn a_header_that_points_nowhere_is_refused() {
    let mut bad = header();
    bad.flows[1].to.push(NodeId(99));
    let text = format!("{}\n", serde_json::to_string(&bad).unwrap());
    let error = Reader::new(text.as_bytes(), "t").err().unwrap().to_string();
    assert_eq!(error, "t:1: flow \"f1\" is between nodes that the header lacks");
    let mut bad = header();
    bad.flows[0].speaks[0].node = NodeId(3);
    let text = format!("{}\n", serde_json::to_string(&bad).unwrap());
    let error = Reader::new(text.as_bytes(), "t").err().unwrap().to_string();
    assert_eq!(error, "t:1: somebody speaks in flow \"f0\" who is no receiver of it");
}

#[test]
fn a_file_of_a_killed_run_gives_its_records_and_no_outcome() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let record = Record { at: Time::ZERO, subject: Subject::Node(NodeId(1)), event: Event::Joined };
    writer.record(&record);
    let whole = writer.finish(&outcome()).unwrap();
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&whole[..]), &mut text).unwrap();
    let end = text.windows(7).position(|piece| piece == b"{\"end\":").unwrap();
    let mut reader = Reader::new(&text[..end], "t").unwrap();
    assert_eq!(reader.next_record().unwrap(), Some(record));
    assert_eq!(reader.next_record().unwrap(), None);
    assert_eq!(reader.outcome(), None);
    let mut cut = Reader::new(&whole[..whole.len() - 9], "t").unwrap();
    assert!(matches!(cut.replay(&mut ()), Err(ReadError::Cut(_))));
}

#[test]
fn a_writer_that_is_dropped_leaves_all_its_records() {
    struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bytes = std::rc::Rc::default();
    let mut writer = Writer::new(Shared(std::rc::Rc::clone(&bytes)), &header()).unwrap();
    let record = Record { at: Time::ZERO, subject: Subject::Node(NodeId(1)), event: Event::Joined };
    writer.record(&record);
    drop(writer);
    let file = bytes.borrow();
    let mut reader = Reader::new(&file[..], "t").unwrap();
    assert_eq!(reader.next_record().unwrap(), Some(record));
    assert_eq!((reader.next_record().unwrap(), reader.outcome()), (None, None));
}

#[test]
fn a_writer_keeps_its_first_error_until_it_is_finished() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Full(20_000), &header()).unwrap();
    for i in 0..100_000u64 {
        let event = Event::LossDetected { seq: i.wrapping_mul(0x9e37_79b9_7f4a_7c15), count: 1 };
        let subject = Subject::Node(NodeId(1));
        writer.record(&Record { at: Time::from_nanos(i), subject, event });
    }
    let error = writer.finish(&outcome()).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let piece = vec![b' '; 1 << 20];
    for _ in 0..(crate::reader::LINE_BYTES_MAX >> 20) + 2 {
        bomb.write_all(&piece).unwrap();
    }
    let bytes = bomb.finish().unwrap();
    let error = Reader::new(&bytes[..], "bomb.gz").err().unwrap().to_string();
    assert!(error.contains("longer than"), "{error}");
}

#[test]
fn a_machine_speaks_under_its_name() {
    let mut recording = Recording::default();
    let subject = Subject::Endpoint { flow: FlowId(1), node: NodeId(2), sender: false };
    Tagged { subject, sink: &mut recording }.emit(Time::from_nanos(5), Event::Left);
    assert_eq!(
        recording.records,
        [Record { at: Time::from_nanos(5), subject, event: Event::Left }]
    );
}
