//! `faircast sweep`: tables, continued sweeps, parts for a cluster, Ctrl-C.

use nix::sys::signal::Signal;

use super::site::{Site, words};
use super::*;

fn sweep(site: &Site, file: &str, out: &str, more: &str) -> Running {
    let set = "--set 'link.0.rate=1 Mbit/s,2 Mbit/s' --set flow.tcp.count=1,2";
    let mut command = site.command(&format!("sweep {set} --set 'duration=6 s'"));
    command.args([file, "--out", out]).args(words(more));
    Running::spawn(command)
}

fn kept(out: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let files = std::fs::read_dir(out.join("runs")).unwrap().map(|file| file.unwrap());
    let mut files: Vec<_> =
        files.map(|file| (file.path(), file.metadata().unwrap().modified().unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_sweep_gives_tables_and_plots_and_runs_only_what_is_new() {
    let site = Site::of("small.toml", SMALL);
    let out = site.path("out");
    let sweep = |more: &str| sweep(&site, "small.toml", "out", more);
    let text = sweep("").succeed();
    assert!(text.contains("1 Mbit/s") && text.contains("pandas.read_csv("), "{text}");
    let first = kept(&out);
    assert_eq!(first.len(), 4, "no more than a file for each run");
    let csv = site.read("out/flows.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * (1 + 2), "{csv}");
    assert!(csv.starts_with("link.0.rate_bps,flow.tcp.count,duration_s,seed,run,flow,"), "{csv}");
    assert!(site.read("out/sweep.html").ends_with("</html>\n"));
    assert!(site.read("out/links.csv").lines().count() > 1);

    let again = sweep("--jobs 1").succeed();
    assert_eq!(again, text);
    assert_eq!(kept(&out), first, "nothing was run again");
    let more = sweep("--seeds 2 --json").document();
    assert_eq!(more["flows"].as_array().unwrap().len(), 12);
    assert_eq!(more["set"]["link.0.rate"][1], "2 Mbit/s");
    let more = kept(&out);
    assert_eq!(more.len(), 8);
    assert!(first.iter().all(|run| more.contains(run)), "and what was done stays");
    let row = csv.lines().find(|line| line.starts_with("2000000,1,")).unwrap();
    let throughput: f64 = row.split(',').nth(8).unwrap().parse().unwrap();
    assert!(throughput > 1.1e6, "{row}");
}

#[test]
fn the_parts_that_print_gives_make_what_the_sweep_makes() {
    let file = "it's small.toml";
    let site = Site::of(file, SMALL);
    sweep(&site, file, "whole", "--seeds 2").succeed();
    let parts = |more: &str| sweep(&site, file, "the parts", &format!("--seeds 2 {more}"));
    let lines = parts("--print").succeed();
    assert_eq!(lines.lines().count(), 8, "{lines}");
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(site.path(""));
        assert_eq!(Running::spawn(shell).succeed(), "", "{line}");
    };
    // Lines run in any order and without one, by a shell, and by xargs with and without a shell.
    let mut some = lines.lines().rev();
    some.by_ref().take(3).for_each(shell);
    for words in [&["-I", "{}", "sh", "-c", "{}"][..], &["-L", "1", "env"]] {
        let two: Vec<&str> = some.by_ref().take(2).collect();
        std::fs::write(site.path("lines"), two.join("\n") + "\n").unwrap();
        let mut xargs = Command::new("xargs");
        xargs.args(["-P", "2", "-a", "lines"]).args(words).current_dir(site.path(""));
        assert_eq!(Running::spawn(xargs).succeed(), "", "{words:?}: {two:?}");
    }
    let ended = parts("--collect").end_with(1);
    let missing = "1 of 8 runs are missing, such as link.0.rate=1 Mbit/s, ";
    assert!(ended.err.contains(missing), "{}", ended.err);
    let rest = parts("--print").end();
    assert_eq!(rest.out, format!("{}\n", lines.lines().next().unwrap()));
    assert!(rest.err.contains("7 of 8 runs are done already"), "{}", rest.err);
    shell(&rest.out);
    parts("--collect").succeed();
    for name in ["flows.csv", "receivers.csv", "links.csv"] {
        let read = |out: &str| std::fs::read(site.path(out).join(name)).unwrap();
        assert!(read("whole") == read("the parts"), "{name} differs");
    }
}

#[test]
fn a_summary_that_was_edited_is_named_and_its_run_done_again() {
    let site = Site::of("small.toml", SMALL);
    let run = |more: &str| site.start(&format!("sweep small.toml --seeds 5 --out out {more}"));
    let document: serde_json::Value = serde_json::from_str(&run("--json").succeed()).unwrap();
    let throughput = &document["medians"][0]["figures"]["active_throughput_bps"];
    let [median, low, high] = ["median", "low", "high"].map(|key| {
        let of = if key == "median" { throughput } else { &throughput["interval"] };
        of[key].as_f64().unwrap()
    });
    assert!(low <= median && median <= high && throughput["interval"]["confidence"] == 0.9375);
    let runs = kept(&site.path("out"));
    let file = runs[0].0.clone();
    let before = std::fs::read_to_string(&file).unwrap();
    let edited = before.replacen("\"cuts\":", "\"cuts\":9", 1);
    assert_ne!(before, edited);
    std::fs::write(&file, edited).unwrap();
    let collected = run("--collect").end_with(1);
    let name = file.file_name().unwrap().to_str().unwrap();
    let named = format!("{name}: was edited or damaged after it was written");
    assert!(collected.err.contains(&named), "{}", collected.err);
    let again = run("").end_with(0);
    assert!(again.err.contains(&named), "{}", again.err);
    let wall = |text: &str| {
        text.split("\"wall_s\"").next().unwrap()["{\"hash\":\"".len() + 32..].to_string()
    };
    assert_eq!(wall(&std::fs::read_to_string(&file).unwrap()), wall(&before), "it was run again");
    run("--collect").succeed();
}

#[test]
fn ctrl_c_keeps_what_is_done_and_says_how_to_go_on() {
    let site = Site::of("small.toml", SMALL);
    let out = site.path("out");
    let sweep = "sweep small.toml --set 'duration=6 s,864000 s' --out out";
    let mut running = site.start(&format!("{sweep} --jobs 2"));
    running::until("a run appears", || {
        assert!(running.runs(), "it ended by itself");
        let files = std::fs::read_dir(out.join("runs")).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.path().extension().is_some_and(|kind| kind == "json"))
    });
    running.signal(Signal::SIGINT);
    let err = running.end_with(1).err;
    assert!(err.contains("interrupted; 1 of 2 runs are done and kept in"), "{err}");
    assert!(err.contains("goes on"), "{err}");
    assert_eq!(kept(&out).len(), 1, "and nothing half done");
    let err = site.start(&format!("{sweep} --collect")).end_with(1).err;
    assert!(err.contains("such as duration=864000 s, seed 1"), "{err}");
    assert!(site.read("out/sweep.html").contains("1 of 2 runs are"));
}

#[test]
fn runs_that_fail_for_one_reason_are_one_line_and_tables_of_nothing_are_not_made() {
    // The simulator lacks this TCP. Its error names the flow, which is the same in all runs.
    let other =
        "[[flow]]\nname = \"other\"\nprotocol = \"tcp-cubic\"\nfrom = \"a\"\nto = [\"b\"]\n";
    let site = Site::of("cubic.toml", &(SMALL.to_string() + other));
    let ended = sweep(&site, "cubic.toml", "out", "").end_with(1);
    assert_eq!(ended.out, "", "{}", ended.err);
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.err);
    let first =
        "failed: link.0.rate=1 Mbit/s, flow.tcp.count=1, duration=6 s, seed 1 and 3 runs more: ";
    assert!(lines[0].contains(first) && lines[1].contains("4 of 4 runs failed"), "{}", ended.err);
    for name in ["flows.csv", "sweep.html"] {
        assert!(!site.path("out").join(name).exists(), "{name}");
    }
}

#[test]
fn a_sweep_writes_its_plots_as_pictures() {
    let site = Site::of("small.toml", SMALL);
    sweep(&site, "small.toml", "out", "--svg").succeed();
    for name in ["active_throughput_bps-1.svg", "active_throughput_bps-2.svg"] {
        let text = site.read(&format!("out/svg/{name}"));
        assert!(text.contains(">link.0.rate<"), "{text}");
        assert!(text.contains("<desc>flow.tcp.count = "), "{text}");
    }
}
