//! Ctrl-C during a run.

use nix::sys::signal::Signal;

use super::site::Site;
use super::*;

const LONG: &str = r#"title = "Does Ctrl-C leave whole files behind?"
duration = "864000 s"
link = [{ between = ["a", "b"], rate = "10 Mbit/s", delay = "10 ms" }]
flow = [{ name = "tcp", protocol = "tcp-sack", from = "a", to = ["b"] }]
"#;

#[test]
fn an_interrupted_run_ends_with_status_1_and_whole_files_that_say_so() {
    let site = Site::of("long.toml", LONG);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let out = signal.as_str();
        let trace = format!("{out}/trace.jsonl.gz");
        let mut run = site.start(&format!("run long.toml --json --out {out}"));
        running::until("some of the trace is on disk: the run is under way", || {
            assert!(run.runs(), "it ended by itself");
            std::fs::metadata(site.path(&trace)).is_ok_and(|found| found.len() > 100_000)
        });
        run.signal(signal);
        let ended = run.end_with(1);
        let (printed, err) = (&ended.out, &ended.err);
        assert!(err.starts_with("faircast: interrupted at ") && err.lines().count() == 1, "{err}");
        let summary = ended.document();
        let ended_s = summary["ended_s"].as_f64().unwrap();
        assert_eq!(summary["interrupted"], true);
        assert!(ended_s > 0.0 && ended_s < 864_000.0, "{ended_s}");
        assert!(summary["links"][0]["utilisation"].as_f64().unwrap() > 0.9, "{printed}");
        assert_eq!(site.read(&format!("{out}/summary.json")), *printed);
        assert!(site.read(&format!("{out}/report.html")).ends_with("</html>\n"));
        assert_eq!(site.succeed(&format!("report {trace} --json")), *printed);
    }
}
