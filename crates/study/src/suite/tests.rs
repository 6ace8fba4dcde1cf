//! Checks that the settings in texts are accepted, and that quoted verdicts are the suites'.

use std::path::{Path, PathBuf};

use faircast_proto::catalog::Stack;
use faircast_proto::options::{OptionSpec, OptionValue, Options};
use faircast_report::{Class, RowVerdict, Verdicts};
use faircast_scenario::{Catalog, Overrides, Scenario};

use super::file::SuiteFile;
use super::{judge, load};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn suites() -> Vec<SuiteFile> {
    let names = super::BUNDLED.iter().copied().chain(["tram-scale", "sim-vs-lab"]);
    names.map(|name| load(name).unwrap_or_else(|error| panic!("{name}: {error:?}")).0).collect()
}

fn specs<'a>(catalog: &'a Catalog, name: &'a str) -> impl Iterator<Item = Vec<OptionSpec>> {
    let protocols = catalog.protocols.iter().map(Stack::options);
    let programs = catalog.programs.iter().map(|entry| entry.options.to_vec());
    protocols.chain(programs).filter(move |specs| specs.iter().any(|spec| spec.name == name))
}

fn value(text: &str) -> OptionValue {
    match text {
        "true" | "false" => OptionValue::Bool(text == "true"),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => OptionValue::Integer(number),
            (_, Ok(number)) => OptionValue::Float(number),
            _ => OptionValue::Text(text.into()),
        },
    }
}

const UNITS: &[&str] =
    &["ns", "us", "ms", "s", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B", "kB", "MB", "GB"];

/// Finds the settings in a text: `key = value`, `key=value`, and `one and other = value`.
fn named(text: &str) -> Vec<(String, String)> {
    let spaced = text.replace('=', " = ");
    let around = ['`', '"', '\'', ',', '.', ';', ':', '(', ')', '?'];
    let strip = |word: &str| word.trim_matches(around).to_string();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut found = Vec::new();
    for (i, word) in words.iter().enumerate() {
        let (true, Some(key), Some(first)) = (*word == "=", i.checked_sub(1), words.get(i + 1))
        else {
            continue;
        };
        let mut value = strip(first);
        if value.parse::<f64>().is_ok() && !first.ends_with(['`', ',', ';', ')']) {
            let unit =
                words.get(i + 2).map(|unit| strip(unit)).filter(|unit| UNITS.contains(&&**unit));
            value += &unit.map_or_else(String::new, |unit| format!(" {unit}"));
        }
        let mut keys = vec![words[key]];
        if key >= 2 && words[key - 1] == "and" && words[key - 2].contains('_') {
            keys.push(words[key - 2]);
        }
        // A path ends in the setting's name: flow.mcc.options.nak_backoff.
        let last = |key: &str| strip(key).rsplit('.').next().unwrap_or_default().to_string();
        found.extend(keys.into_iter().map(|key| (last(key), value.clone())));
    }
    found
}

fn is_of_a_link(catalog: &Catalog, key: &str, text: &str) -> bool {
    const SCENARIO: &str = include_str!("../../../../scenarios/own/slow-receiver.toml");
    let change = Overrides { set: vec![format!("link.0.{key}={text}")], seed: None };
    Scenario::parse(Path::new("slow-receiver.toml"), SCENARIO, &change, catalog).is_ok()
}

/// Returns why nothing takes the setting; placeholders such as `NAME` are no values.
fn refused(catalog: &Catalog, key: &str, text: &str) -> Option<String> {
    let is_placeholder = !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase());
    if is_placeholder || key == "program" || is_of_a_link(catalog, key, text) {
        return None;
    }
    let raw = || [(key.to_string(), value(text))];
    let mut errors =
        specs(catalog, key).map(|specs| Options::checked(raw(), &specs).err()).peekable();
    errors.peek()?;
    let errors: Option<Vec<_>> = errors.collect();
    errors.and_then(|errors| errors.first().map(ToString::to_string))
}

