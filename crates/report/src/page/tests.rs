//! Tests of pages.

use faircast_base::{BadInput, Event, FlowId, LinkCounters, LinkId, NodeId, SwitchReason, Time};
use faircast_trace::{
    FlowHeader, Header, LinkHeader, Outcome, Reader, Record, Sink, Subject, Tee, Writer,
};
use proptest::prelude::*;

use super::*;
use crate::{
    Acceptance, Expected, Metrics, MissCause, Plots, Row, Series, Source, Suite, Summary, Values,
};

const EVIL: &str =
    "<script>alert(1)</script><!--\"'&amp;\u{202e}\u{2028}\u{2066}\u{1b}[2J\u{9b}\u{85}";

fn header(name: &str) -> Header {
    let link = LinkHeader { to: NodeId(1), queue: name.into(), ..LinkHeader::default() };
    let flow = FlowHeader {
        name: name.into(),
        protocol: name.into(),
        to: vec![NodeId(1)],
        ..FlowHeader::default()
    };
    Header {
        faircast: name.into(),
        scenario: name.into(),
        title: name.into(),
        text: name.into(),
        duration_s: 10.0,
        warmup_s: 1.0,
        nodes: vec![name.into(), name.into()],
        links: vec![link],
        flows: vec![flow],
        ..Header::default()
    }
}

fn run(name: &str, moments: &[u64]) -> (Header, Summary, Series) {
    let header = header(name);
    let mut sinks = Tee(Metrics::new(&header), Series::new(&header));
    for (seq, ns) in (0..).zip(moments) {
        let at = Time::from_nanos(*ns);
        let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(0), sender: true };
        for event in [
            Event::DataSent { seq, bytes: 1000, repair: false },
            Event::Representative { node: Some(NodeId(1)), reason: SwitchReason::Slower },
            Event::RttSample { node: NodeId(1), rtt_ns: *ns },
            Event::NakReceived { seq: ns.wrapping_mul(3), count: 1, from: NodeId(1) },
        ] {
            sinks.record(&Record { at, subject, event });
        }
        let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(1), sender: false };
        let event = Event::RepairHead { node: Some(NodeId(0)), level: 2 + (seq % 2) as u32 };
        sinks.record(&Record { at, subject, event });
        let counters = LinkCounters {
            sent_packets: seq + 1,
            queue_max_packets: 3,
            queue_packet_ns: *ns,
            ..LinkCounters::default()
        };
        let (subject, event) = (Subject::Link(LinkId(0)), Event::LinkSample(counters));
        sinks.record(&Record { at, subject, event });
    }
    let outcome = Outcome {
        at: Time::from_nanos(10_000_000_000),
        interrupted: true,
        intact: vec![vec![Some(false)]],
        trace_hash: Some(name.into()),
        lateness: None,
        ..Outcome::default()
    };
    (header, sinks.0.finish(&outcome), sinks.1)
}

fn data_of(page: &str) -> serde_json::Value {
    let start = page.find("id=\"data\">").expect("there is data") + "id=\"data\">".len();
    let end = page[start..].find("</script>").expect("the element ends");
    serde_json::from_str(&page[start..start + end]).expect("the data are JSON")
}

fn check_escaped(page: &str) {
    assert!(!page.contains(EVIL) && !page.contains("<script>alert"), "a name is not escaped");
    assert!(!page.contains(|c| c != '\n' && faircast_base::is_format(c)), "a name is not escaped");
    assert!(!page.contains("<!--"), "a comment would swallow the page");
    assert_eq!(page.matches("</script>").count(), 4);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn no_name_of_a_run_can_break_out_of_its_place() {
    let (header, summary, series) = run(EVIL, &[0, 2_000_000_000, 3_000_000_000]);
    let page = run_page(&header, &summary, &series);
    check_escaped(&page);
    assert_eq!(data_of(&page)[0]["plots"][0]["lines"][0]["owner"], *faircast_base::escaped(EVIL));
    assert!(page.contains("Interrupted") && page.contains("Damaged data"));
}

#[test]
fn a_run_of_nodes_without_flows_has_a_trace_a_summary_and_a_page() {
    let header = Header { flows: Vec::new(), ..header("daemons") };
    let mut file = Writer::new(Vec::new(), &header).expect("memory takes everything");
    let subject = Subject::Node(NodeId(1));
    for (seq, at) in (1..).zip([0, 2_000_000_000, 3_000_000_000].map(Time::from_nanos)) {
        for event in [
            Event::DataSent { seq, bytes: 1000, repair: false },
            Event::Delivered { seq, bytes: 1000 },
            Event::RttSample { node: NodeId(0), rtt_ns: 7 },
            Event::BadInput { reason: BadInput::Malformed },
            Event::Joined,
        ] {
            file.record(&Record { at, subject, event });
        }
    }
    let outcome = Outcome { at: Time::from_nanos(10_000_000_000), ..Outcome::default() };
    let bytes = file.finish(&outcome).expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..], "memory").expect("the header is ours");
    let mut sinks = Tee(Metrics::new(&header), Series::new(&header));
    while let Some(record) = reader.next_record().expect("the trace is whole") {
        sinks.record(&record);
    }
    assert_eq!(reader.outcome(), Some(&outcome));
    let summary = sinks.0.finish(&outcome);
    assert!(summary.flows.is_empty());
    assert!(run_page(&header, &summary, &sinks.1).contains("daemons"));
}

