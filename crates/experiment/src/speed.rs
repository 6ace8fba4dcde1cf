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

mod scenarios;

struct Case {
    id: Cow<'static, str>,
    title: Cow<'static, str>,
    scenario: Box<dyn Fn() -> String>,
    /// State machines of the reference loop, about as many as the case's simulation has.
    machines: u32,
    /// State of each of these machines.
    state_bytes: u32,
    /// Least packet-hops for each event of the reference loop.
    at_least: f64,
    /// Most peak memory: six times the measured value.
    memory_max_mb: f64,
    /// Most processor time to read and lay out a scenario, as events of the reference loop.
    /// Measured with up to 10 000 receivers: 2.1 million.
    setup_loop_events_max: f64,
    /// Number of consecutive seeds, so that a short case lasts long enough to be timed.
    repeat: u64,
}

/// Cases that take minutes and run only on request.
const LONG: [&str; 2] = [RELAYED, HUNDRED_THOUSAND];
const RELAYED: &str = "crowd-credit";
const HUNDRED_THOUSAND: &str = "tram-100000";

/// Events that the reference loop handles between two looks at the processor time.
const LOOP_EVENTS: u64 = 2_000_000;
/// Least processor time of the reference loop, before and again after a case.
const LOOP_CPU_S: f64 = 0.5;

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
        machines: 1000,
        state_bytes: 8192,
        at_least,
        memory_max_mb: 100.0,
        setup_loop_events_max: 5e6,
        repeat: 1,
    };
    let small = |id, title, at_least, scenario| Case {
        machines: 4,
        repeat: 10,
        ..case(id, title, at_least, scenario)
    };
    let large = |case| Case { machines: 10_000, memory_max_mb: 1000.0, ..case };
    let two = "two TCP SACK flows, 500 kbit/s, 3000 s, ten seeds";
    let beside = "pgmcc beside TCP Reno, 500 kbit/s, 3000 s, ten seeds";
    let mut cases = vec![
        Case {
            machines: 200,
            ..case("a", "100 TCP SACK flows over 1 Gbit/s, 20 s", 0.2, scenarios::heavy_tcp)
        },
        case("b", "10 Mbit/s to 1000 receivers over a tree, 60 s", 1.2, || {
            scenarios::tree("cbr", "0.0", 60)
        }),
        small("c", two, 0.23, scenarios::two_flows),
        small("c-pgmcc", beside, 0.12, || scenarios::FAIRNESS.to_string()),
        case("d", "pgmcc to 1000 receivers over the tree of b, 0.1 % loss", 0.42, || {
            scenarios::tree("pgmcc", "0.001", 10)
        }),
    ];
    cases.extend(catalog::SCHEMES.iter().map(|entry| Case {
        id: format!("crowd-{}", entry.name).into(),
        title: format!("{} to 10 000 receivers at 1 Mbit/s, 60 s", entry.name).into(),
        scenario: Box::new(|| scenarios::crowd(entry.name)),
        ..large(case("", "", 0.25, String::new))
    }));
    let title = "credits to 10 000 receivers behind 1000 relays at 1 Mbit/s, 60 s";
    cases.push(large(case(RELAYED, title, 0.1, scenarios::relayed_crowd)));
    // This case is about memory: its speed bound only detects a slowdown by a large factor.
    let title = "TRAM to 100 000 receivers at 1 Mbit/s, 60 s";
    cases.push(Case {
        machines: 100_000,
        state_bytes: 2048,
        memory_max_mb: 2000.0,
        setup_loop_events_max: 5e7,
        ..case(HUNDRED_THOUSAND, title, 0.05, scenarios::hundred_thousand)
    });
    cases
}

/// Measurements of one case, which its process returns to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measurements {
    case: String,
    title: String,
    packet_hops: u64,
    events: u64,
    /// Time to read and lay out the scenarios.
    setup_s: f64,
    setup_cpu_s: f64,
    /// Time of the runs, without set-up.
    wall_s: f64,
    cpu_s: f64,
    packet_hops_per_cpu_s: f64,
    peak_memory_mb: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Judged {
    #[serde(flatten)]
    measured: Measurements,
    loop_events_per_cpu_s: f64,
    /// Packet-hops for each event of the reference loop.
    ratio: f64,
    at_least: f64,
    memory_max_mb: f64,
    setup_cpu_max_s: f64,
    misses: Vec<&'static str>,
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
    let before = loop_events_per_cpu_s(case)?;
    let measured = in_own_process(case, own)?;
    let after = loop_events_per_cpu_s(case)?;
    Ok(judge(case, measured, (before + after) / 2.0))
}

