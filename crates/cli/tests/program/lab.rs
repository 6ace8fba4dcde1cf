//! The lab as its users meet it. What needs root says so where it has none.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use crate::{program, run_within};

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
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let summary: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(summary["on"], "lab");
    assert!(summary["lateness"]["packets"].as_u64().unwrap() > 0);
    assert!(summary["flows"][0]["throughput_bps"].as_f64().unwrap() > 1e6);
    for file in ["summary.json", "trace.jsonl.gz", "report.html"] {
        assert!(out.path().join(file).exists(), "{file}");
    }
    let again = run_within(60, &["report", folder, "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(again, summary, "the trace has everything that the summary is made from");
}
