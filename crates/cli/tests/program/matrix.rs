//! `faircast bench matrix`: all reliable multicast schemes, recorded figures, and documents.

use std::collections::BTreeSet;

use super::site::Site;
use super::*;

/// Recorded figures of the quick cases with one seed. A commit that alters lines gives the reason.
const GOLDEN: &str = include_str!("matrix.txt");

/// Returns a line for each cell with case, scheme and figures: `loss-1 pgmcc fairness=0.766 ...`.
fn lines(matrix: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for case in matrix["cases"].as_array().unwrap() {
        for cell in case["cells"].as_array().unwrap() {
            let word = |of: &Value, key: &str| of[key].as_str().unwrap().to_string();
            let mut line = format!("{} {}", word(case, "id"), word(cell, "scheme"));
            for figure in cell["figures"].as_array().unwrap() {
                let median =
                    figure["median"].as_f64().map_or("never".into(), |value| format!("{value:.3}"));
                line.push_str(&format!(" {}={median}", word(figure, "figure")));
            }
            lines.push(line);
        }
    }
    lines
}

fn schemes() -> Vec<String> {
    faircast_proto::catalog::reliable_multicast().map(|stack| stack.name()).collect()
}

#[test]
fn the_quick_matrix_has_every_scheme_and_gives_what_it_gave() {
    let matrix = json("bench matrix --quick --json");
    let listed: Vec<&str> =
        matrix["schemes"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(listed, schemes());
    let now = lines(&matrix);
    let recorded: Vec<&str> = GOLDEN.lines().collect();
    assert!(recorded.len() >= 3, "something is compared");
    let key = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let known: BTreeSet<String> = recorded.iter().map(|line| key(line)).collect();
    let compared: Vec<&String> = now.iter().filter(|line| known.contains(&key(line))).collect();
    assert_eq!(compared, recorded, "all lines are now:\n{}\n", now.join("\n"));
    for line in now.iter().filter(|line| !known.contains(&key(line))) {
        eprintln!("warning: no line of matrix.txt compares: {line}");
    }
    let has_figures = |line: &&String| line.contains('=') || !line.contains("-object ");
    for line in now.iter().filter(has_figures) {
        for figure in ["settled_s=", "rate_variation=", "feedback_per_s=", "repairs="] {
            assert!(line.contains(figure), "{figure} {line}");
        }
    }
}

const CASES: &str = r#"name = "mine"
title = "Which of mine?"
seeds = 2
session = "mcc"

[[case]]
id = "short"
group = "One link"
question = "Does it fill the link?"
scenario = "short.toml"
fairness = ["sent_bps tcp / sent_bps mcc"]
bottlenecks = ["a>b"]
alone = ['flow.mcc.to=["b"]']
"#;

const SHORT: &str = r#"title = "Does it fill the link?"
duration = "20 s"
link = [
    { between = ["a", "b"], rate = "500 kbit/s", delay = "20 ms" },
    { between = ["b", "c"], rate = "10 Mbit/s", delay = "1 ms" },
]
flow = [
    { name = "mcc", protocol = "pgmcc", from = "a", to = ["b", "c"] },
    { name = "tcp", protocol = "tcp-sack", from = "a", to = ["c"] },
]
"#;

#[test]
fn cases_of_ones_own_run_and_every_run_has_a_page_that_is_led_to() {
    let site = Site::of("short.toml", SHORT);
    site.put("cases.toml", CASES);
    let own = "bench matrix --cases cases.toml --scheme pgmcc --json";
    let matrix = site.json(&format!("{own} --jobs 2 --out out --docs comparison.md"));
    assert_eq!(matrix["suite"], "mine");
    let figures = matrix["cases"][0]["cells"][0]["figures"].as_array().unwrap();
    let names: Vec<&str> = figures.iter().map(|f| f["figure"].as_str().unwrap()).collect();
    let want = "fairness utilisation settled_s rate_variation feedback_per_s slowest_share repairs";
    assert_eq!(names.join(" "), want);
    let page = site.read("out/mine.html");
    for figure in figures {
        assert_eq!(figure["per_seed"].as_array().unwrap().len(), 2, "{figure}");
        let seed = figure["worst_seed"].as_u64().unwrap();
        let link = format!("href=\"runs/short-pgmcc-{seed}.html\" title=\"median");
        assert!(page.contains(&link), "{link}");
    }
    let runs = matrix["cases"][0]["cells"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let (seed, file) = (run["seed"].as_u64().unwrap(), run["page"].as_str().unwrap());
        assert!(page.contains(&format!("<a href=\"{file}\">seed {seed}</a>")), "{file}");
        let run = site.read(&format!("out/{file}"));
        assert!(run.contains(&format!("seed {seed}")), "the page is that seed's");
    }
    let kept = std::fs::read_dir(site.path("out/runs")).unwrap().count();
    assert_eq!(kept, runs.len(), "no page is left that nothing leads to");
    assert_eq!(read_json(&site.path("out/mine.json")), matrix);
    let docs = site.read("comparison.md");
    assert!(docs.contains("| case | pgmcc |\n| --- | --- |\n| `short` | "), "{docs}");
    assert!(!docs.contains("Which one to choose"), "that is said of the whole matrix: {docs}");
    let alone = site.json(&format!("{own} --jobs 1"));
    assert_eq!(lines(&alone), lines(&matrix));
}

#[test]
fn mistakes_in_a_matrix_are_one_line_and_found_before_anything_runs() {
    let site = Site::of("short.toml", SHORT);
    let bench = "bench matrix --cases cases.toml";
    for (from, to, want) in [
        ("short.toml", "none.toml", "none.toml: cannot be read"),
        ("session = \"mcc\"", "session = \"mc\"", "flow.mc: is no entry"),
        ("sent_bps tcp", "sent_bps udp", "fairness: \"udp\" is no flow"),
        ("[\"a>b\"]", "[\"a>z\"]", "bottlenecks: \"a>z\" is no link"),
        ("alone = ['flow.mcc.to", "alone = ['flow.mcc.too", "too"),
        ("alone = ", "span_s = [0, 30] #", "span_s: its scenario ends at 20 s"),
    ] {
        assert!(CASES.contains(from), "{from}");
        site.put("cases.toml", CASES.replace(from, to));
        site.start(bench).refuse_with(want);
    }
    site.put("cases.toml", CASES);
    for (more, want) in [
        ("--scheme pgmc", "--scheme pgmc: there is no such scheme; there are pgmcc"),
        ("--scheme pgmcc,pgmcc", "pgmcc is there twice"),
        ("--only short,nosuch", "--only nosuch: no case has that in its id; there are short"),
        ("--quick", "no case has quick"),
    ] {
        site.start(&format!("{bench} {more}")).refuse_with(want);
    }
    for option in ["--quick", "--cases x.toml"] {
        let line = refuse(&format!("bench fec {option}"));
        assert!(line.contains("belongs to the suite matrix alone"), "{line}");
    }
    for (words, want) in [
        ("bench fec matrix", "matrix has no verdicts; allowed are suites of rows, or matrix alone"),
        ("bench speed", "speed has no verdicts"),
        ("bench overlay", "overlay has no verdicts"),
        ("bench fec --only 10-", "--docs with --only"),
        ("bench fairness --scheme pgmcc", "--docs with --scheme"),
        ("bench fec --seeds 1", "--docs with --seeds"),
        ("bench fec --on lab", "--docs with --on lab"),
    ] {
        Running::start(&format!("{words} --docs x.md")).refuse_with(want);
    }
}

#[test]
fn the_document_is_what_the_command_writes() {
    let page = std::fs::read_to_string(root().join("docs/comparison.md")).unwrap();
    let file = std::fs::read_to_string(root().join("scenarios/matrix/matrix.toml")).unwrap();
    let file: toml::Table = toml::from_str(&file).unwrap();
    let cases = file["case"].as_array().unwrap().iter().flat_map(|case| {
        let (id, twice) = (case["id"].as_str().unwrap(), case.get("objects"));
        let objects = twice.is_some_and(|twice| twice.as_bool().unwrap());
        [Some(id.to_string()), objects.then(|| format!("{id}-object"))]
    });
    let cases: BTreeSet<String> = cases.flatten().collect();
    let heads: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with("| case |") && !line.contains("question"))
        .collect();
    assert_eq!(heads.len(), 1, "all tables have the same schemes: {heads:?}");
    let head = heads.first().unwrap().trim_matches(['|', ' ']);
    let columns: Vec<&str> = head.split(" | ").skip(1).collect();
    assert!(!columns.is_empty());
    // A cell is a dash, or a median with the worst value in brackets.
    let number = |text: &str| text == "never" || text.parse::<f64>().is_ok();
    let is_cell = |cell: &str| match cell.split_once(" (") {
        _ if cell == "–" => true,
        Some((median, worst)) => number(median) && number(worst.trim_end_matches(')')),
        None => number(cell),
    };
    let tables = &page[page.find("### ").expect("tables begin with a heading")..];
    let mut found = BTreeSet::new();
    for row in tables.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        assert_eq!(cells.len(), columns.len() + 1, "{row}");
        assert!(cells[1..].iter().all(|cell| is_cell(cell)), "{row}");
        found.insert(cells[0].trim_matches('`').to_string());
    }
    assert_eq!(found, cases, "every case is in the document");
    for scheme in schemes() {
        if !columns.contains(&scheme.as_str()) {
            eprintln!(
                "warning: docs/comparison.md does not have {scheme} yet; faircast bench matrix \
                 --docs docs/comparison.md makes it again"
            );
        }
    }
}

#[test]
fn the_matrix_says_how_far_it_is_where_there_is_no_terminal() {
    let words = "bench matrix --quick --scheme pgmcc --json --only receivers-10 --seeds 2";
    let mut matrix = program(words);
    matrix.env("FAIRCAST_PROGRESS_S", "0");
    let err = Running::spawn(matrix).end().err;
    let lines: Vec<&str> = err.lines().collect();
    let is_told = |(i, line): (usize, &&str)| {
        line.starts_with(&format!("faircast: matrix: {} of 2 runs, ", i + 1))
    };
    assert!(lines.len() == 2 && lines.iter().enumerate().all(is_told), "{err}");
}
