//! Short runs in the lab. Without root they print that they are skipped.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;

use faircast_base::{ClientAct, ClientNote, Event, Time};
use faircast_checker::{Trace, check};
use faircast_lab::{LabError, LabOutcome};
use faircast_proto::catalog::{SCHEMES, SchemeEntry};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::Unobserved;
use faircast_trace::{Record, Recording, Sink, Subject, Tee};

fn run(text: &str) -> Option<(LabOutcome, Vec<Record>)> {
    let mut recording = Recording::default();
    let outcome = run_into(text, &mut recording)?;
    Some((outcome, recording.records))
}

fn run_into(text: &str, sink: &mut dyn Sink) -> Option<LabOutcome> {
    let scenario = scenario(text);
    match faircast_lab::run(&scenario, &mut Unobserved, sink) {
        Ok(outcome) => Some(outcome),
        Err(error @ LabError::Machine(_)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn scenario(text: &str) -> Scenario {
    let (path, overrides) = (Path::new("test.toml"), Overrides::default());
    Scenario::parse(path, text, &overrides, &faircast_sim::catalog()).unwrap()
}

fn network(seconds: u32, link: &str, flow: &str) -> String {
    format!(
        "duration = \"{seconds} s\"\n\
         [[link]]\nbetween = [\"r1\", \"r2\"]\n{link}\n\
         [[link]]\nstar = {{ center = \"r1\", leaves = [\"s\"] }}\nrate = \"1 Gbit/s\"\n\
         delay = \"0.1 ms\"\nqueue = {{ kind = \"droptail\", packets = 5000 }}\n\
         [[link]]\nstar = {{ center = \"r2\", leaves = [\"a\", \"b\"] }}\nrate = \"1 Gbit/s\"\n\
         delay = \"0.1 ms\"\nqueue = {{ kind = \"droptail\", packets = 5000 }}\n\
         [[flow]]\nname = \"f\"\nfrom = \"s\"\n{flow}\n"
    )
}

const LINK: &str = "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n\
                    queue = { kind = \"droptail\", packets = 30 }\n";

fn bytes(records: &[Record], of: impl Fn(&Event) -> Option<u32>) -> u64 {
    records.iter().filter_map(|record| of(&record.event)).map(u64::from).sum()
}

fn delivered(event: &Event) -> Option<u32> {
    match event {
        Event::Delivered { bytes, .. } => Some(*bytes),
        _ => None,
    }
}

fn completed_receivers(records: &[Record]) -> usize {
    let completes = |record: &&Record| {
        let receiver = matches!(record.subject, Subject::Endpoint { sender: false, .. });
        receiver && matches!(record.event, Event::Completed { .. })
    };
    records.iter().filter(completes).count()
}

#[test]
fn the_kernels_tcp_delivers_every_byte_over_a_link_that_loses_packets() {
    let flow = "protocol = \"tcp-sack\"\nto = [\"a\"]\npacket = \"1000 B\"\ndata = \"500 kB\"";
    let Some((outcome, records)) = run(&network(5, &format!("{LINK}loss = 0.01"), flow)) else {
        return;
    };
    assert_eq!(outcome.intact, [[Some(true)]]);
    let acknowledged = |event: &Event| match event {
        Event::AckReceived { bytes, .. } => Some(*bytes),
        _ => None,
    };
    assert_eq!(bytes(&records, delivered), 500_000);
    assert_eq!(bytes(&records, acknowledged), 500_000);
    assert_eq!(completed_receivers(&records), 1);
    let is_new = |record: &&Record| matches!(record.event, Event::DataSent { repair: false, .. });
    let sent = records.iter().filter(is_new).count();
    assert!((500..=510).contains(&sent), "segments have 1000 B: {sent}");
    assert!(records.iter().any(|record| matches!(record.event, Event::Window { .. })));
    assert!(records.iter().any(|record| matches!(record.event, Event::RttSample { .. })));
    assert!(records.is_sorted_by_key(|record| record.at));
}

#[test]
fn a_session_reaches_all_its_receivers_over_every_scheme_and_the_lateness_is_told() {
    SCHEMES.iter().for_each(a_session_reaches_all_its_receivers);
}

fn a_session_reaches_all_its_receivers(scheme: &SchemeEntry) {
    let flow = format!(
        "protocol = \"{}\"\nto = [\"a\", \"b\"]\npacket = \"1000 B\"\ndata = \"300 kB\"",
        scheme.name
    );
    let Some((outcome, records)) = run(&network(8, &format!("{LINK}loss = 0.01"), &flow)) else {
        return;
    };
    assert_eq!(outcome.intact, [[Some(true), Some(true)]]);
    assert_eq!(completed_receivers(&records), 2);
    assert_eq!(bytes(&records, delivered), 600_000);
    let late = outcome.lateness;
    assert!(late.packets > 600, "data to two receivers and feedback: {}", late.packets);
    assert!(0.0 < late.mean_s && late.mean_s <= late.p99_s.max(late.max_s), "{late:?}");
    assert!(late.p99_s <= late.max_s && late.max_s < 5.0, "{late:?}");
    assert!(outcome.packet_hops > 900 && outcome.events > 900);
}

#[test]
fn elements_in_routers_see_what_hosts_send() {
    let flow = "protocol = \"pgmcc\"\nto = [\"a\", \"b\"]\npacket = \"1000 B\"\ndata = \"300 kB\"\n\
                [[node]]\nname = \"r2\"\nprogram = \"pgm-element\"";
    let Some((outcome, records)) = run(&network(8, &format!("{LINK}loss = 0.02"), flow)) else {
        return;
    };
    assert_eq!(outcome.intact, [[Some(true), Some(true)]]);
    let forwarded = |record: &&Record| matches!(record.event, Event::NakForwarded { .. });
    assert!(records.iter().any(|record| forwarded(&record)), "NAKs pass the element");
}

#[test]
fn memberships_follow_the_scenario() {
    let flow = "protocol = \"cbr\"\nto = [\"a\", \"b\"]\npacket = \"1000 B\"\n\
                options = { rate = \"800 kbit/s\" }\n\
                join = [ { node = \"b\", at = \"1 s\", leave = \"2 s\" } ]";
    let Some((outcome, records)) = run(&network(3, LINK, flow)) else { return };
    assert!(!outcome.interrupted);
    let at = |wanted: Event| {
        let mut found = records.iter().filter(|record| record.event == wanted);
        found.next_back().expect("it is told").at
    };
    let near = |moment: Time, seconds: f64| (moment.as_secs_f64() - seconds).abs() < 0.5;
    assert!(near(at(Event::Joined), 1.0) && near(at(Event::Left), 2.0));
    // 100 packets per second: 300 to one receiver and 100 to the other, less those under way.
    let packets = bytes(&records, delivered) / 1000;
    assert!((300..=420).contains(&packets), "{packets}");
}

#[test]
fn a_sender_may_receive_too() {
    // A machine under load needs time until all sockets are open.
    let flow = "protocol = \"cbr\"\nto = [\"a\", \"b\"]\npacket = \"1000 B\"\ndata = \"100 kB\"\n\
                start = \"0.5 s\"\noptions = { rate = \"800 kbit/s\" }";
    let network = network(3, LINK, flow).replacen("from = \"s\"", "from = [\"s\", \"b\"]", 1);
    let Some((outcome, records)) = run(&network) else { return };
    assert_eq!(outcome.intact, [[Some(true), Some(true)]]);
    assert_eq!(bytes(&records, delivered), 300_000);
    assert_eq!(completed_receivers(&records), 2);
}

#[test]
fn receivers_find_a_head_and_are_repaired_by_it() {
    let flow = "protocol = \"tram\"\nto = [\"a\", \"b\"]\npacket = \"1000 B\"\ndata = \"300 kB\"\n\
                options = { members_max = 1, wait_for = 2 }";
    let lossy = format!("{LINK}loss = 0.02\n");
    let Some((outcome, records)) = run(&network(20, &lossy, flow)) else { return };
    assert_eq!(outcome.intact, [[Some(true), Some(true)]]);
    assert_eq!(completed_receivers(&records), 2);
    let level = |record: &Record| match record.event {
        Event::RepairHead { level, .. } => Some(level),
        _ => None,
    };
    assert_eq!(records.iter().filter_map(level).max(), Some(3));
}

#[derive(Default)]
struct Acts(Vec<ClientNote>);

impl Sink for Acts {
    fn record(&mut self, _: &Record) {}

    fn note(&mut self, _: Time, note: &ClientNote) {
        self.0.push(note.clone());
    }
}

#[test]
fn daemons_keep_all_rules_beside_the_kernels_tcp_through_a_stop_and_a_crash() {
    let flow = "protocol = \"tcp-sack\"\nto = [\"a\"]";
    let overlay = "[[daemon]]\nnode = \"s\"\n\
                   [[daemon]]\nnode = [\"a\", \"b\"]\npeers = \"s\"\n\
                   [[client]]\nname = \"c\"\nnode = [\"s\", \"a\", \"b\"]\ngroups = \"g\"\n\
                   send = { groups = \"g\", service = \"agreed\", size = \"500 B\", \
                   rate = \"40 kbit/s\", start = \"3 s\", stop = \"16 s\" }\n\
                   [[fault]]\nnode = \"b\"\nat = \"5 s\"\nstop = \"1.5 s\"\n\
                   [[fault]]\nnode = \"b\"\nat = \"8 s\"\nrestart = \"1 s\"\n";
    let mut sink = Tee(Recording::default(), Acts::default());
    let text = network(20, LINK, flow) + overlay;
    if run_into(&text, &mut sink).is_none() {
        return;
    }
    let Tee(recording, Acts(acts)) = sink;
    assert!(bytes(&recording.records, delivered) > 1_000_000, "TCP has its share");
    let count = |is: &dyn Fn(&ClientAct) -> bool| acts.iter().filter(|it| is(&it.act)).count();
    let sent = count(&|it| matches!(it, ClientAct::Sent { .. }));
    let got = count(&|it| matches!(it, ClientAct::Delivered { .. }));
    let whole = count(&|it| matches!(it, ClientAct::View { daemons: 3 }));
    // Ten messages per second for 13 s at each of three clients.
    assert!(sent > 300 && got > 2 * sent, "{sent} sent, {got} delivered");
    assert!(whole >= 6, "three clients see a whole view before and after the crash: {whole}");
    let lines: Vec<&str> = acts.iter().map(|it| it.line.as_str()).collect();
    let lines = lines.join("\n");
    let trace = Trace::read([("clients".into(), lines.as_bytes())]).unwrap();
    let wrong: Vec<String> = check(&trace).iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_the_lab_has_not_is_refused_before_anything_is_made() {
    let flow = "protocol = \"tcp-sack\"\nto = [\"a\"]\npacket = \"40 B\"";
    let scenario = scenario(&network(1, LINK, flow));
    let error = faircast_lab::run(&scenario, &mut Unobserved, &mut ()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("at least 88 B"), "{error}");
}

#[test]
fn settings_that_the_kernel_lacks_are_named() {
    let flow = "protocol = \"tcp-sack\"\nto = [\"a\"]\n\
                options = { window_max = 20, precision_reduce = false }";
    let warnings = faircast_lab::warnings(&scenario(&network(1, LINK, flow)));
    assert!(warnings[0].contains("has no precision_reduce"), "{warnings:?}");
}