#[test]
fn settings_are_found_in_texts() {
    let found = named(
        "none (with spm_interval and heartbeat_min = 3000 s and nak_backoff = 0 s this row is 0).",
    );
    let found: Vec<String> = found.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(found, ["heartbeat_min=3000 s", "spm_interval=3000 s", "nak_backoff=0 s"]);
    let catalog = faircast_sim::catalog();
    assert_eq!(refused(&catalog, "spm_interval", "3000 s"), None);
    assert_eq!(refused(&catalog, "jitter", "0.5 ms"), None, "a link has one, and a scheme another");
    assert!(
        refused(&catalog, "nak_backoff", "0 s")
            .is_some_and(|why| why.contains("0.001 s to 3600 s"))
    );
    assert_eq!(named("`late_join = \"full\"`, and"), [("late_join".into(), "full".into())]);
    assert_eq!(named("`overhead = \"1 ms\"`"), [("overhead".into(), "1 ms".into())]);
    assert_eq!(named("flow.mcc.options.nak_backoff=1 ms"), [("nak_backoff".into(), "1 ms".into())]);
}

#[test]
fn every_setting_that_a_suite_or_a_document_names_is_accepted() {
    let catalog = faircast_sim::catalog();
    let (mut count, mut wrong) = (0, Vec::new());
    let mut check = |place: &str, text: &str| {
        for (key, value) in named(text) {
            count += usize::from(specs(&catalog, &key).next().is_some());
            if let Some(why) = refused(&catalog, &key, &value) {
                wrong.push(format!("{place}: {key} = {value}: {why}"));
            }
        }
    };
    for suite in suites() {
        for experiment in &suite.experiments {
            for text in [&experiment.question, &experiment.paper_says] {
                check(&format!("{} {}", suite.name, experiment.id), text);
            }
            for row in &experiment.rows {
                let place = format!("{} {}", suite.name, row.id.as_ref().unwrap_or(&experiment.id));
                let more = [&row.explained, &row.conjecture, &row.fitted];
                let texts = [&row.title, &row.reason].into_iter().chain(more.into_iter().flatten());
                texts.for_each(|text| check(&place, text));
            }
        }
    }
    for folder in ["docs", "docs/schemes"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("the folder is there").flatten()
        {
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            // Settings in prose are in backquotes; code blocks are skipped.
            let prose = text.split("```").step_by(2).collect::<String>();
            let quoted = prose.split('`').skip(1).step_by(2);
            quoted.for_each(|text| check(&entry.path().display().to_string(), text));
        }
    }
    assert!(
        wrong.is_empty(),
        "the program refuses settings that texts name:\n{}",
        wrong.join("\n")
    );
    assert!(count > 20, "only {count} settings found");
}

const AGAIN: &str = "make it again with faircast bench cost-benefit cost-benefit-ablation cost-benefit-compare credit fairness fec ormcc tfmcc tram --docs docs/verdicts.md, \
                     and copy its first table into README.md";

#[test]
fn the_page_of_verdicts_has_the_rows_of_the_suites() {
    let text = read("docs/verdicts.md");
    let page = Verdicts::parse(&text);
    assert!(text.starts_with(Verdicts::HEADING) && text == page.to_markdown(), "{AGAIN}");
    let names: Vec<&str> = page.suites.keys().map(String::as_str).collect();
    assert!(AGAIN.contains(&format!("bench {} --docs", names.join(" "))), "{names:?}");
    for (name, lines) in &page.suites {
        let suite = load(name).unwrap_or_else(|error| panic!("{name}: {error:?}")).0;
        let files: Vec<_> = suite.rows().collect();
        let of_file = &lines[..files.len().min(lines.len())];
        assert!(
            files.iter().map(|(id, _)| *id).eq(of_file.iter().map(|line| &*line.id)),
            "docs/verdicts.md: other rows of {name}; {AGAIN}"
        );
        for ((id, file), line) in files.iter().zip(of_file) {
            let place = format!("docs/verdicts.md: {name}: {id}; {AGAIN}");
            let want = match file {
                file if file.is_measured_only() => Class::Measured,
                file if line.class == Class::Explained => {
                    assert!(!file.proved_by.is_empty(), "no proof: {place}");
                    Class::Explained
                }
                _ if line.class == Class::NotReproduced => Class::NotReproduced,
                file if file.fitted.is_some() => Class::Fitted,
                file if file.baseline => Class::Baseline,
                _ => Class::Holds,
            };
            assert_eq!(line.class, want, "{place}");
            let expected = RowVerdict::of(&judge::unmeasured(file));
            assert_eq!(line.paper, expected.paper, "{place}");
            if !file.within_seeds {
                assert_eq!(line.accepted, expected.accepted, "{place}");
            }
        }
    }
}

