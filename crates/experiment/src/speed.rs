//! The speed of the simulator: how many packet-hops the simulator makes in a second of one core.
//!
//! A packet-hop is one packet, data or feedback, transmitted over one link. Each case runs in a
//! process of its own, so that its peak memory is its own.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use faircast_proto::catalog;
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Simulation, Unobserved};
use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::bench::{Request, Results, chosen, listing};
use crate::files::json;
use crate::host::{cpu_s, usage};

/// A case with what it must reach.
struct Case {
    id: Cow<'static, str>,
    title: Cow<'static, str>,
    scenario: Box<dyn Fn() -> String>,
    /// Least packet-hops per CPU second of one core, and where that figure is from.
    at_least: Option<(f64, &'static str)>,
    /// Most peak memory.
    memory_max_mb: Option<f64>,
    /// Most real time.
    wall_max_s: Option<f64>,
    /// Seeds to run one after the other, so that a short case lasts long enough to be timed.
    repeat: u64,
}

impl Case {
    /// A case from which nothing is asked yet.
    fn new(id: &'static str, title: &'static str, scenario: fn() -> String) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            scenario: Box::new(scenario),
            at_least: None,
            memory_max_mb: None,
            wall_max_s: None,
            repeat: 1,
        }
    }
}

/// All cases: those of the simulator, then a large group for every registered scheme.
fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            at_least: Some((6.6e6, "5 times ns-2, twice htsim")),
            memory_max_mb: Some(100.0),
            ..Case::new("a", "100 TCP SACK flows over 1 Gbit/s, 20 s", heavy_tcp)
        },
        Case {
            at_least: Some((9.9e6, "10 times ns-2's run part")),
            memory_max_mb: Some(100.0),
            ..Case::new("b", "10 Mbit/s to 1000 receivers over a tree, 60 s", || {
                tree("cbr", "0.0", 60)
            })
        },
        Case {
            at_least: Some((8.3e6, "htsim, the fastest measured")),
            repeat: 10,
            ..Case::new("c", "two TCP SACK flows, 500 kbit/s, 3000 s, ten seeds", two_flows)
        },
        Case {
            repeat: 10,
            ..Case::new("c-pgmcc", "pgmcc beside TCP Reno, 500 kbit/s, 3000 s, ten seeds", fairness)
        },
        Case {
            at_least: Some((4.95e6, "half of b's")),
            ..Case::new("d", "pgmcc to 1000 receivers over the tree of b, 0.1 % loss", || {
                tree("pgmcc", "0.001", 10)
            })
        },
    ];
    cases.extend(catalog::SCHEMES.iter().map(|entry| Case {
        id: format!("crowd-{}", entry.name).into(),
        title: format!("{} to 10 000 receivers at 1 Mbit/s, 60 s", entry.name).into(),
        scenario: Box::new(|| crowd(entry.name)),
        memory_max_mb: Some(1000.0),
        wall_max_s: Some(60.0),
        ..Case::new("", "", String::new)
    }));
    cases
}

/// What a case gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Figures {
    case: String,
    title: String,
    packet_hops: u64,
    events: u64,
    /// Reading the scenario and laying out the network.
    setup_s: f64,
    /// The run itself.
    wall_s: f64,
    cpu_s: f64,
    packet_hops_per_cpu_s: f64,
    peak_memory_mb: f64,
    at_least: Option<f64>,
    at_least_reason: Option<String>,
    memory_max_mb: Option<f64>,
    wall_max_s: Option<f64>,
    holds: bool,
}

/// What there is to run.
pub(crate) fn list() -> String {
    let cases = cases();
    let rows = cases.iter().map(|case| ("", &*case.id, &*case.title));
    listing("speed", "how fast is the simulator here?", rows)
}

/// Runs the cases that were asked for, each in a process of its own.
pub(crate) fn run(request: &Request) -> Result<Results, Error> {
    let chosen = chosen("speed", "case", cases(), |case| &case.id, request.only.as_deref())?;
    let all: Vec<Figures> =
        chosen.iter().map(|case| in_own_process(case, &request.own)).collect::<Result<_, _>>()?;
    let scenario = |case: &Case| (format!("speed-{}.toml", case.id), (case.scenario)());
    Ok(Results {
        table: table(&all),
        json: json(&serde_json::json!({ "suite": "speed", "rows": all })),
        files: chosen.iter().map(scenario).collect(),
        holds: all.iter().all(|figures| figures.holds),
        ..Results::default()
    })
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

/// Runs one case in this process; what it prints is what the process that started it reads.
///
/// # Errors
/// There is no such case.
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
    let packet_hops_per_cpu_s = packet_hops as f64 / cpu_s;
    let peak_memory_mb = after.max_rss() as f64 / 1e3;
    let fast = case.at_least.is_none_or(|(least, _)| packet_hops_per_cpu_s >= least);
    let small = case.memory_max_mb.is_none_or(|most| peak_memory_mb <= most);
    let wall_s = started.elapsed().as_secs_f64() - setup_s;
    let soon = case.wall_max_s.is_none_or(|most| wall_s <= most);
    let figures = Figures {
        case: case.id.into_owned(),
        title: case.title.into_owned(),
        packet_hops,
        events,
        setup_s,
        wall_s,
        cpu_s,
        packet_hops_per_cpu_s,
        peak_memory_mb,
        at_least: case.at_least.map(|(least, _)| least),
        at_least_reason: case.at_least.map(|(_, reason)| reason.to_string()),
        memory_max_mb: case.memory_max_mb,
        wall_max_s: case.wall_max_s,
        holds: fast && small && soon && setup_s < 1.0,
    };
    Ok(serde_json::to_string(&figures).expect("plain values serialise") + "\n")
}

