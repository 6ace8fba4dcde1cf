//! Files of `--out`, and the results that can be made again from the files.

use super::site::Site;
use super::*;

#[test]
fn out_has_summary_trace_and_report_and_the_trace_gives_them_again() {
    let site = Site::of("small.toml", SMALL);
    let printed = site.succeed("run small.toml --json --out a/new/folder");
    let entries = std::fs::read_dir(site.path("a/new/folder")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["report.html", "summary.json", "trace.jsonl.gz"]);
    assert_eq!(site.read("a/new/folder/summary.json"), printed);
    let report = site.read("a/new/folder/report.html");
    assert!(report.ends_with("</html>\n") && report.contains("a small run"), "{}", report.len());
    assert!(!report.contains("src=\"http") && !report.contains("href=\"http"));

    let again = site.succeed("report a/new/folder/trace.jsonl.gz --json --out again");
    assert_eq!(again, printed);
    assert_eq!(site.read("again/summary.json"), printed);
    assert_eq!(site.read("again/report.html"), report);
    std::fs::remove_file(site.path("a/new/folder/report.html")).unwrap();
    let table = site.succeed("report a/new/folder");
    assert!(table.contains("tcp-1") && table.contains("report: "), "{table}");
    assert_eq!(site.read("a/new/folder/report.html"), report);
}

#[test]
fn what_is_printed_does_not_depend_on_what_is_written() {
    let site = Site::of("small.toml", SMALL);
    let hash = |summary: &Value| summary["trace_hash"].as_str().unwrap().to_string();
    let plain = site.json("run small.toml --json");
    let written = site.json("run small.toml --json --out out");
    assert_eq!(hash(&plain), hash(&written));
    let table = site.succeed("run small.toml");
    assert!(table.contains(&hash(&plain)), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn the_trace_of_a_run_that_was_killed_has_a_report_as_far_as_it_goes() {
    let site = Site::of("small.toml", SMALL);
    let whole = site.json("run small.toml --json --out out");
    let trace = std::fs::read(site.path("out/trace.jsonl.gz")).unwrap();
    site.put("out/trace.jsonl.gz", &trace[..trace.len() / 2]);
    let ended = site.start("report out/trace.jsonl.gz --json").end_with(0);
    let note = "the file ends in the middle of a line; the run seems to have been killed";
    assert!(ended.err.contains(note) && ended.err.lines().count() == 1, "{}", ended.err);
    let half = ended.document();
    assert_eq!(half["interrupted"], true);
    assert!(half["ended_s"].as_f64().unwrap() < whole["ended_s"].as_f64().unwrap());
    assert!(half["flows"][0]["sent_packets"].as_u64().unwrap() > 0, "{half}");
    assert!(half["flows"][0]["throughput_bps"].as_f64().unwrap() > 0.0, "{half}");
    assert_eq!(half["flows"][0]["receivers"][0]["intact"], Value::Null);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let site = Site::of("small.toml", SMALL);
    for words in [
        "run small.toml",
        "run small.toml --json",
        "schemes",
        "schemes --json",
        "bench --list",
        "completions bash",
        "man",
        "help run",
        "--version",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = site.command(words).stdout(writer).output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), err.as_str()), (Some(0), ""), "{words}");
    }
}

#[test]
fn a_failure_that_nobody_hears_is_still_a_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(program("run none.toml").stderr(writer).status().unwrap().code(), Some(2));
}

#[test]
fn names_of_a_trace_move_no_cursor_and_are_no_formulas() {
    let site = Site::of("small.toml", SMALL);
    site.succeed("run small.toml --out run");
    let gzip =
        Command::new("gzip").arg("-dc").arg(site.path("run/trace.jsonl.gz")).output().unwrap();
    let trace = String::from_utf8(gzip.stdout).unwrap();
    let (header, records) = trace.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(header).unwrap();
    header["title"] = "\u{202e}title\u{2028}".into();
    header["scenario"] = "\u{1b}]0;x\u{7}.toml".into();
    header["nodes"][0] = "a\u{1b}[2J\nb".into();
    header["links"][0]["queue"] = "\u{200b}".into();
    header["flows"][0]["name"] = "=1+1".into();
    header["flows"][0]["protocol"] = "@x\u{202e}".into();
    site.put("t.jsonl", format!("{header}\n{records}"));
    let out = site.start("report t.jsonl --csv --svg --out out").end_with(0).out;
    let is_shown = |text: &str| !text.contains(|c| c != '\n' && faircast_base::is_format(c));
    assert!(is_shown(&out) && out.contains("\\u202etitle"), "{out:?}");
    let mut cells = Vec::new();
    for folder in ["out", "out/csv", "out/svg"] {
        for entry in std::fs::read_dir(site.path(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            assert!(is_shown(&text), "{path:?}");
            if path.extension().is_some_and(|it| it == "csv") {
                cells.extend(text.split([',', '\n']).map(str::to_string));
            }
        }
    }
    assert!(cells.iter().any(|cell| cell == "\"'=1+1\""), "{} cells", cells.len());
    assert!(!cells.iter().any(|cell| cell.starts_with(['=', '@'])), "{} cells", cells.len());
    let wrong = site.start("report t\u{1b}[2J.jsonl").end_with(2).err;
    assert!(is_shown(&wrong) && wrong.contains("\\u001b[2J"), "{wrong:?}");
}