#[test]
fn the_readme_quotes_the_counts_of_the_page_of_verdicts() {
    let (page, readme) = (Verdicts::parse(&read("docs/verdicts.md")), read("README.md"));
    let counts = page.counts();
    assert!(readme.contains(&counts), "README.md lacks this table; {AGAIN}:\n{counts}");
    let ours = |id: &str| {
        let row = page.suites["fairness"].iter().find(|row| row.id == id);
        &row.unwrap_or_else(|| panic!("docs/verdicts.md has no row {id}")).ours
    };
    let (streams, objects) = (ours("improved-mean"), ours("object-mean"));
    let said = format!("it is {streams} with streams and {objects} with objects");
    assert!(readme.replace('\n', " ").contains(&said), "README.md must say: {said}");
}

/// Comments before tables and charts name the rows of each line, the divisor and the decimals.
#[test]
fn the_page_of_prices_has_the_numbers_of_the_page_of_verdicts() {
    let (verdicts, page) =
        (Verdicts::parse(&read("docs/verdicts.md")), read("docs/cost-benefit.md"));
    let suites = ["cost-benefit-compare", "cost-benefit-ablation"];
    let rows = || suites.iter().flat_map(|suite| &verdicts.suites[*suite]);
    let ours = |id: &str| -> f64 {
        let row = rows().find(|row| row.id == id).unwrap_or_else(|| panic!("no row {id}"));
        row.ours.replace(',', "").parse().unwrap_or_else(|_| panic!("{id}: {}", row.ours))
    };
    let mut count = 0;
    for piece in page.split("<!-- rows\n").skip(1) {
        let (lines, rest) = piece.split_once("-->\n").expect("an end of the comment");
        // Numbers of a table follow its first two lines; numbers of a chart follow the word "bar".
        let shown: Vec<Vec<&str>> = match rest.split_once("    bar [") {
            Some((chart, numbers)) if chart.starts_with("```") => {
                let (numbers, _) = numbers.split_once(']').expect("an end of the chart");
                vec![numbers.split(", ").collect()]
            }
            _ => {
                let table = rest.lines().take_while(|line| line.starts_with('|')).skip(2);
                let cells = table.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
                cells.map(|it| it[2..it.len() - 1].to_vec()).collect()
            }
        };
        assert_eq!(shown.len(), lines.lines().count(), "{piece}");
        for (line, shown) in lines.lines().zip(shown) {
            let (ids, form) = line.split_once(" / ").expect("divisor and decimals");
            let (divisor, decimals) = form.split_once(' ').expect("decimals");
            let (divisor, decimals) = (divisor.parse::<f64>().unwrap(), decimals.parse().unwrap());
            let wanted = ids.split(' ').map(|id| match id {
                "-" => "–".to_string(),
                id => format!("{:.decimals$}", ours(id) / divisor),
            });
            let wanted: Vec<String> = wanted.collect();
            assert_eq!(shown, wanted, "docs/cost-benefit.md: {ids}");
            count += wanted.len();
        }
    }
    assert!(count > 100, "{count}");
}
