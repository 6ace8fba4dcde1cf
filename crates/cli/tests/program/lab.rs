//! The lab as its users meet it. What needs root says so where it has none.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{program, put, run_within, text_of};

const SCENARIO: &str = "scenarios/lab/tcp-alone.toml";

fn is_root() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        eprintln!("skipped: the lab needs root");
    }
    root
}

/// All network namespaces in which a thread of any process is.
fn namespaces() -> BTreeSet<std::path::PathBuf> {
    let folders = |path: &std::path::Path| {
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    folders(std::path::Path::new("/proc"))
        .flat_map(|process| folders(&process.join("task")).collect::<Vec<_>>())
        .filter_map(|thread| std::fs::read_link(thread.join("ns/net")).ok())
        .collect()
}

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    if !is_root() {
        return;
    }
    let mut child = program(&["run", SCENARIO, "--on", "lab"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let own = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id()));
        let threads = tasks.into_iter().flatten().flatten();
        let links =
            threads.filter_map(|thread| std::fs::read_link(thread.path().join("ns/net")).ok());
        links.collect::<BTreeSet<_>>()
    };
    let mut made = own();
    for _ in 0..300 {
        if made.len() >= 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        made = own();
    }
    // Two hosts, beside the namespace that all is in.
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    made.remove(&ours);
    assert_eq!(made.len(), 2, "each end of the flow has a namespace of its own");
    child.kill().unwrap();
    child.wait().unwrap();
    let left: Vec<_> = namespaces().intersection(&made).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("fc0:"), "{devices}");
}

#[test]
fn who_may_not_is_told_what_is_missing() {
    if !is_root() {
        return;
    }
    let mut command = program(&["run", SCENARIO, "--on", "lab"]);
    let Ok(output) = command.uid(65_534).gid(65_534).output() else {
        eprintln!("skipped: the program is where another user cannot run it");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN") && said.contains("as root"), "{said}");
}

#[test]
fn the_simulator_refuses_what_only_the_lab_has() {
    let ended = run_within(20, &["run", "scenarios/lab/beside-cubic.toml"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("tcp-cubic") && ended.err.contains("--on lab"), "{}", ended.err);
}

#[test]
fn a_run_in_the_lab_gives_the_same_three_files() {
    if !is_root() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let set = ["--set", "duration=2 s", "--set", "warmup=0 s"];
    let arguments =
        [&["run", SCENARIO, "--on", "lab", "--json", "--out", folder], &set[..]].concat();
    let ended = run_within(60, &arguments);
    let summary: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(summary["on"], "lab");
    // On a machine that is busy the run may not be valid, and must say so then.
    let invalid = summary["lateness"]["verdict"] == "invalid";
    assert_eq!(ended.code, Some(i32::from(invalid)), "{}", ended.err);
    assert_eq!(ended.err.contains("NOT VALID"), invalid, "{}", ended.err);
    // Over 20 ms each way, and a packet's time on the links.
    let round_trip_s = summary["lateness"]["round_trip_s"].as_f64().unwrap();
    assert!((0.0..1.0).contains(&round_trip_s) && round_trip_s > 0.0, "{round_trip_s}");
    assert!(summary["lateness"]["packets"].as_u64().unwrap() > 0);
    assert!(summary["flows"][0]["throughput_bps"].as_f64().unwrap() > 1e6);
    for file in ["summary.json", "trace.jsonl.gz", "report.html"] {
        assert!(out.path().join(file).exists(), "{file}");
    }
    let again = run_within(60, &["report", folder, "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(again, summary, "the trace has everything that the summary is made from");
}

/// A network on which every packet is late, however quiet the machine is: a round trip of 2 us.
const TOO_SHORT: &str = "title = \"Is a path of a microsecond emulated?\"\nduration = \"1 s\"\n\
    [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100 Gbit/s\"\ndelay = \"1 us\"\n[[flow]]\nname = \"f\"\n\
    protocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\npacket = \"100 B\"\noptions = { rate = \"100 kbit/s\" }\n";

#[test]
fn a_run_that_is_not_valid_says_so_everywhere_and_fails() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "short.toml", TOO_SHORT);
    let out = text_of(&folder.path().join("out"));
    let ended = run_within(60, &["run", &file, "--on", "lab", "--out", &out]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.out.contains("NOT VALID: packets left "), "{}", ended.out);
    assert!(ended.err.contains("the figures are not those of the scenario"), "{}", ended.err);
    let read = |name: &str| std::fs::read_to_string(format!("{out}/{name}")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["lateness"]["verdict"], "invalid");
    assert!(summary["lateness"]["round_trip_s"].as_f64().unwrap() < 3e-6);
    assert!(read("report.html").contains("NOT VALID: packets left "));
    // A suite tries again, and then judges nothing by it.
    let suite = "name = \"short\"\ntitle = \"?\"\nseeds = 1\nagainst_sim = true\n[[experiment]]\nid = \"a\"\n\
        question = \"?\"\nscenario = \"short.toml\"\n[[experiment.row]]\ntitle = \"t\"\n\
        measure = \"throughput_bps f\"\nunit = \"bit/s\"\ntolerance = 0.9\nreason = \"r\"\n";
    let suite = put(&folder, "suite.toml", suite);
    let ended = run_within(60, &["bench", &suite, "--json"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains("a, seed 1: left out after 3 tries: NOT VALID"), "{}", ended.err);
    let rows: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let row = &rows["rows"][0];
    assert_eq!((&row["holds"], &row["seeds"]), (&false.into(), &0.into()), "{row}");
    assert!(row["explained"].as_str().unwrap().starts_with("not judged"), "{row}");
}

#[test]
fn an_interrupted_suite_in_the_lab_shows_the_rows_that_it_has() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let link = "[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\ndelay = \"500 ms\"\n";
    let flow = "[[flow]]\nname = \"f\"\nprotocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\n\
        options = { rate = \"100 kbit/s\" }\n";
    put(&folder, "s.toml", &format!("duration = \"2 s\"\n{link}{flow}"));
    let experiment = |id: &str, duration: &str| {
        format!(
            "[[experiment]]\nid = \"{id}\"\nquestion = \"?\"\nscenario = \"s.toml\"\n\
             set = [\"duration={duration}\"]\n[[experiment.row]]\ntitle = \"t\"\n\
             measure = \"throughput_bps f\"\nunit = \"bit/s\"\ntolerance = 0.9\nreason = \"r\"\n"
        )
    };
    // The second one would take an hour.
    let text = format!(
        "name = \"x\"\ntitle = \"?\"\nseeds = 1\nagainst_sim = true\n{}{}",
        experiment("short", "2 s"),
        experiment("long", "3600 s")
    );
    let suite = put(&folder, "suite.toml", &text);
    let mut child = program(&["bench", &suite, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let progress = said.find(|line| line.contains("1 of 2 runs")).unwrap();
    assert!(progress.contains(" s left"), "{progress}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let rest: Vec<String> = said.collect();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("the rows are of 1 of 2 experiments")),
        "{rest:?}"
    );
    let rows: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(rows["rows"].as_array().unwrap().len(), 1);
    assert_eq!(rows["rows"][0]["id"], "short");
}
