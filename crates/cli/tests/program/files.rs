//! What `--out` writes, and what can be made again from it.

use super::*;

#[test]
fn out_has_summary_trace_and_report_and_the_trace_gives_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    let out = folder.path().join("a/new/folder");
    let printed = succeed(&["run", &file, "--json", "--out", &text_of(&out)]);
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["report.html", "summary.json", "trace.jsonl.gz"]);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(read("summary.json"), printed);
    let report = read("report.html");
    assert!(report.ends_with("</html>\n") && report.contains("a small run"), "{}", report.len());
    // A page that needs nothing from elsewhere.
    assert!(!report.contains("src=\"http") && !report.contains("href=\"http"));

    let again = folder.path().join("again");
    let trace = text_of(&out.join("trace.jsonl.gz"));
    assert_eq!(succeed(&["report", &trace, "--json", "--out", &text_of(&again)]), printed);
    let again_read = |name: &str| std::fs::read_to_string(again.join(name)).unwrap();
    assert_eq!(again_read("summary.json"), printed);
    assert_eq!(again_read("report.html"), report);
    // The folder will do, and then takes the results.
    std::fs::remove_file(out.join("report.html")).unwrap();
    let table = succeed(&["report", &text_of(&out)]);
    assert!(table.contains("tcp-1") && table.contains("report: "), "{table}");
    assert_eq!(read("report.html"), report);
}

#[test]
fn what_is_printed_does_not_depend_on_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    let hash = |summary: &Value| summary["trace_hash"].as_str().unwrap().to_string();
    let plain = json(&["run", &file, "--json"]);
    let out = text_of(&folder.path().join("out"));
    let written = json(&["run", &file, "--json", "--out", &out]);
    assert_eq!(hash(&plain), hash(&written));
    let table = succeed(&["run", &file]);
    assert!(table.contains(&hash(&plain)), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn the_trace_of_a_run_that_was_killed_has_a_report_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    let out = text_of(&folder.path().join("out"));
    let whole = json(&["run", &file, "--json", "--out", &out]);
    let trace = folder.path().join("out/trace.jsonl.gz");
    let bytes = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &bytes[..bytes.len() / 2]).unwrap();
    let ended = Running::start(&["report", &text_of(&trace), "--json"]).end_with(0);
    let note = "the file ends in the middle of a line; the run seems to have been killed";
    assert!(ended.err.contains(note) && ended.err.lines().count() == 1, "{}", ended.err);
    let half = ended.document();
    assert_eq!(half["interrupted"], true);
    assert!(half["ended_s"].as_f64().unwrap() < whole["ended_s"].as_f64().unwrap());
    assert!(half["flows"][0]["sent_packets"].as_u64().unwrap() > 0, "{half}");
    // Nobody can say so any more.
    assert_eq!(half["flows"][0]["receivers"][0]["intact"], Value::Null);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "small.toml", SMALL);
    for arguments in [
        &["run", &file][..],
        &["run", &file, "--json"],
        &["schemes"],
        &["schemes", "--json"],
        &["bench", "--list"],
        &["completions", "bash"],
        &["man"],
        &["help", "run"],
        &["--version"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child =
            program(arguments).stdout(Stdio::from(writer)).stderr(Stdio::piped()).spawn().unwrap();
        let ended = child.wait_with_output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_failure_that_nobody_hears_is_still_a_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = program(&["run", "none.toml"]).stderr(Stdio::from(writer)).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
