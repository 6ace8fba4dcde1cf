//! All scenario files of the repository.

use faircast_scenario::{Overrides, Scenario};

use super::*;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn is_suite(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().ends_with("suite.toml") || name == "matrix.toml")
}

#[test]
fn every_scenario_file_loads_with_the_protocols_that_there_are() {
    let catalog = faircast_sim::catalog();
    let mut count = 0;
    for path in files(&root().join("scenarios")).iter().filter(|path| !is_suite(path)) {
        let scenario = Scenario::load(path, &Overrides::default(), &catalog)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.title.ends_with('?'), "{}", path.display());
        count += 1;
    }
    assert!(count >= 8, "{count} scenarios");
}

/// Example with settings for a run of a second or two, and the busiest link's least utilisation.
#[derive(Clone, Copy)]
struct Example {
    file: &'static str,
    set: &'static str,
    busiest_min: f64,
}

const USUAL: Example = Example { file: "", set: "--set 'duration=100 s'", busiest_min: 0.7 };

const EXAMPLES: &[Example] = &[
    Example { file: "changing-bandwidth.toml", set: "", busiest_min: 0.95 },
    Example { file: "credit-beside-tcp.toml", set: "", busiest_min: 0.9 },
    Example { file: "demo.toml", set: "--set 'duration=20 s'", busiest_min: 0.9 },
    // The worst of the paths is the limit.
    Example { file: "faults.toml", set: "", busiest_min: 0.05 },
    Example { file: "joins-and-leaves.toml", set: "", busiest_min: 0.6 },
    // Losses, not queues, are the limit.
    Example { file: "lossy-links.toml", set: "--set 'duration=100 s'", busiest_min: 0.05 },
    Example { file: "pgmcc-beside-tcp.toml", set: "--set 'duration=100 s'", busiest_min: 0.95 },
    Example { file: "red-queue.toml", set: "--set 'duration=100 s'", busiest_min: 0.9 },
    Example { file: "tcp-flavours.toml", set: "--set 'duration=100 s'", busiest_min: 0.95 },
    // The sender is active for some seconds of a minute.
    Example { file: "tram-tree.toml", set: "", busiest_min: 0.1 },
    // Losses are the limit: the session follows the unluckiest of a thousand receivers.
    Example { file: "thousand-receivers.toml", set: "--set 'duration=10 s'", busiest_min: 0.1 },
];

#[test]
fn every_example_runs_and_gives_sane_numbers() {
    let folder = root().join("scenarios");
    let examples = files(&folder).into_iter().filter(|path| path.parent() == Some(&folder));
    let names: Vec<String> =
        examples.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    for Example { file, .. } in EXAMPLES {
        assert!(names.iter().any(|name| name == file), "{file} is not there");
    }
    for file in &names {
        let known = EXAMPLES.iter().find(|example| example.file == file);
        let Example { set, busiest_min, .. } = known.copied().unwrap_or(USUAL);
        let summary = json(&format!("run scenarios/{file} --json {set}"));
        let list = |of: &Value, key: &str| of[key].as_array().unwrap().clone();
        let number = |of: &Value, key: &str| of[key].as_f64().unwrap();

        let used: Vec<f64> =
            list(&summary, "links").iter().map(|link| number(link, "utilisation")).collect();
        assert!(used.iter().all(|share| (0.0..=1.0 + 1e-9).contains(share)), "{file}");
        let busiest = used.iter().copied().fold(0.0, f64::max);
        assert!(busiest >= busiest_min, "{file}: the busiest link is used for {busiest}");
        assert!(number(&summary, "jain_index") <= 1.0 + 1e-9, "{file}");
        assert_eq!(summary["interrupted"], false, "{file}");
        let rings = ["tram-tree.toml", "credit-beside-tcp.toml"].contains(&&**file);
        let dropped = number(&summary["routers"], "dropped_packets");
        assert_eq!(dropped > 0.0, rings, "{file}: a packet has no way to go");

        for flow in list(&summary, "flows") {
            assert!(number(&flow, "throughput_bps") > 0.0, "{file}: {flow}");
            // Only links that flip bits cause refused packets.
            let corrupts = file == "faults.toml";
            assert_eq!(number(&flow, "bad_input") > 0.0, corrupts, "{file}: {flow}");
            let sent = number(&flow, "sent_packets");
            for receiver in list(&flow, "receivers") {
                let delivered = number(&receiver, "delivered_packets");
                assert!(delivered > 0.0 && delivered <= sent, "{file}: {receiver}");
                assert!((0.0..=1.0).contains(&number(&receiver, "loss_ratio")), "{file}");
                let whole = number(&receiver, "abandoned_packets") == 0.0;
                assert!(receiver["intact"] == whole, "{file}: {receiver}");
            }
        }
    }
}