fn table(all: &[Figures]) -> String {
    let mut text = format!(
        "{:<13} {:>9} {:>8} {:>8} {:>8} {:>13} {:>10} {:>8}  {}\n",
        "case", "M hops", "set-up s", "wall s", "CPU s", "M hops/CPU s", "at least", "MB", "holds"
    );
    for figures in all {
        let at_least = figures.at_least.map_or("-".into(), |least| format!("{:.1}", least / 1e6));
        let _ = writeln!(
            text,
            "{:<13} {:>9.2} {:>8.3} {:>8.2} {:>8.2} {:>13.2} {:>10} {:>8.1}  {}",
            figures.case,
            figures.packet_hops as f64 / 1e6,
            figures.setup_s,
            figures.wall_s,
            figures.cpu_s,
            figures.packet_hops_per_cpu_s / 1e6,
            at_least,
            figures.peak_memory_mb,
            if figures.holds { "yes" } else { "NO" },
        );
    }
    for figures in all {
        let _ = writeln!(text, "{:<13} {}", figures.case, figures.title);
    }
    text
}

/// The heavy TCP scenario that other simulators were measured with.
fn heavy_tcp() -> String {
    let mut text = String::from(
        "title = \"How fast are 100 TCP flows simulated?\"\nduration = \"20 s\"\n\
         [[link]]\nbetween = [\"r1\", \"r2\"]\nrate = \"1 Gbit/s\"\ndelay = \"20 ms\"\n\
         queue = { kind = \"droptail\", packets = 5500 }\n",
    );
    for (router, hosts) in [("r1", "s{1..100}"), ("r2", "d{1..100}")] {
        let _ = write!(
            text,
            "[[link]]\nstar = {{ center = \"{router}\", leaves = [\"{hosts}\"] }}\n\
             rate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n\
             queue = {{ kind = \"droptail\", packets = 1000000 }}\n"
        );
    }
    for flow in 1..=100 {
        let _ = write!(
            text,
            "[[flow]]\nname = \"tcp-{flow}\"\nprotocol = \"tcp-sack\"\nfrom = \"s{flow}\"\n\
             to = [\"d{flow}\"]\npacket = \"1000 B\"\nheader = \"0 B\"\n\
             start = {{ uniform = [\"0 s\", \"1 s\"] }}\n"
        );
    }
    text
}

/// A source and 1000 receivers at the leaves of a tree of fan-out 10.
fn tree(protocol: &str, loss: &str, duration_s: u32) -> String {
    let mut text = format!(
        "title = \"How fast is a multicast tree simulated?\"\nduration = \"{duration_s} s\"\n\
         [[flow]]\nname = \"session\"\nprotocol = \"{protocol}\"\nfrom = \"s\"\n\
         to = [\"m{{1..1000}}\"]\npacket = \"1000 B\"\nheader = \"0 B\"\n"
    );
    if protocol == "cbr" {
        text.push_str("options = { rate = \"10 Mbit/s\" }\n");
    }
    let mut level = |center: &str, leaves: &str, loss: &str| {
        let _ = write!(
            text,
            "[[link]]\nstar = {{ center = \"{center}\", leaves = [\"{leaves}\"] }}\n\
             rate = \"100 Mbit/s\"\ndelay = \"1 ms\"\nloss = {loss}\n\
             queue = {{ kind = \"droptail\", packets = 100 }}\n"
        );
    };
    level("s", "a{1..10}", "0.0");
    for a in 0..10 {
        level(&format!("a{}", a + 1), &format!("b{{{}..{}}}", 10 * a + 1, 10 * a + 10), "0.0");
    }
    for b in 0..100 {
        level(&format!("b{}", b + 1), &format!("m{{{}..{}}}", 10 * b + 1, 10 * b + 10), loss);
    }
    text
}

/// A session that fills a bottleneck of 1 Mbit/s, behind which a tree with 10 000 receivers begins:
/// all of them lose the same packets there, and want to say so.
fn crowd(protocol: &str) -> String {
    format!(
        "title = \"How fast is a session with 10 000 receivers simulated?\"\nduration = \"60 s\"\n\
         [[link]]\nbetween = [\"s\", \"r\"]\nrate = \"1 Mbit/s\"\ndelay = \"10 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 30 }}\n\
         [[link]]\ntree = {{ root = \"r\", fanout = [10, 10, 100], prefix = \"m\" }}\n\
         rate = \"100 Mbit/s\"\ndelay = \"5 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 1000 }}\n\
         [[flow]]\nname = \"session\"\nprotocol = \"{protocol}\"\nfrom = \"s\"\n\
         to = [\"m3-{{1..10000}}\"]\npacket = \"1000 B\"\n"
    )
}

fn two_flows() -> String {
    let text = include_str!("../../../scenarios/tcp/two-flows.toml");
    text.replace("tcp-reno", "tcp-sack")
}

fn fairness() -> String {
    include_str!("../../../scenarios/fairness/set1-one-bottleneck.toml").to_string()
}
