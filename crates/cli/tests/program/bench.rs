//! Suites that are part of the program, and suites from a file.

use super::site::Site;
use super::*;

const SUITE: &str = r#"name = "mine"
title = "Does a suite of one's own work?"
seeds = 2
session = "tcp"

[[experiment]]
id = "share"
question = "Do two flows fill the link?"
scenario = "small.toml"
bottlenecks = ["a>b"]

[[experiment.row]]
id = "share.sum"
title = "both flows"
measure = "sum throughput_kbps tcp-*"
unit = "kbit/s"
paper = 960.0
tolerance = 0.05
reason = "headers take 3 %"

[[experiment.row]]
id = "share.used"
title = "utilisation of the bottleneck"
measure = "utilisation a>b"
unit = "ratio"
at_least = 0.9
reason = "two flows of which one is always on"
fairness = false
"#;

fn suite(text: &str) -> Site {
    let site = Site::of("small.toml", SMALL);
    site.put("my-suite.toml", text);
    site
}

#[test]
fn a_suite_of_ones_own_runs_and_its_rows_decide_the_exit_status() {
    let site = suite(SUITE);
    let document = site.json("bench my-suite.toml --json --out out");
    assert_eq!(document["suite"], "mine");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let keys =
        "id title unit paper ours low high seeds tolerance accept_low accept_high holds explained";
    for key in keys.split(' ') {
        assert!(rows[0].get(key).is_some(), "{key}: {}", rows[0]);
    }
    assert_eq!((&rows[0]["id"], &rows[0]["holds"]), (&"share.sum".into(), &true.into()));
    assert_eq!((rows[0]["seeds"].as_u64(), rows[0]["explained"].is_null()), (Some(2), true));
    let number = |key: &str| rows[0][key].as_f64().unwrap();
    assert!(number("low") <= number("ours") && number("ours") <= number("high"), "{}", rows[0]);
    assert_eq!(read_json(&site.path("out/mine.json")), document);
    let page = site.read("out/mine.html");
    assert!(page.ends_with("</html>\n") && page.contains("share.sum"));

    assert_eq!((&rows[0]["class"], &document["counts"]["holds"]), (&"holds".into(), &2.into()));

    let wrong = |keys: &str| SUITE.replace("paper = 960.0", &format!("paper = 500.0\n{keys}"));
    let missed = wrong("conjecture = \"Wrong by design.\"");
    let ended = suite(&missed).start("bench my-suite.toml").end_with(1);
    assert_eq!(ended.err, "");
    assert!(ended.out.contains("cause unknown. Wrong by design."), "{}", ended.out);
    let end = "2 rows: 1 judged, hold; 1 not reproduced, cause unknown.\n";
    assert!(ended.out.contains("UNKNOWN") && ended.out.ends_with(end), "{}", ended.out);
    let proved = "explained = \"Wrong by design.\"\nproved_by = [\"share.used\"]";
    let explained = suite(&wrong(proved));
    let ended = explained.start("bench my-suite.toml").end_with(1);
    assert!(ended.out.contains("(proved by share.used)"), "{}", ended.out);
    assert!(ended.out.ends_with("1 judged, miss, mechanism proved.\n"), "{}", ended.out);
    let ended = explained.start("bench my-suite.toml --docs verdicts.md").end_with(1);
    assert!(ended.out.ends_with("mechanism proved.\n"), "{}", ended.out);
    let page = explained.read("verdicts.md");
    assert!(page.contains("| `mine` | 2 | 1 | 1 | 0 | 0 | 0 | 0 |"), "{page}");
    let more = format!("{page}\n## other\n\n| `x` | – | 1 | 3 | – | measured |\n");
    explained.put("verdicts.md", &more);
    explained.start("bench my-suite.toml --docs verdicts.md").end_with(1);
    assert!(explained.read("verdicts.md").contains("| `other` | 1 |"));
    explained.put("README.md", "# Mine\n");
    for words in ["my-suite.toml", "matrix", "matrix --scheme pgmcc"] {
        let line = explained.start(&format!("bench {words} --docs README.md")).refuse();
        assert!(line.contains("--docs README.md: does not begin with \"# "), "{line}");
        assert_eq!(explained.read("README.md"), "# Mine\n");
    }
    explained.put("comparison.md", "# The schemes beside each other\n");
    let line = explained.start("bench matrix --quick --docs comparison.md").refuse();
    assert!(line.contains("has the whole matrix; name a new file"), "{line}");
    let unproved = wrong(proved).replace("at_least = 0.9", "at_least = 1.1");
    let ended = suite(&unproved).start("bench my-suite.toml").end_with(1);
    assert!(ended.out.contains("Unproved, since share.used misses itself"), "{}", ended.out);
    assert!(ended.out.ends_with("2 rows: 2 not reproduced, cause unknown.\n"), "{}", ended.out);
    assert!(site.succeed("bench my-suite.toml --list").contains("share"));
    let seeds = site.json("bench my-suite.toml --json --seeds 3 --jobs 1");
    assert_eq!(seeds["rows"][0]["seeds"], 3);
}

