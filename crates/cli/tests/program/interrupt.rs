//! Ctrl-C.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// Ten days of simulated time: far more than anyone waits for.
const LONG: &str = "title = \"Does Ctrl-C leave whole files behind?\"
duration = \"864000 s\"
[[link]]
between = [\"a\", \"b\"]
rate = \"10 Mbit/s\"
delay = \"10 ms\"
[[flow]]
name = \"tcp\"
protocol = \"tcp-sack\"
from = \"a\"
to = [\"b\"]
";

#[test]
fn an_interrupted_run_ends_with_status_1_and_whole_files_that_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "long.toml", LONG);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let out = folder.path().join(signal.as_str());
        let trace = out.join("trace.jsonl.gz");
        let mut child = program(&["run", &file, "--json", "--out", &text_of(&out)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Some of the trace is on disk: the run is under way.
        let started = Instant::now();
        while !std::fs::metadata(&trace).is_ok_and(|found| found.len() > 100_000) {
            assert!(started.elapsed() < Duration::from_secs(LIMIT_S), "no trace appears");
            assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{err}");
        assert!(err.starts_with("faircast: interrupted at ") && err.lines().count() == 1, "{err}");

        let printed = String::from_utf8(ended.stdout).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let ended_s = summary["ended_s"].as_f64().unwrap();
        assert_eq!(summary["interrupted"], true);
        assert!(ended_s > 0.0 && ended_s < 864_000.0, "{ended_s}");
        // Averages are over the time that ran: the link was full in it.
        assert!(summary["links"][0]["utilisation"].as_f64().unwrap() > 0.9, "{printed}");
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        assert_eq!(read("summary.json"), printed);
        assert!(read("report.html").ends_with("</html>\n"));
        assert_eq!(succeed(&["report", &text_of(&trace), "--json"]), printed);
    }
}
