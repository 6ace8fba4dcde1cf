//! Program, files and unreadable lines.

use std::fs;
use std::path::Path;
use std::process::Command;

use faircast_checker::Trace;

fn run(arguments: &[&str], folder: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faircast-check"));
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

const GOOD: &str = r#"{"event":"start","process":"a@d1","incarnation":1,"daemon":"d1"}
{"event":"view","process":"a@d1","incarnation":1,"n":1,"id":"1.d1","members":["d1"],"transitional_set":["d1"],"previous":null,"reason":"start"}

{"event":"join","process":"a@d1","incarnation":1,"group":"g"}
{"event":"group","process":"a@d1","incarnation":1,"n":2,"group":"g","members":["a@d1"],"change":"k1","reason":"join","subject":"a@d1","view":"1.d1"}
{"event":"send","process":"a@d1","incarnation":1,"view":"1.d1","id":"m1","service":"agreed","groups":["g"],"hash":"h1"}
{"event":"deliver","process":"a@d1","incarnation":1,"n":3,"view":"1.d1","transitional":false,"id":"m1","hash":"h1"}
"#;
const QUIET: &str = r#"{"event":"quiet","process":"a@d1","incarnation":1,"view":"1.d1","pending":0,"queues":0,"groups":{"g":["a@d1"]},"connected":["d1"]}
"#;

#[test]
fn the_exit_status_tells_violations_from_bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("good")).unwrap();
    fs::write(path("good/a.jsonl"), QUIET).unwrap();
    fs::write(path("good/b.jsonl"), GOOD).unwrap();
    fs::write(path("good/daemon.log"), "no trace").unwrap();
    let bad = GOOD.replace("\"n\":3", "\"n\":4").replace("m1\",\"hash", "m2\",\"hash");
    fs::write(path("bad.jsonl"), bad).unwrap();
    fs::write(path("broken.jsonl"), GOOD.replace("agreed", "ordered")).unwrap();
    let summary = "1 incarnations, 1 quiet, 1 deliveries, 0 violations\n";
    assert_eq!(run(&["good"], folder.path()), (0, String::new(), summary.into()));
    let (status, out, error) = run(&["bad.jsonl", "good/a.jsonl"], folder.path());
    let violations = "R1: a@d1/1: delivers m2, which nobody sent [bad.jsonl:7]\n\
                      R6: a@d1/1: does not deliver m1 in 1.d1 [bad.jsonl:2, bad.jsonl:6]\n\
                      R13: a@d1/1: goes on from 4 to 4; next is 3 [bad.jsonl:7]\n";
    assert_eq!((status, &*out), (1, violations), "{error}");
    assert!(error.ends_with("1 quiet, 1 deliveries, 3 violations\n"), "{error}");
    let (status, out, _) = run(&["bad.jsonl", "--rules", "R2,R13", "--json"], folder.path());
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    let found = (status, line["rule"].as_str(), line["lines"][0].as_str());
    assert_eq!(found, (1, Some("R13"), Some("bad.jsonl:7")));
    assert_eq!(run(&["bad.jsonl", "--rules", "R2"], folder.path()).0, 0);
    let mistakes: [(&[&str], &str); 6] = [
        (&[], "<PATHS>"),
        (&["absent.jsonl"], "absent.jsonl: No such file"),
        (&["broken.jsonl"], "broken.jsonl:6: unknown variant `ordered`"),
        (&["bad.jsonl", "--rules", "R15"], "'R15'"),
        (&["good", "--strict"], "--strict"),
        (&["good/daemon.log"], "daemon.log:1: expected"),
    ];
    for (arguments, expected) in mistakes {
        let (status, _, error) = run(arguments, folder.path());
        assert_eq!(status, 2, "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    fs::write(path("empty.jsonl"), "\n").unwrap();
    let (status, _, error) = run(&["empty.jsonl"], folder.path());
    assert!(status == 2 && error.contains("no process in these files"), "{error}");
}

#[test]
fn lines_that_the_format_forbids_are_named() {
    let crash = r#"{"event":"crash","process":"a@d1","incarnation":1}"#;
    let second = r#"{"event":"start","process":"a@d1","incarnation":1,"daemon":"d1"}"#;
    let cases = [
        (GOOD.replacen("start\",", "join\",\"group\":\"g\",", 1), "t:1: a@d1/1 has not started"),
        (format!("{GOOD}{second}"), "t:8: a@d1/1 has started before"),
        (format!("{crash}\n{GOOD}"), "t:2: a@d1/1 has ended before"),
        (format!("{QUIET}{GOOD}"), "t:2: a@d1/1 has ended before"),
        (GOOD.replace("\"hash\":\"h1\"", "\"hash\":1"), "t:6: invalid type: integer `1`"),
        (GOOD.replace(",\"transitional\":false", ""), "t:7: missing field `transitional`"),
        (GOOD.replace("\"deliver\"", "\"receive\""), "t:7: unknown variant `receive`"),
        (GOOD.replace("\"incarnation\":1,\"view\"", "\"view\""), "t:6: missing field `inc"),
    ];
    let cases = cases.map(|(text, expected)| (text.into_bytes(), expected));
    let others = [
        (b"{}\n\xff\n".to_vec(), "t:1: missing field"),
        (b"\n\xff\n".to_vec(), "t:2: stream did not contain valid UTF-8"),
    ];
    for (text, expected) in cases.into_iter().chain(others) {
        let error = Trace::read([("t".to_string(), &text[..])]).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
