//! Speed of the simulator, in packet-hops per second of one core.
//!
//! A packet-hop is the transmission of one packet over one link. Each case runs in a process of its
//! own, for its own peak memory. Speeds of machines differ and vary, so the ratio to a [fixed
//! loop](calibration) with as many state machines, before and after the case, is judged.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use faircast_proto::catalog;
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Simulation, Unobserved, calibration};
use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};

use crate::files::json;
use crate::host::{cpu_s, usage};
use crate::request::{Request, Results, chosen, listing};
use crate::{Error, Monitor};

struct Case {
    id: Cow<'static, str>,
    title: Cow<'static, str>,
    scenario: Box<dyn Fn() -> String>,
    /// State machines of the loop for comparison, and bytes of state of each.
    like: (u32, u32),
    /// Least packet-hops for each event of the loop `like`.
    at_least: f64,
    /// Number of consecutive seeds, so that a short case lasts long enough to be timed.
    repeat: u64,
}

/// Most peak memory in MB up to 1000, 10 000 and 100 000 receivers: six times the measured values.
const MEMORY_MAX_MB: [f64; 3] = [100.0, 1000.0, 2000.0];

/// Cases that take minutes and run only on request.
const LONG: [&str; 2] = [RELAYED, HUNDRED_THOUSAND];
const RELAYED: &str = "crowd-credit";
const HUNDRED_THOUSAND: &str = "tram-100000";

/// Events that the loop handles at a time, and the loop's processor time around a case in s.
const LOOP_EVENTS: u64 = 2_000_000;
const LOOP_CPU_S: f64 = 0.5;

/// Most loop events in the time to read and lay out a scenario: 2.1 million when measured.
const SETUP_EVENTS_MAX: f64 = 5e6;

