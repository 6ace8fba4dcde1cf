//! Ctrl-C.

use nix::sys::signal::Signal;

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
        let mut run = Running::start(&["run", &file, "--json", "--out", &text_of(&out)]);
        running::until("some of the trace is on disk: the run is under way", || {
            assert!(run.runs(), "it ended by itself");
            std::fs::metadata(&trace).is_ok_and(|found| found.len() > 100_000)
        });
        run.signal(signal);
        let ended = run.end_with(1);
        let (printed, err) = (&ended.out, &ended.err);
        assert!(err.starts_with("faircast: interrupted at ") && err.lines().count() == 1, "{err}");
        let summary = ended.document();
        let ended_s = summary["ended_s"].as_f64().unwrap();
        assert_eq!(summary["interrupted"], true);
        assert!(ended_s > 0.0 && ended_s < 864_000.0, "{ended_s}");
        // Averages are over the time that ran: the link was full in it.
        assert!(summary["links"][0]["utilisation"].as_f64().unwrap() > 0.9, "{printed}");
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        assert_eq!(read("summary.json"), *printed);
        assert!(read("report.html").ends_with("</html>\n"));
        assert_eq!(succeed(&["report", &text_of(&trace), "--json"]), *printed);
    }
}