#[test]
fn no_name_of_a_suite_can_break_out_of_its_place() {
    let row = Row {
        id: EVIL.into(),
        title: EVIL.into(),
        unit: EVIL.into(),
        expected: Expected { paper: Some(f64::INFINITY), ..Expected::default() },
        values: Values { ours: f64::NAN, ..Values::default() },
        accepted: Acceptance {
            fairer_than: Some(EVIL.into()),
            reason: EVIL.into(),
            ..Acceptance::default()
        },
        cause: MissCause {
            explained: Some(EVIL.into()),
            proved_by: vec![EVIL.into()],
            fitted: Some(EVIL.into()),
            baseline: false,
        },
        source: Source {
            group: EVIL.into(),
            experiment: EVIL.into(),
            question: EVIL.into(),
            paper_says: EVIL.into(),
            scenario: Some((EVIL.into(), EVIL.into())),
            ..Source::default()
        },
        per_seed: vec![(1, f64::NAN)],
        series: Some(run(EVIL, &[0, 2_000_000_000]).2),
        ..Row::default()
    };
    let suite = Suite { name: EVIL.into(), about: EVIL.into(), rows: vec![row] };
    let page = bench_page(&suite);
    check_escaped(&page);
    assert_eq!(data_of(&page)[0]["plots"][0]["lines"][0]["owner"], *faircast_base::escaped(EVIL));
}

#[test]
fn no_name_of_a_matrix_can_break_out_of_its_place() {
    let mut matrix = crate::matrix::tests::matrix(EVIL);
    let case = &mut matrix.cases[0];
    (case.id, case.group, case.scenario) = (EVIL.into(), EVIL.into(), EVIL.into());
    (case.set, case.note) = (vec![EVIL.into()], Some(EVIL.into()));
    (matrix.title, matrix.faircast) = (EVIL.into(), EVIL.into());
    let page = matrix_page(&matrix);
    check_escaped(&page);
    // Two figures, cells and cases: each links to its worst run twice, each case to its five runs.
    assert_eq!(page.matches("<a href=\"runs/").count(), 16 + 10);
}

#[test]
fn rows_of_one_experiment_share_a_section_and_groups_the_navigation() {
    let row = |id: &str, experiment: &str, group: &str| Row {
        id: id.into(),
        source: Source {
            experiment: experiment.into(),
            group: group.into(),
            question: format!("Is {experiment} fair?"),
            ..Source::default()
        },
        accepted: Acceptance { high: Some(0.4), ..Acceptance::default() },
        ..Row::default()
    };
    let suite = Suite {
        name: "mine".into(),
        about: "A title".into(),
        rows: vec![
            row("a-1", "a", "Set 1: windows"),
            row("a-2", "a", "Set 1: windows"),
            row("b", "b", "Cures"),
            row("c", "c", "Set 1: windows"),
        ],
    };
    let page = bench_page(&suite);
    assert!(page.contains("<h1>A title</h1><p class=\"soft\">Suite mine</p>"));
    assert_eq!(page.matches("<section class=\"card experiment\"").count(), 3);
    assert_eq!(page.matches("Is a fair?").count(), 1);
    let nav = page.split_once("<nav").unwrap().1.split_once("</nav>").unwrap().0;
    assert_eq!(nav.matches("<a ").count(), 3, "{nav}");
    assert!(nav.contains(">Set 1</a>") && nav.contains(">Cures</a>"), "{nav}");
    for id in ["a-1", "a-2", "b", "c"] {
        assert_eq!(page.matches(&format!(" id=\"row-{id}\"")).count(), 1, "{id}");
    }
    assert_eq!(page.matches("<td>≤ 0.4</td>").count(), 4);
    assert_eq!(page.matches("<rect class=\"band\"").count(), 8);
}

#[test]
fn an_experiment_shows_what_its_suite_chose_and_no_more() {
    let row =
        |plots| Row { series: Some(run("x", &[0, 2_000_000_000]).2), plots, ..Row::default() };
    for (plots, kind, key) in [
        (Plots::Sequence, "sequence", "sequence"),
        (Plots::Rate, "rate", "throughput"),
        (Plots::Mean, "mean", "mean"),
    ] {
        let suite = Suite { name: "mine".into(), about: String::new(), rows: vec![row(plots)] };
        let page = bench_page(&suite);
        assert!(page.contains(&format!("data-kind=\"{kind}\"")), "{kind}");
        let data = data_of(&page);
        let shown = data[0]["plots"].as_array().unwrap();
        assert_eq!((shown.len(), &shown[0]["key"]), (1, &key.into()));
        let marks = shown[0]["marks"].as_array().unwrap();
        let switches = marks.iter().find(|row| row["kind"] == "new representative").unwrap();
        assert_eq!(switches["total"], 2, "{kind}");
    }
}

#[test]
fn a_page_asks_nothing_of_any_network() {
    let (header, summary, series) = run("x", &[0]);
    let page = run_page(&header, &summary, &series).replace("url(#field)", "");
    for needle in ["src=", "@import", "url(", "fetch(", "XMLHttpRequest", "<link rel=\"style"] {
        assert!(!page.contains(needle), "{needle}");
    }
    assert!(page.contains("default-src 'none'"));
}

proptest! {
    #[test]
    fn plots_are_valid_json_with_rising_moments(
        mut moments in prop::collection::vec(0u64..20_000_000_000, 0..200),
        name in ".{0,12}",
    ) {
        moments.sort_unstable();
        let (header, summary, series) = run(&name, &moments);
        let data = data_of(&run_page(&header, &summary, &series));
        for plot in data[0]["plots"].as_array().unwrap() {
            for line in plot["lines"].as_array().unwrap() {
                let times: Vec<f64> =
                    line["times"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect();
                let key = &plot["key"];
                // Several choices at one time make a vertical line.
                let rises = |pair: &[f64]| pair[0] < pair[1] || key == "representative";
                prop_assert!(times.windows(2).all(rises), "{key}: {times:?}");
                prop_assert_eq!(times.len(), line["values"].as_array().unwrap().len());
            }
        }
    }
}
