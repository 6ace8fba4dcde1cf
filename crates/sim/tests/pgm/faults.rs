//! Faults on the path, alone and together, in both directions; everything arrives intact.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use faircast_base::{Duration, NodeId, Purpose, Rng, Time};

use super::world::{Run, run};

const FAULTS: [(&str, &str); 5] = [
    ("burst_loss", "burst_loss = { loss = 0.03, packets = 6 }"),
    ("reorder", "reorder = { share = 0.02, delay = \"5 ms\" }"),
    ("duplicate", "duplicate = 0.1"),
    ("corrupt", "corrupt = 0.02"),
    (
        "outages",
        "outages = [ { from = \"0.3 s\", to = \"0.8 s\" }, { from = \"1 s\", to = \"4 s\" } ]",
    ),
];

/// A burst lasts for some packets: half a minute on a link with a NAK every second or two.
const LINGER: &str = "options = { linger = \"60 s\" }";

#[derive(Clone, Copy)]
struct Way<'a> {
    name: &'a str,
    protocol: &'a str,
    flow: &'a str,
    element: bool,
}

/// Star of links behind a lossy middle link, which alone corrupts: two flipped bits can cancel out.
fn network(keys: &str, loss: f64, way: &Way<'_>, receivers: u32, duration: &str) -> String {
    let mut text = format!("title = \"Does everything arrive?\"\nduration = \"{duration}\"\n");
    let star_keys: Vec<_> = keys.lines().filter(|key| !key.starts_with("corrupt")).collect();
    let star_keys = star_keys.join("\n");
    let like = "rate = \"10 Mbit/s\"\ndelay = \"5 ms\"";
    let _ = write!(
        text,
        "[[link]]\nbetween = [\"s\", \"r\"]\n{like}\nloss = {loss}\n{keys}\n\
         [[link]]\nstar = {{ center = \"r\", leaves = [\"m{{1..{receivers}}}\"] }}\n{like}\n{star_keys}\n"
    );
    if way.element {
        text += "[[node]]\nname = \"r\"\nprogram = \"pgm-element\"\n";
    }
    let _ = write!(
        text,
        "[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\n\
         to = [\"m{{1..{receivers}}}\"]\npacket = \"1400 B\"\n{}\n",
        way.protocol, way.flow
    );
    text
}

fn ways() -> [(Way<'static>, String); 3] {
    // A real file, so that no flipped bit is hidden among zeros.
    let real = format!("data = {{ file = \"{}\" }}\n{LINGER}", FILE.display());
    let zeros = format!("data = \"1 MB\"\n{LINGER}");
    let way = |name, element| Way { name, protocol: "pgmcc", flow: "", element };
    [
        (way("a file", false), real.clone()),
        (way("a file through an element", true), real),
        (way("zeros", false), zeros),
    ]
}

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults.bin");
    let mut rng = Rng::new(1, NodeId(0), Purpose::Fault);
    let bytes: Vec<u8> = (0..1_000_001).map(|_| rng.bits() as u8).collect();
    std::fs::write(&path, bytes).unwrap();
    path
});

fn all() -> String {
    FAULTS.map(|(_, keys)| keys).join("\n")
}

fn check(case: &str, keys: &str, loss: f64, seed: u64, way: &Way<'_>) -> Run {
    let run = run(&network(keys, loss, way, 4, "900 s"), seed);
    let case = format!("{case}, loss {loss}, {}, seed {seed}", way.name);
    run.assert_complete(&case);
    run
}

#[test]
fn each_fault_alone_and_all_together_lose_nothing() {
    for (way, flow) in &ways() {
        let way = Way { flow, ..*way };
        for (name, keys) in FAULTS {
            let run = check(name, keys, 0.0, 1, &way);
            assert!(run.tally.faults.get(name) > Some(&5), "{name}: {:?}", run.tally.faults);
            assert_eq!(run.tally.faults.len(), 1, "{name}: {:?}", run.tally.faults);
        }
        let run = check("all", &all(), 0.01, 1, &way);
        for (name, _) in FAULTS {
            assert!(run.tally.faults.get(name) > Some(&5), "{name}: {:?}", run.tally.faults);
        }
        // The first node to receive a corrupted packet rejected it for its checksum.
        assert!(run.tally.bad_input.get("Checksum") > Some(&5), "{:?}", run.tally.bad_input);
    }
}

#[test]
fn all_faults_together_lose_nothing_up_to_a_loss_of_three_in_ten() {
    for (way, flow) in &ways() {
        let way = Way { flow, ..*way };
        for (seed, loss) in [(2, 0.0), (3, 0.05), (4, 0.1), (5, 0.2), (6, 0.3)] {
            check("all", &all(), loss, seed, &way);
        }
    }
}

#[test]
fn duplicates_and_slight_reordering_cost_little() {
    let (way, flow) = &ways()[2];
    let way = Way { flow, ..*way };
    let at = |keys: &str| check(keys, keys, 0.0, 1, &way).completed().unwrap();
    let plain = at("");
    assert!(at("duplicate = 0.1") < plain + Duration::from_millis(500), "{plain}");
    let reorder = "reorder = { share = 0.02, delay = \"2 ms\" }";
    assert!(at(reorder) < Time::from_nanos(3 * plain.as_nanos()), "{plain}");
}

#[test]
fn background_traffic_never_delivers_what_was_corrupted() {
    let flow = &format!("data = {{ file = \"{}\" }}", FILE.display());
    for protocol in ["tcp-reno", "tcp-newreno", "tcp-sack", "cbr"] {
        let way = Way { name: "a file", protocol, flow, element: false };
        let run = run(&network(&all(), 0.01, &way, 1, "900 s"), 1);
        assert!(run.tally.faults.get("corrupt") > Some(&5), "{:?}", run.tally.faults);
        assert!(run.tally.bad_input.get("Checksum") > Some(&5), "{:?}", run.tally.bad_input);
        if protocol != "cbr" {
            run.assert_complete(protocol);
        }
    }
}