/// Returns the simulator's cases, then a large group for every registered scheme.
///
/// Bounds are three fifths of the least median of two sittings on two virtual cores of a server,
/// one idle and one with an eightfold overload. Ratios, idle and overloaded: 0.31 and 0.33 (a),
/// 1.98 and 3.42 (b), 0.49 and 0.39 (c), 0.31 and 0.21 (c-pgmcc), 1.08 and 0.71 (d). With 10 000
/// receivers, for all schemes the least of 0.67 and 0.63 (pgmcc), 0.42 and 0.41 (TFMCC), 0.48 and
/// 0.64 (ORMCC).
fn cases() -> Vec<Case> {
    let case = |id: &'static str, title: &'static str, at_least, scenario: fn() -> String| Case {
        id: id.into(),
        title: title.into(),
        scenario: Box::new(scenario),
        like: (1000, 8192),
        at_least,
        repeat: 1,
    };
    let two = "two TCP SACK flows, 500 kbit/s, 3000 s, ten seeds";
    let beside = "pgmcc beside TCP Reno, 500 kbit/s, 3000 s, ten seeds";
    let mut cases = vec![
        Case {
            like: (200, 8192),
            ..case("a", "100 TCP SACK flows over 1 Gbit/s, 20 s", 0.2, heavy_tcp)
        },
        case("b", "10 Mbit/s to 1000 receivers over a tree, 60 s", 1.2, || tree("cbr", "0.0", 60)),
        Case { like: (4, 8192), repeat: 10, ..case("c", two, 0.23, two_flows) },
        Case { like: (4, 8192), repeat: 10, ..case("c-pgmcc", beside, 0.12, fairness) },
        case("d", "pgmcc to 1000 receivers over the tree of b, 0.1 % loss", 0.42, || {
            tree("pgmcc", "0.001", 10)
        }),
    ];
    cases.extend(catalog::SCHEMES.iter().map(|entry| Case {
        id: format!("crowd-{}", entry.name).into(),
        title: format!("{} to 10 000 receivers at 1 Mbit/s, 60 s", entry.name).into(),
        scenario: Box::new(|| crowd(entry.name)),
        like: (10_000, 8192),
        ..case("", "", 0.25, String::new)
    }));
    let title = "credits to 10 000 receivers behind 1000 relays at 1 Mbit/s, 60 s";
    cases.push(Case { like: (10_000, 8192), ..case(RELAYED, title, 0.1, relayed_crowd) });
    // This case is about memory: its speed bound only detects a slowdown by a large factor.
    let title = "TRAM to 100 000 receivers at 1 Mbit/s, 60 s";
    cases.push(Case {
        like: (100_000, 2048),
        ..case(HUNDRED_THOUSAND, title, 0.05, hundred_thousand)
    });
    cases
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Figures {
    case: String,
    title: String,
    packet_hops: u64,
    events: u64,
    setup_s: f64,
    wall_s: f64,
    cpu_s: f64,
    packet_hops_per_cpu_s: f64,
    peak_memory_mb: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    figures: Figures,
    loop_events_per_cpu_s: f64,
    ratio: f64,
    at_least: f64,
    memory_max_mb: f64,
    holds: bool,
}

pub(crate) fn list(_: &Request) -> Result<String, Error> {
    let cases = cases();
    let rows = cases.iter().map(|case| ("", &*case.id, &*case.title));
    Ok(listing("speed", "how fast is the simulator here?", rows))
}

pub(crate) fn run(request: &Request, _: &dyn Monitor) -> Result<Results, Error> {
    let mut chosen = chosen("speed", "case", cases(), |case| &case.id, request.only.as_deref())?;
    if request.only.is_none() {
        chosen.retain(|case| !LONG.contains(&&*case.id));
    }
    let judged = chosen.iter().map(|case| judged(case, &request.own));
    let all: Vec<Judged> = judged.collect::<Result<_, _>>()?;
    let scenario = |case: &Case| (format!("speed-{}.toml", case.id), (case.scenario)());
    Ok(Results {
        table: table(&all),
        json: json(&serde_json::json!({ "suite": "speed", "rows": all })),
        files: chosen.iter().map(scenario).collect(),
        holds: all.iter().all(|judged| judged.holds),
        ..Results::default()
    })
}

fn judged(case: &Case, own: &Path) -> Result<Judged, Error> {
    let before = loop_events_per_cpu_s(case.like)?;
    let figures = in_own_process(case, own)?;
    let loop_events_per_cpu_s = (before + loop_events_per_cpu_s(case.like)?) / 2.0;
    let ratio = figures.packet_hops_per_cpu_s / loop_events_per_cpu_s;
    let size = usize::from(case.like.0 > 1000) + usize::from(case.like.0 > 10_000);
    let memory_max_mb = MEMORY_MAX_MB[size];
    let fast = ratio >= case.at_least;
    let setup_max = SETUP_EVENTS_MAX * [1.0, 1.0, 10.0][size];
    let soon = figures.setup_s * loop_events_per_cpu_s <= setup_max;
    let holds = fast && soon && figures.peak_memory_mb <= memory_max_mb;
    Ok(Judged {
        figures,
        loop_events_per_cpu_s,
        ratio,
        at_least: case.at_least,
        memory_max_mb,
        holds,
    })
}

fn loop_events_per_cpu_s((machines, state_bytes): (u32, u32)) -> Result<f64, Error> {
    let begun = cpu_s(&usage(UsageWho::RUSAGE_SELF)?);
    let (mut events, mut took_s) = (0, 0.0);
    while took_s < LOOP_CPU_S {
        std::hint::black_box(calibration(machines, state_bytes, LOOP_EVENTS));
        events += LOOP_EVENTS;
        took_s = cpu_s(&usage(UsageWho::RUSAGE_SELF)?) - begun;
    }
    Ok(events as f64 / took_s)
}

fn in_own_process(case: &Case, own: &Path) -> Result<Figures, Error> {
    let failed = |what: &dyn std::fmt::Display| Error::Work(format!("speed {}: {what}", case.id));
    let output = Command::new(own)
        .args(["bench", "speed", "--speed-case", &*case.id])
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}

/// Runs one case in this process. Returns the text that the parent process reads.
pub fn run_case(id: &str) -> Result<String, Error> {
    let Some(case) = cases().into_iter().find(|case| case.id == id) else {
        return Err(Error::Usage(format!("speed has no case \"{id}\"")));
    };
    let text = (case.scenario)();
    let started = Instant::now();
    let (mut setup_s, mut packet_hops, mut events) = (0.0, 0, 0);
    let before = usage(UsageWho::RUSAGE_SELF)?;
    let mut setup_cpu_s = 0.0;
    for seed in 1..=case.repeat {
        let (begun, cpu) = (Instant::now(), usage(UsageWho::RUSAGE_SELF)?);
        let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
        let path = Path::new("speed").join(&*case.id);
        let scenario = Scenario::parse(&path, &text, &overrides, &faircast_sim::catalog())?;
        let mut sink = ();
        let simulation = Simulation::new(&scenario, &Builtin, &mut sink)?;
        setup_s += begun.elapsed().as_secs_f64();
        setup_cpu_s += cpu_s(&usage(UsageWho::RUSAGE_SELF)?) - cpu_s(&cpu);
        let outcome = simulation.run(&mut Unobserved);
        packet_hops += outcome.packet_hops;
        events += outcome.events;
    }
    let after = usage(UsageWho::RUSAGE_SELF)?;
    let cpu_s = cpu_s(&after) - cpu_s(&before) - setup_cpu_s;
    let figures = Figures {
        case: case.id.into_owned(),
        title: case.title.into_owned(),
        packet_hops,
        events,
        setup_s,
        wall_s: started.elapsed().as_secs_f64() - setup_s,
        cpu_s,
        packet_hops_per_cpu_s: packet_hops as f64 / cpu_s,
        peak_memory_mb: after.max_rss() as f64 / 1e3,
    };
    Ok(serde_json::to_string(&figures).expect("plain values serialise") + "\n")
}

fn table(all: &[Judged]) -> String {
    let mut text = format!(
        "{:<13} {:>9} {:>8} {:>8} {:>8} {:>13} {:>8} {:>9} {:>8}  {}\n",
        "case",
        "M hops",
        "set-up s",
        "wall s",
        "CPU s",
        "M hops/CPU s",
        "of loop",
        "at least",
        "MB",
        "holds"
    );
    for Judged { figures, ratio, at_least, holds, .. } in all {
        let _ = writeln!(
            text,
            "{:<13} {:>9.2} {:>8.3} {:>8.2} {:>8.2} {:>13.2} {ratio:>8.2} {at_least:>9.2} {:>8.1}  {}",
            figures.case,
            figures.packet_hops as f64 / 1e6,
            figures.setup_s,
            figures.wall_s,
            figures.cpu_s,
            figures.packet_hops_per_cpu_s / 1e6,
            figures.peak_memory_mb,
            if *holds { "yes" } else { "NO" },
        );
    }
    for Judged { figures, .. } in all {
        let _ = writeln!(text, "{:<13} {}", figures.case, figures.title);
    }
    text.push_str(
        "of loop: packet-hops for each event of a fixed loop of state machines, run before and after the \
         case.\n",
    );
    text
}

fn parts<'a>(text: &'a str, block: &str) -> (String, &'a str) {
    let place = text.find(block).expect("the text has such a block");
    (text[..place].to_string(), &text[place..])
}

