//! Commands that use the lab. Without root, they report that they need root.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;

use nix::sys::signal::Signal;

use super::site::Site;
use super::*;

const RUN: &str = "run scenarios/lab/tcp-alone.toml --on lab";

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn namespaces(process: &Path) -> BTreeSet<PathBuf> {
    let threads = folders(&process.join("task"));
    threads.filter_map(|thread| std::fs::read_link(thread.join("ns/net")).ok()).collect()
}

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    need_root!();
    let run = Running::start(RUN);
    let own = PathBuf::from(format!("/proc/{}", run.id()));
    running::until("the hosts are there", || namespaces(&own).len() >= 3);
    let mut made = namespaces(&own);
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    made.remove(&ours);
    assert_eq!(made.len(), 2, "each end of the flow has a namespace of its own");
    run.kill();
    let mut left = folders(Path::new("/proc")).flat_map(|process| namespaces(&process));
    assert_eq!(left.find(|namespace| made.contains(namespace)), None);
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("fc0:"), "{devices}");
}

#[test]
fn who_may_not_is_told_what_is_missing() {
    need_root!();
    let mut command = program(RUN);
    let Ok(output) = command.uid(65_534).gid(65_534).output() else {
        eprintln!("skipped: the program is where another user cannot run it");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN") && said.contains("as root"), "{said}");
}

#[test]
fn relay_nodes_run_in_the_lab_and_faults_happen_to_them() {
    need_root!();
    let site = Site::new();
    let link = |center: &str, leaves: &str| {
        format!(
            "[[link]]\nstar = {{ center = \"{center}\", leaves = [{leaves}] }}\n\
             rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n"
        )
    };
    let text = link("r1", "\"s\", \"r2\", \"m3\"")
        + &link("r2", "\"m1\", \"m2\"")
        + "[[relay]]\nnode = \"r1\"\n[[relay]]\nnode = \"r2\"\nparents = \"r1\"\n\
           [[flow]]\nname = \"f\"\nprotocol = \"credit-pgmcc\"\nfrom = \"s\"\n\
           to = [\"m{1..3}\"]\noptions = { delivery = \"object\" }\ndata = \"4 MB\"\nvia = [\n\
           { node = [\"s\", \"m3\"], relays = \"r1\" }, { node = \"m{1..2}\", relays = \"r2\" } ]\n\
           [[fault]]\nnode = \"r2\"\nat = \"1500 ms\"\nrestart = \"1 s\"\n\
           [[fault]]\nnode = \"m3\"\nat = \"500 ms\"\nstop = \"2 s\"\n";
    let file = site.put("relays.toml", format!("duration = \"30 s\"\n{text}"));
    let run = format!("run {} --on lab --json", file.display());
    let document = Running::start(&run).end().with(0).document();
    let receivers = document["flows"][0]["receivers"].as_array().unwrap();
    for receiver in receivers {
        assert_eq!(receiver["intact"], true, "{receiver:#}");
        assert!(receiver["completed_s"].as_f64().is_some(), "{receiver:#}");
    }
    assert_eq!(receivers.len(), 3);
    let moves = text.replace("restart = \"1 s\"", "move = true");
    site.put("relays.toml", format!("duration = \"30 s\"\n{moves}"));
    Running::start(&run).refuse_with("a fault moves \"r2\"; allowed: stop");
}

#[test]
fn the_simulator_refuses_what_only_the_lab_has() {
    let line = refuse("run scenarios/lab/beside-cubic.toml");
    assert!(line.contains("tcp-cubic") && line.contains("--on lab"), "{line}");
}

#[test]
fn a_run_in_the_lab_gives_the_same_three_files() {
    need_root!();
    let site = Site::with("");
    let out = site.at("out");
    let set = "--set 'duration=2 s' --set 'warmup=0 s'";
    let ended = run_within(60, &format!("{RUN} {set} --json --out {out}"));
    let summary = ended.document();
    assert_eq!(summary["on"], "lab");
    // On a busy machine the run may be invalid, and must report that.
    let invalid = summary["lateness"]["verdict"] == "invalid";
    assert_eq!(ended.code, Some(i32::from(invalid)), "{}", ended.err);
    assert_eq!(ended.err.contains("NOT VALID"), invalid, "{}", ended.err);
    // 20 ms each way, plus the transmission times of a packet.
    let round_trip_s = summary["lateness"]["round_trip_s"].as_f64().unwrap();
    assert!((0.0..1.0).contains(&round_trip_s) && round_trip_s > 0.0, "{round_trip_s}");
    assert!(summary["lateness"]["packets"].as_u64().unwrap() > 0);
    assert!(summary["flows"][0]["throughput_bps"].as_f64().unwrap() > 1e6);
    for file in ["summary.json", "trace.jsonl.gz", "report.html"] {
        assert!(site.path("out").join(file).exists(), "{file}");
    }
    assert_eq!(site.json("report out --json"), summary, "the trace has all of the summary");
}

/// Network on which every packet is late, even on a quiet machine: a round trip of 2 us.
const TOO_SHORT: &str = "title = \"Is a path of a microsecond emulated?\"\nduration = \"1 s\"\n\
    [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100 Gbit/s\"\ndelay = \"1 us\"\n[[flow]]\nname = \"f\"\n\
    protocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\npacket = \"100 B\"\noptions = { rate = \"100 kbit/s\" }\n";

fn suite(experiments: &[(&str, &str, &str)]) -> String {
    let mut text = "name = \"x\"\ntitle = \"?\"\nseeds = 1\nagainst_sim = true\n".to_string();
    for (id, scenario, duration) in experiments {
        text += &format!(
            "[[experiment]]\nid = \"{id}\"\nquestion = \"?\"\nscenario = \"{scenario}\"\n\
             set = [\"duration={duration}\"]\n[[experiment.row]]\ntitle = \"t\"\n\
             measure = \"throughput_bps f\"\nunit = \"bit/s\"\ntolerance = 0.9\nreason = \"r\"\n"
        );
    }
    text
}

#[test]
fn a_run_that_is_not_valid_says_so_everywhere_and_fails() {
    need_root!();
    let site = Site::of("short.toml", TOO_SHORT);
    let ended = site.start("run short.toml --on lab --out out").end_with(1);
    assert!(ended.out.contains("NOT VALID: packets left "), "{}", ended.out);
    assert!(ended.err.contains("the figures are not those of the scenario"), "{}", ended.err);
    let summary = read_json(&site.path("out/summary.json"));
    assert_eq!(summary["lateness"]["verdict"], "invalid");
    assert!(summary["lateness"]["round_trip_s"].as_f64().unwrap() < 3e-6);
    assert!(site.read("out/report.html").contains("NOT VALID: packets left "));
    site.put("suite.toml", suite(&[("a", "short.toml", "1 s")]));
    let ended = site.start("bench suite.toml --json").end_with(1);
    assert!(ended.err.contains("a, seed 1: left out after 3 tries: NOT VALID"), "{}", ended.err);
    let row = &ended.document()["rows"][0];
    assert_eq!((&row["holds"], &row["seeds"]), (&false.into(), &0.into()), "{row}");
    assert!(row["explained"].as_str().unwrap().starts_with("not judged"), "{row}");
}

#[test]
fn an_interrupted_suite_in_the_lab_shows_the_rows_that_it_has() {
    need_root!();
    let link = "[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\ndelay = \"500 ms\"\n";
    let flow = "[[flow]]\nname = \"f\"\nprotocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\n\
        options = { rate = \"100 kbit/s\" }\n";
    let site = Site::of("s.toml", &format!("duration = \"2 s\"\n{link}{flow}"));
    let experiments = [("short", "s.toml", "2 s"), ("long", "s.toml", "3600 s")];
    site.put("suite.toml", suite(&experiments));
    let bench = site.start("bench suite.toml --json");
    bench.until_complained("1 of 2 runs");
    bench.signal(Signal::SIGINT);
    let ended = bench.end_with(1);
    let progress = ended.err.lines().find(|line| line.contains("1 of 2 runs")).unwrap();
    assert!(progress.contains(" s left"), "{progress}");
    assert!(ended.err.contains("the rows are of 1 of 2 experiments"), "{}", ended.err);
    let rows = ended.document();
    assert_eq!(rows["rows"].as_array().unwrap().len(), 1);
    assert_eq!(rows["rows"][0]["id"], "short");
}
