//! All keys of the JSON summary, compared with values worked out by hand.

use faircast::SCHEMES;

use super::site::Site;
use super::*;

/// Scenario: one of two receivers gets no packets of more than 700 bytes.
const NARROW: &str = r#"title = "Who gets only short packets?"
duration = "20 s"
link = [
    { star = { center = "r", leaves = ["s", "a"] }, rate = "10 Mbit/s", delay = "2 ms" },
    { from = "r", to = "c", rate = "10 Mbit/s", delay = "2 ms", mtu = "700 B" },
    { from = "c", to = "r", rate = "10 Mbit/s", delay = "2 ms" },
]
[[flow]]
name = "files"
protocol = "pgmcc"
from = "s"
to = ["a", "c"]
data = "8 MB"
options = { delivery = "object" }
"#;

#[test]
fn a_link_of_a_small_mtu_is_named_by_objects_over_pgm_and_tram() {
    let site = Site::with("");
    site.put("narrow.toml", NARROW);
    let path = site.path("narrow.toml");
    for protocol in ["pgmcc", "tram"] {
        let words = format!("run {} --set flow.files.protocol={protocol}", path.display());
        let summary = json(&format!("{words} --json"));
        let receivers = &summary["flows"][0]["receivers"];
        assert_eq!(receivers[0].get("path_bytes"), None, "{protocol}: {summary:#}");
        assert_eq!(receivers[1]["path_bytes"], 700, "{protocol}: {summary:#}");
        let links = summary["links"].as_array().unwrap();
        let narrow = links.iter().find(|link| link["to"] == "c").unwrap();
        assert!(narrow["drops"]["too_long"].as_u64() > Some(0), "{narrow:#}");
        let told = succeed(&words);
        assert!(told.contains("c gets only packets of up to 700 bytes"), "{told}");
    }
}

/// Scenario without random events beyond the seed's use: each number below follows from this text.
const BY_HAND: &str = r#"title = "Does every key mean what it says?"
duration = "20 s"
warmup = "10 s"
seed = 7

# 1.2 Mbit/s are offered, one packet of 1250 B each 8.333 ms; 1 Mbit/s fits. The queue is full all
# the time, and one packet in six is dropped.
[[link]]
from = "a"
to = "b"
rate = "1 Mbit/s"
delay = "10 ms"
queue = { kind = "droptail", packets = 20 }

# 0.5 Mbit/s of 10 fit with room to spare. Packets 600, 700 and 800 are dropped on purpose; the
# first is sent at 12 s.
[[link]]
from = "a"
to = "c"
rate = "10 Mbit/s"
delay = "10 ms"
drop_list = [600, 700, 800]

# A file of 125 000 B takes 1 s at 1 Mbit/s, and a little more for start and end.
[[link]]
between = ["d", "e"]
rate = "1 Mbit/s"
delay = "10 ms"

[[flow]]
name = "full"
protocol = "cbr"
from = "a"
to = ["b"]
packet = "1250 B"
header = "0 B"
options = { rate = "1200 kbit/s" }

[[flow]]
name = "free"
protocol = "cbr"
from = "a"
to = ["c"]
packet = "1250 B"
header = "0 B"
options = { rate = "500 kbit/s" }

[[flow]]
name = "file"
protocol = "tcp-sack"
from = "d"
to = ["e"]
packet = "1250 B"
header = "0 B"
start = "11 s"
data = "125 kB"
"#;

enum Want {
    Is(Value),
    Near(f64, f64),
    Between(f64, f64),
}

use Want::{Between, Is, Near};