fn heavy_tcp() -> String {
    let (text, flow) = parts(include_str!("speed/heavy_tcp.toml"), "[[flow]]");
    (1..=100).fold(text, |text, number| text + &flow.replace("FLOW", &number.to_string()))
}

fn tree(protocol: &str, loss: &str, duration_s: u32) -> String {
    let (text, link) = parts(include_str!("speed/tree.toml"), "[[link]]");
    let text = text.replace("PROTOCOL", protocol).replace("DURATION", &duration_s.to_string());
    let options = if protocol == "cbr" { "options = { rate = \"10 Mbit/s\" }\n" } else { "" };
    let level = |center: &str, leaves: &str, loss: &str| {
        let link = link.replace("CENTER", center).replace("LEAVES", leaves);
        link.replace("LOSS", loss)
    };
    let ten = |at: u32| format!("{{{}..{}}}", 10 * at + 1, 10 * at + 10);
    let a = (0..10).map(|a| level(&format!("a{}", a + 1), &format!("b{}", ten(a)), "0.0"));
    let b = (0..100).map(|b| level(&format!("b{}", b + 1), &format!("m{}", ten(b)), loss));
    [text, options.into(), level("s", "a{1..10}", "0.0")].into_iter().chain(a).chain(b).collect()
}

fn crowd(protocol: &str) -> String {
    include_str!("speed/crowd.toml").replace("PROTOCOL", protocol)
}

/// Returns the scenario of [`crowd`] behind relays of credits, ten receivers at each last relay.
fn relayed_crowd() -> String {
    let text = crowd("credit-pgmcc").replace("[10, 10, 100]", "[10, 10, 10, 10]");
    let text = text.replace("m3-{1..10000}", "m4-{1..10000}");
    let relays = "[\"r\", \"m1-{1..10}\", \"m2-{1..100}\", \"m3-{1..1000}\"]";
    text + &format!(
        "options = {{ credit_buffer = 20, credit_unit = 5 }}\n\
         [[node]]\nname = {relays}\nprogram = \"credit\"\n"
    )
}

fn hundred_thousand() -> String {
    let text = include_str!("../../../scenarios/tram-scale/crowd.toml");
    let text = text.replace("[10, 10, 10]", "[10, 10, 10, 100]");
    text.replace("m3-{1..1000}", "m4-{1..100000}").replace("wait_for = 1000", "wait_for = 100000")
}

fn two_flows() -> String {
    let text = include_str!("../../../scenarios/tcp/two-flows.toml");
    text.replace("tcp-reno", "tcp-sack")
}

fn fairness() -> String {
    include_str!("../../../scenarios/fairness/set1-one-bottleneck.toml").to_string()
}
