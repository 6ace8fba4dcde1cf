//! `faircast demo`: complete copies and a report.

use super::*;

#[test]
fn the_demo_delivers_three_whole_copies_and_a_report() {
    let site = site::Site::with("");
    let bytes: Vec<u8> =
        (0..1_234_567_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = site.put("it's a \"file\".bin", bytes);
    let mut demo = site.command("demo --out out --file");
    demo.arg(file);
    let said = Running::spawn(demo).succeed();
    assert!(said.contains("3 of 3 copies arrived whole"), "{said}");
    assert!(said.contains("report: out/report.html"), "{said}");
    assert!(site.read("out/report.html").ends_with("</html>\n"));
    let row = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let share =
        |name: &str| -> f64 { row(name).split_whitespace().nth(2).unwrap().parse().unwrap() };
    let summary = read_json(&site.path("out/summary.json"));
    let receivers = summary["flows"][0]["receivers"].as_array().unwrap();
    assert_eq!(receivers.len(), 3);
    for receiver in receivers {
        assert_eq!(receiver["intact"], true, "{receiver}");
        assert!(receiver["completed_s"].as_f64().unwrap() > 0.0, "{receiver}");
    }
    // Over the whole minute, 1.2 MB would be 0.16 Mbit/s; the figures cover the active 2 s.
    assert!(said.contains("Flow  Protocol  While all on"), "{said}");
    for (flow, name) in [(0, "file  "), (1, "tcp  ")] {
        let want = summary["flows"][flow]["common_throughput_bps"].as_f64().unwrap() / 1e6;
        assert!((share(name) - want).abs() < 0.01, "{said}");
        assert!(want > 1.0, "{said}");
    }
    assert!(summary["flows"][1]["throughput_bps"].as_f64().unwrap() > 1e6, "{summary}");
}