#[test]
fn every_key_means_what_it_says() {
    let summary = Site::of("by-hand.toml", BY_HAND).json("run by-hand.toml --json");
    let is = |value: &str| Is(value.into());
    let number = |value: f64| Near(value, 1e-9);
    for (key, want) in [
        ("/faircast", is(env!("CARGO_PKG_VERSION"))),
        ("/scenario", is("by-hand.toml")),
        ("/title", is("Does every key mean what it says?")),
        ("/on", is("sim")),
        ("/seed", Is(7.into())),
        ("/duration_s", number(20.0)),
        ("/warmup_s", number(10.0)),
        ("/ended_s", number(20.0)),
        ("/interrupted", Is(false.into())),
        ("/flows/0/name", is("full")),
        ("/flows/0/protocol", is("cbr")),
        ("/flows/0/from", is("a")),
        ("/flows/0/throughput_bps", Near(1_200_000.0, 1_500.0)),
        ("/flows/0/active_throughput_bps", Near(1_200_000.0, 1_500.0)),
        ("/flows/0/sent_bps", Near(1_200_000.0, 1_500.0)),
        ("/flows/0/feedback_per_s", Is(0.0.into())),
        ("/flows/0/sent_packets", Near(2_400.0, 2.0)),
        ("/flows/0/repair_packets", Is(0.into())),
        ("/flows/0/feedback_packets", Is(0.into())),
        ("/flows/0/completed_s", Is(Value::Null)),
        ("/flows/0/representative", Is(Value::Null)),
        // 200 kbit/s do not fit: 20 packets/s are dropped once the queue is full.
        ("/flows/0/dropped_packets", Near(380.0, 5.0)),
        ("/flows/0/receivers/0/node", is("b")),
        ("/flows/0/receivers/0/goodput_bps", Near(1_000_000.0, 1_500.0)),
        // The ratio covers the whole run.
        ("/flows/0/receivers/0/loss_ratio", Near(1.0 / 6.0, 0.02)),
        ("/flows/0/receivers/0/completed_s", Is(Value::Null)),
        ("/links/0/from", is("a")),
        ("/links/0/to", is("b")),
        ("/links/0/utilisation", Near(1.0, 1e-6)),
        ("/links/0/throughput_bps", Near(1_000_000.0, 1_500.0)),
        // The counted 10 s: 20 packets/s.
        ("/links/0/dropped_packets", Near(200.0, 2.0)),
        ("/links/0/drops/queue_full", Near(200.0, 2.0)),
        ("/links/0/drops/listed", Is(0.into())),
        ("/links/0/drop_ratio", Near(1.0 / 6.0, 0.002)),
        ("/links/0/queue_max_packets", Is(20.into())),
        // 19 packets wait and one is in transmission; for a part of the time one place is empty.
        ("/links/0/queue_mean_packets", Between(18.0, 19.0)),
        ("/flows/1/throughput_bps", Near(500_000.0, 1_500.0)),
        ("/flows/1/dropped_packets", Is(3.into())),
        ("/flows/1/receivers/0/lost_packets", Is(3.into())),
        ("/flows/1/receivers/0/delivered_packets", Near(997.0, 2.0)),
        ("/flows/1/receivers/0/goodput_bps", Near(497_000.0, 1_500.0)),
        ("/links/1/utilisation", Near(0.05, 0.001)),
        ("/links/1/drops/listed", Is(3.into())),
        ("/links/1/queue_max_packets", Is(1.into())),
        ("/links/1/queue_mean_packets", number(0.0)),
        // 125 000 B acknowledged in the counted 10 s.
        ("/flows/2/throughput_bps", Near(100_000.0, 1_100.0)),
        ("/flows/2/receivers/0/goodput_bps", Near(100_000.0, 1_100.0)),
        ("/flows/2/feedback_packets", Between(100.0, 102.0)),
        ("/flows/2/timeouts", Is(0.into())),
        ("/flows/2/cuts", Is(0.into())),
        ("/flows/2/completed_s", Between(12.0, 12.5)),
        ("/flows/2/active_throughput_bps", Between(650_000.0, 1_000_000.0)),
        ("/flows/2/rtt_mean_s", Between(0.03, 1.1)),
        ("/flows/2/receivers/0/completed_s", Between(12.0, 12.5)),
        ("/flows/2/receivers/0/intact", Is(true.into())),
        ("/links/2/utilisation", Near(0.1, 0.002)),
        ("/routers/dropped_packets", Is(0.into())),
        // (1.2 + 0.5 + 0.1)^2 / (3 (1.2^2 + 0.5^2 + 0.1^2))
        ("/jain_index", Near(3.24 / 5.1, 0.003)),
        // The file flow is active from 11 s until its completion.
        ("/common/from_s", number(11.0)),
        ("/common/to_s", Between(12.0, 12.5)),
        // (1.2 + 0.5 + x)^2 / (3 (1.2^2 + 0.5^2 + x^2)) for an x from 0.65 to 1.
        ("/common/jain_index", Between(0.865, 0.91)),
        ("/flows/0/common_throughput_bps", Near(1_200_000.0, 10_000.0)),
        ("/flows/1/common_throughput_bps", Near(500_000.0, 10_000.0)),
        ("/flows/2/common_throughput_bps", Between(650_000.0, 1_000_000.0)),
        ("/wall_s", Between(0.0, LIMIT_S as f64)),
        ("/events", Between(5_000.0, 50_000.0)),
    ] {
        let found = summary.pointer(key).unwrap_or_else(|| panic!("{key} is missing"));
        let near = |low: f64, high: f64| {
            let number = found.as_f64().unwrap_or_else(|| panic!("{key}: {found}"));
            assert!((low..=high).contains(&number), "{key}: {number}, not {low} to {high}");
        };
        match want {
            Is(value) => assert_eq!(*found, value, "{key}"),
            Near(value, distance) => near(value - distance, value + distance),
            Between(low, high) => near(low, high),
        }
    }
}