#[test]
fn a_mistake_in_a_suite_is_one_line_and_found_before_anything_runs() {
    for (from, to, want) in [
        ("unit = \"kbit/s\"\n", "", "my-suite.toml:"),
        ("tolerance", "tolerence", "tolerence"),
        ("tolerance = 0.05\n", "", "row \"share.sum\": no value could fail it"),
        ("share.used", "share.sum", "the id is there twice"),
        ("small.toml", "none.toml", "none.toml: cannot be read"),
        ("tcp-*", "udp", "\"udp\" is no flow of its scenario; there are tcp-1, tcp-2"),
        ("utilisation a>b", "utilisation a>z", "\"a>z\" is no link of its scenario"),
        ("utilisation a>b", "speed a>b", "no quantity \"speed\"; there are throughput_bps"),
        ("sum throughput_kbps", "sum throughput_bps@0..30", "counts up to 30 s"),
        ("[\"a>b\"]", "[\"a>c\"]", "bottlenecks: \"a>c\" is no link"),
    ] {
        assert!(SUITE.contains(from), "{from}");
        suite(&SUITE.replacen(from, to, 1)).start("bench my-suite.toml").refuse_with(want);
    }
}

#[test]
fn the_suites_that_come_with_the_program_are_listed_and_can_be_chosen_from() {
    let list = succeed("bench --list");
    for suite in ["tcp", "fairness", "fec", "tfmcc", "ormcc", "speed", "tram-scale"] {
        let lines = list.lines().filter(|line| line.starts_with(&format!("{suite} ")));
        assert_eq!(lines.count(), 1, "{list}");
    }
    let own = succeed("bench tcp --list");
    assert!(own.contains("droplist") && !list.contains("droplist"), "{own}");
    for line in list.lines().chain(own.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let rows = json("bench --only droplist.Reno --json");
    let rows = rows["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["holds"] == true), "{rows:?}");
    assert!(rows.iter().all(|row| row["id"].as_str().unwrap().starts_with("droplist.Reno")));
}

#[test]
fn parity_saves_what_follows_from_the_loss_alone() {
    for only in ["10-", "100-"] {
        let rows = json(&format!("bench fec --seeds 1 --only {only} --json"));
        let rows = rows["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|row| row["holds"] == true), "{rows:?}");
    }
}

const JUDGE: &str = r#"name = "judge"
title = "Is a scheme fair on one link?"
seeds = 1
session = "mcc"

[[experiment]]
id = "one-link"
question = "Does TCP keep its share?"
scenario = "judge.toml"
bottlenecks = ["a>b"]

[[experiment.row]]
title = "TCP / session"
measure = "throughput_bps tcp / throughput_bps mcc"
unit = "ratio"
fairness = true
at_least = 0.01
reason = "somebody else's question"
"#;

const JUDGED: &str = r#"title = "Is a scheme fair on one link?"
duration = "60 s"
link = [{ between = ["a", "b"], rate = "1 Mbit/s", delay = "20 ms" }]
flow = [
    { name = "mcc", protocol = "pgmcc", from = "a", to = ["b"], options = { acker_bias = 0.5 } },
    { name = "tcp", protocol = "tcp-reno", from = "a", to = ["b"] },
]
"#;

#[test]
fn a_scheme_can_be_judged_by_a_suite() {
    let site = Site::of("judge.toml", JUDGED);
    site.put("suite.toml", JUDGE);
    let judge = |scheme: &str| site.json(&format!("bench suite.toml --json --scheme {scheme}"));
    let scores = judge("pgmcc --option profile=draft");
    let share = |scores: &Value, key: &str| scores[key].as_f64().unwrap();
    assert_eq!(scores["scheme"], "pgmcc");
    assert_eq!(scores["options"][0], "profile=draft");
    assert!(share(&scores, "fairness") > 0.1 && share(&scores, "fairness") <= 1.0, "{scores}");
    assert!(share(&scores, "utilisation") > 0.8 && share(&scores, "utilisation") <= 1.0);
    let greedy = judge("cbr --option 'rate=950 kbit/s'");
    assert!(share(&greedy, "fairness") < share(&scores, "fairness") / 2.0, "{greedy}");
    site.start("bench suite.toml --scheme nosuch").refuse_with("unknown protocol \"nosuch\"");
    site.start("bench suite.toml --scheme pgmcc --option nosuch=1").refuse_with("nosuch");
}

#[test]
fn a_suite_without_experiments_holds_nothing() {
    let site = suite("name = \"none\"\ntitle = \"?\"\nseeds = 1\n");
    assert!(site.start("bench my-suite.toml").refuse().contains("none: has no experiment"));
}