fn judge(case: &Case, measured: Measurements, loop_events_per_cpu_s: f64) -> Judged {
    let ratio = measured.packet_hops_per_cpu_s / loop_events_per_cpu_s;
    let setup_cpu_max_s = case.setup_loop_events_max / loop_events_per_cpu_s;
    let kept = [
        ("speed", ratio >= case.at_least),
        ("set-up", measured.setup_cpu_s <= setup_cpu_max_s),
        ("memory", measured.peak_memory_mb <= case.memory_max_mb),
    ];
    let misses: Vec<_> =
        kept.into_iter().filter(|(_, is_kept)| !is_kept).map(|(limit, _)| limit).collect();
    Judged {
        measured,
        loop_events_per_cpu_s,
        ratio,
        at_least: case.at_least,
        memory_max_mb: case.memory_max_mb,
        setup_cpu_max_s,
        holds: misses.is_empty(),
        misses,
    }
}

fn loop_events_per_cpu_s(case: &Case) -> Result<f64, Error> {
    let begun = cpu_s(&usage(UsageWho::RUSAGE_SELF)?);
    let (mut events, mut took_s) = (0, 0.0);
    while took_s < LOOP_CPU_S {
        std::hint::black_box(calibration(case.machines, case.state_bytes, LOOP_EVENTS));
        events += LOOP_EVENTS;
        took_s = cpu_s(&usage(UsageWho::RUSAGE_SELF)?) - begun;
    }
    Ok(events as f64 / took_s)
}

fn in_own_process(case: &Case, own: &Path) -> Result<Measurements, Error> {
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
    let (mut setup_s, mut setup_cpu_s, mut packet_hops, mut events) = (0.0, 0.0, 0, 0);
    let before = usage(UsageWho::RUSAGE_SELF)?;
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
    let measured = Measurements {
        case: case.id.into_owned(),
        title: case.title.into_owned(),
        packet_hops,
        events,
        setup_s,
        setup_cpu_s,
        wall_s: started.elapsed().as_secs_f64() - setup_s,
        cpu_s,
        packet_hops_per_cpu_s: packet_hops as f64 / cpu_s,
        peak_memory_mb: after.max_rss() as f64 / 1e3,
    };
    Ok(serde_json::to_string(&measured).expect("plain values serialise") + "\n")
}

const HEAD: &str = "case             M hops set-up CPU s   wall s    CPU s  M hops/CPU s  of loop  \
                    at least       MB  holds\n";

fn table(all: &[Judged]) -> String {
    let mut text = HEAD.to_string();
    for Judged { measured, ratio, at_least, misses, .. } in all {
        let _ = writeln!(
            text,
            "{:<13} {:>9.2} {:>12.3} {:>8.2} {:>8.2} {:>13.2} {ratio:>8.2} {at_least:>9.2} {:>8.1}  {}",
            measured.case,
            measured.packet_hops as f64 / 1e6,
            measured.setup_cpu_s,
            measured.wall_s,
            measured.cpu_s,
            measured.packet_hops_per_cpu_s / 1e6,
            measured.peak_memory_mb,
            if misses.is_empty() { "yes".into() } else { format!("NO: {}", misses.join(", ")) },
        );
    }
    for Judged { measured, .. } in all {
        let _ = writeln!(text, "{:<13} {}", measured.case, measured.title);
    }
    text.push_str(
        "of loop: packet-hops for each event of a fixed loop of state machines, run before and after the \
         case.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_is_valid() {
        for case in cases() {
            let overrides = Overrides { set: Vec::new(), seed: Some(1) };
            let path = Path::new("speed").join(&*case.id);
            let text = (case.scenario)();
            let scenario = Scenario::parse(&path, &text, &overrides, &faircast_sim::catalog());
            assert!(scenario.is_ok(), "{}: {:?}", case.id, scenario.err());
        }
    }

    #[test]
    fn a_result_names_the_limits_that_the_case_misses() {
        let case = &cases()[0];
        let measured = |packet_hops_per_cpu_s, setup_cpu_s, peak_memory_mb| Measurements {
            case: case.id.to_string(),
            title: case.title.to_string(),
            packet_hops: 1,
            events: 1,
            setup_s: 100.0,
            setup_cpu_s,
            wall_s: 1.0,
            cpu_s: 1.0,
            packet_hops_per_cpu_s,
            peak_memory_mb,
        };
        for (measured, want) in [
            (measured(1e6, 1.0, 50.0), &[][..]),
            (measured(1e5, 1.0, 50.0), &["speed"]),
            (measured(1e6, 6.0, 101.0), &["set-up", "memory"]),
        ] {
            let judged = judge(case, measured, 1e6);
            assert_eq!(judged.misses, want);
            assert_eq!(judged.holds, want.is_empty());
        }
    }
}