#[test]
fn a_multicast_session_has_its_losses_repairs_and_copies_in_the_summary() {
    let summary = json("run scenarios/lossy-links.toml --json");
    let session = &summary["flows"][0];
    let number = |key: &str| session[key].as_f64().unwrap();
    assert_eq!(session["protocol"], "pgmcc");
    assert!(number("repair_packets") > 0.0, "{session}");
    assert_eq!(number("feedback_packets"), number("ack_packets") + number("nak_packets"));
    assert!(session["representative"].is_string(), "{session}");
    for (receiver, loss) in session["receivers"].as_array().unwrap().iter().zip([0.004, 0.016]) {
        let measured = receiver["loss_ratio"].as_f64().unwrap();
        assert!((measured - loss).abs() < 0.5 * loss, "{receiver}");
        assert_eq!(receiver["abandoned_packets"], 0, "{receiver}");
        assert_eq!(receiver["intact"], true, "{receiver}");
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_other_seeds_others() {
    let site = Site::of("small.toml", SMALL);
    let run = |seed: u32| {
        let mut summary = site.json(&format!("run small.toml --json --seed {seed}"));
        summary.as_object_mut().unwrap().remove("wall_s").unwrap();
        summary
    };
    let (first, again, other) = (run(1), run(1), run(2));
    assert_eq!(first, again);
    assert!(first["trace_hash"].as_str().is_some_and(|hash| hash.len() == 32), "{first}");
    assert_ne!(first["trace_hash"], other["trace_hash"]);
    let of_file = site.json("run small.toml --json");
    assert_eq!(of_file["seed"], 7);
    assert_eq!(of_file["trace_hash"], site.json("run small.toml --json")["trace_hash"]);
}

#[test]
fn settings_and_seed_from_the_command_line_replace_the_files() {
    let set = "--set 'link.0.rate=2 Mbit/s' --set 'warmup=0 s' --set flow.tcp.count=1";
    let run = format!("run small.toml --json --seed 3 {set}");
    let summary = Site::of("small.toml", SMALL).json(&run);
    assert_eq!((summary["seed"].as_u64(), summary["warmup_s"].as_f64()), (Some(3), Some(0.0)));
    assert_eq!(summary["flows"].as_array().unwrap().len(), 1);
    let throughput = summary["flows"][0]["throughput_bps"].as_f64().unwrap();
    assert!(throughput > 1.2e6 && throughput < 2e6, "{throughput}");
}

#[test]
fn a_receiver_of_another_scheme_is_told_in_table_and_summary() {
    for (sender, other) in SCHEMES.iter().zip(SCHEMES.iter().skip(1)) {
        let text = format!(
            "title = \"Who speaks what?\"\nduration = \"20 s\"\n\
             [[link]]\nstar = {{ center = \"s\", leaves = [\"a\", \"b\"] }}\nrate = \"1 Mbit/s\"\n\
             delay = \"10 ms\"\n[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\n\
             to = [\"a\", \"b\"]\nspeaks = [ {{ node = \"b\", protocol = \"{}\" }} ]\n",
            sender.name, other.name
        );
        let site = Site::of("speaks.toml", &text);
        let table = site.succeed("run speaks.toml");
        let mismatch = faircast_proto::catalog::mismatch(sender.name, other.name);
        let live = mismatch.to_string();
        let (who, advice) = live.split_once(": ").unwrap();
        let who = who.replace("this receiver", "b");
        let advice = advice.replace(" here,", " there,");
        let want = format!("(f: {who} and got nothing, as the sender has heard: {advice})");
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&want), "{words}, and not {want}");
        let row = table.lines().find(|line| line.starts_with("f") && line.contains(" b "));
        assert!(row.unwrap().ends_with('–'), "nothing is not intact: {table}");
        let summary = site.json("run speaks.toml --json");
        let receivers = &summary["flows"][0]["receivers"];
        assert!(receivers[0]["delivered_packets"].as_u64() > Some(10), "{receivers}");
        assert_eq!(receivers[0].get("other_scheme"), None);
        assert_eq!((&receivers[0]["intact"], receivers[0].get("speaks")), (&true.into(), None));
        assert_eq!(receivers[1]["intact"], Value::Null);
        assert_eq!(receivers[1]["speaks"], other.name);
        assert_eq!(summary["flows"][0]["mismatched_receivers"], 1);
        assert_eq!(receivers[1]["delivered_packets"], 0);
        assert_eq!(receivers[1]["other_scheme"], true);
    }
}
