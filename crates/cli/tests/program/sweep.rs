//! `faircast sweep`: its tables, going on, parts for a cluster, Ctrl-C.

use nix::sys::signal::Signal;

use super::*;

const SET: [&str; 4] = ["--set", "link.0.rate=1 Mbit/s,2 Mbit/s", "--set", "flow.tcp.count=1,2"];

fn arguments<'a>(file: &'a str, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["sweep", file][..], &SET, &["--set", "duration=6 s", "--out", out], more].concat()
}

/// The runs in a folder, with when they were made.
fn kept(out: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let files = std::fs::read_dir(out.join("runs")).unwrap().map(|file| file.unwrap());
    let mut files: Vec<_> =
        files.map(|file| (file.path(), file.metadata().unwrap().modified().unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_sweep_gives_tables_and_plots_and_runs_only_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    let out = folder.path().join("out");
    let out_text = text_of(&out);
    let text = succeed(&arguments(&file, &out_text, &[]));
    assert!(text.contains("1 Mbit/s") && text.contains("pandas.read_parquet("), "{text}");
    let first = kept(&out);
    assert_eq!(first.len(), 4, "no more than a file for each run");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    // 2 rates, with one flow and with two.
    let csv = read("flows.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * (1 + 2), "{csv}");
    assert!(csv.starts_with("link.0.rate_bps,flow.tcp.count,duration_s,seed,run,flow,"), "{csv}");
    assert!(std::fs::read(out.join("flows.parquet")).unwrap().starts_with(b"PAR1"));
    assert!(read("sweep.html").ends_with("</html>\n") && read("links.csv").lines().count() > 1);

    let again = succeed(&arguments(&file, &out_text, &["--jobs", "1"]));
    assert_eq!(again, text);
    assert_eq!(kept(&out), first, "nothing was run again");
    let more = json(&arguments(&file, &out_text, &["--seeds", "2", "--json"]));
    assert_eq!(more["flows"].as_array().unwrap().len(), 12);
    assert_eq!(more["set"]["link.0.rate"][1], "2 Mbit/s");
    let more = kept(&out);
    assert_eq!(more.len(), 8);
    assert!(first.iter().all(|run| more.contains(run)), "and what was done stays");
    // With twice the rate two flows have about twice as much.
    let row = csv.lines().find(|line| line.starts_with("2000000,1,")).unwrap();
    let throughput: f64 = row.split(',').nth(8).unwrap().parse().unwrap();
    assert!(throughput > 1.1e6, "{row}");
}

#[test]
fn the_parts_that_print_gives_make_what_the_sweep_makes() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "it's small.toml", SMALL);
    let [whole, parts] = ["whole", "the parts"].map(|name| folder.path().join(name));
    succeed(&arguments(&file, &text_of(&whole), &["--seeds", "2"]));
    let parts_text = text_of(&parts);
    let lines = succeed(&arguments(&file, &parts_text, &["--seeds", "2", "--print"]));
    assert_eq!(lines.lines().count(), 8, "{lines}");
    let collect = arguments(&file, &parts_text, &["--seeds", "2", "--collect"]);
    // As a scheduler runs them: a shell for each line, in any order; here one is forgotten.
    for line in lines.lines().rev().take(7) {
        let done = Command::new("sh").args(["-c", line]).output().unwrap();
        assert!(done.status.success() && done.stdout.is_empty(), "{line}: {done:?}");
    }
    let ended = run_within(LIMIT_S, &collect);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("1 of 8 runs are missing, such as link.0.rate=1 Mbit/s, "),
        "{}",
        ended.err
    );
    let rest = run_within(LIMIT_S, &arguments(&file, &parts_text, &["--seeds", "2", "--print"]));
    assert_eq!(rest.out, format!("{}\n", lines.lines().next().unwrap()));
    assert!(rest.err.contains("7 of 8 runs are done already"), "{}", rest.err);
    assert!(Command::new("sh").args(["-c", &rest.out]).status().unwrap().success());
    succeed(&collect);
    for name in ["flows.csv", "receivers.csv", "links.csv", "flows.parquet"] {
        let read = |out: &Path| std::fs::read(out.join(name)).unwrap();
        assert!(read(&whole) == read(&parts), "{name} differs");
    }
}

#[test]
fn ctrl_c_keeps_what_is_done_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    let out = folder.path().join("out");
    let out_text = text_of(&out);
    // The second one takes hours.
    let sweep = |more: &[&str]| {
        let own = ["sweep", &file, "--set", "duration=6 s,864000 s", "--out", &out_text];
        Running::start(&[&own[..], more].concat())
    };
    let mut running = sweep(&["--jobs", "2"]);
    running::until("a run appears", || {
        assert!(running.runs(), "it ended by itself");
        let files = std::fs::read_dir(out.join("runs")).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.path().extension().is_some_and(|kind| kind == "json"))
    });
    running.signal(Signal::SIGINT);
    let err = running.end_with(1).err;
    assert!(
        err.contains("interrupted; 1 of 2 runs are done and kept in") && err.contains("goes on"),
        "{err}"
    );
    assert_eq!(kept(&out).len(), 1, "and nothing half done");
    let err = sweep(&["--collect"]).end_with(1).err;
    assert!(err.contains("such as duration=864000 s, seed 1"), "{err}");
    assert!(std::fs::read_to_string(out.join("sweep.html")).unwrap().contains("1 of 2 runs are"));
}

#[test]
fn runs_that_fail_for_one_reason_are_one_line_and_tables_of_nothing_are_not_made() {
    let folder = tempfile::tempdir().unwrap();
    // The simulator has no such TCP, and names the flow, which is the same in all runs.
    let other =
        "[[flow]]\nname = \"other\"\nprotocol = \"tcp-cubic\"\nfrom = \"a\"\nto = [\"b\"]\n";
    let file = put(&folder, "cubic.toml", &(SMALL.to_string() + other));
    let out = folder.path().join("out");
    let ended = run_within(LIMIT_S, &arguments(&file, &text_of(&out), &[]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.err);
    let first =
        "failed: link.0.rate=1 Mbit/s, flow.tcp.count=1, duration=6 s, seed 1 and 3 runs more: ";
    assert!(lines[0].contains(first) && lines[1].contains("4 of 4 runs failed"), "{}", ended.err);
    assert!(!out.join("flows.csv").exists() && !out.join("sweep.html").exists());
}

#[test]
fn a_sweep_writes_its_plots_as_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    let out = folder.path().join("out");
    succeed(&arguments(&file, &text_of(&out), &["--svg"]));
    // A plot of two rates with one flow, and one with two.
    for name in ["active_throughput_bps-1.svg", "active_throughput_bps-2.svg"] {
        let text = std::fs::read_to_string(out.join("svg").join(name)).unwrap();
        assert!(
            text.contains(">link.0.rate<") && text.contains("<desc>flow.tcp.count = "),
            "{text}"
        );
    }
}
