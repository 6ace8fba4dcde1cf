//! Tables of docs/research.md, compared with the program.

use std::collections::BTreeSet;

use super::site::Site;
use super::*;

fn rows() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join("docs/research.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" |").map(|cell| cell.trim().to_string()).collect()).collect()
}

fn table(head: &str) -> Vec<Vec<String>> {
    let rows = rows();
    let start = rows.iter().position(|row| row[0] == head).unwrap_or_else(|| panic!("no {head}"));
    let width = rows[start].len();
    // A line of dashes follows the head; the next table begins with a head and dashes too.
    let is_dashes = |row: &Vec<String>| row[0].starts_with("---");
    let body = &rows[start + 2..];
    let end = body.iter().position(is_dashes).map_or(body.len(), |at| at - 1);
    assert!(body[..end].iter().all(|row| row.len() == width), "{head}: {body:?}");
    body[..end].to_vec()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_has_every_kind_of_event_with_its_fields() {
    let documented = table("kind");
    let names: Vec<&str> = documented.iter().map(|row| quoted(&row[0])[0]).collect();
    let known: Vec<&str> = faircast_trace::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(names, known);
    for (row, kind) in documented.iter().zip(faircast_trace::KINDS) {
        assert_eq!(quoted(&row[2]), kind.fields, "{}", kind.name);
        assert!(!row[1].is_empty() && !row[3].is_empty(), "{}", kind.name);
    }
    let causes: Vec<_> =
        table("causes").iter().map(|row| (row[0].clone(), quoted(&row[1]).join(" "))).collect();
    let words: Vec<_> = faircast_trace::WORDS
        .iter()
        .map(|(name, words)| (name.to_string(), words.join(" ")))
        .collect();
    assert_eq!(causes, words);
}

fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            paths(value, &format!("{path}{dot}{key}"), found);
        }),
        Value::Array(items) => {
            items.iter().for_each(|item| paths(item, &format!("{path}[]"), found));
        }
        _ => {
            found.insert(path.to_string());
        }
    }
}

#[test]
fn the_page_has_every_key_of_the_summary_and_of_a_suites_row() {
    let mut found = BTreeSet::new();
    let tree = SMALL.replace("tcp-sack", "tram");
    for scenario in [SMALL, &tree] {
        paths(&Site::of("small.toml", scenario).json("run small.toml --json"), "", &mut found);
    }
    let documented: BTreeSet<String> =
        table("key").iter().map(|row| quoted(&row[0])[0].to_string()).collect();
    assert_eq!(documented, found);

    let suite = json("bench tcp --only droplist.Reno --json");
    let found = suite["rows"][0].as_object().unwrap().keys().cloned().collect();
    let documented: BTreeSet<String> =
        table("key of a row").iter().map(|row| quoted(&row[0])[0].to_string()).collect();
    assert_eq!(documented, found);
}

#[test]
fn the_page_has_every_table_of_a_report_with_its_columns() {
    let crowd = "title = \"Does a report have all tables?\"\nduration = \"30 s\"\nwarmup = \"5 s\"\n\
        [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"4 Mbit/s\"\ndelay = \"20 ms\"\n\
        queue = { kind = \"droptail\", packets = 20 }\n";
    let flow = |protocol: &str, count: u32| {
        let name = protocol.replace('-', "");
        format!(
            "[[flow]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nfrom = \"a\"\nto = [\"b\"]\n\
             count = {count}\n"
        )
    };
    let flows = [("pgmcc", 1), ("tfmcc", 1), ("tram", 1), ("tcp-sack", 5)];
    let text = flows.map(|(protocol, count)| flow(protocol, count)).concat();
    let text = format!("{crowd}{text}");
    let site = Site::of("crowd.toml", &text);
    site.succeed("run crowd.toml --out out");
    let said = site.succeed("report out --csv --svg");
    assert!(said.ends_with("series: out/csv\npictures: out/svg\n"), "{said}");
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in std::fs::read_dir(site.path("out/csv")).unwrap() {
        let path = entry.unwrap().path();
        let table = std::fs::read_to_string(&path).unwrap();
        assert!(table.lines().count() > 1, "{path:?}");
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        found.push((name, table.lines().next().unwrap().replace(',', " ")));
    }
    let mut documented: Vec<(String, String)> = table("table")
        .iter()
        .map(|row| (quoted(&row[0])[0].to_string(), quoted(&row[1]).join(" ")))
        .collect();
    found.sort();
    documented.sort();
    assert_eq!(documented, found);
    let summary = read_json(&site.path("out/summary.json"));
    let throughput = site.read("out/csv/throughput.csv");
    let rates: Vec<(f64, f64)> = throughput
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|fields| fields[1] == "pgmcc")
        .map(|fields| (fields[0].parse().unwrap(), fields[4].parse().unwrap()))
        .collect();
    let counted: Vec<f64> =
        rates.iter().filter(|(at, _)| (5.0..30.0).contains(at)).map(|(_, rate)| *rate).collect();
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    let want = summary["flows"][0]["throughput_bps"].as_f64().unwrap();
    assert!((mean / want - 1.0).abs() < 0.02, "{mean} {want}");
    let pictures: Vec<_> = std::fs::read_dir(site.path("out/svg")).unwrap().collect();
    assert_eq!(pictures.len(), found.len() - 1, "events are in the pictures of their plots");
    for picture in pictures {
        let text = std::fs::read_to_string(picture.unwrap().path()).unwrap();
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains(">Time, s</text>") && !text.contains("NaN"), "{text}");
    }
}

#[test]
fn the_example_of_a_suite_is_one() {
    let page = std::fs::read_to_string(root().join("docs/research.md")).unwrap();
    let site = Site::of("my-suite.toml", &site::blocks(&page, "toml")[0]);
    let scenario = std::fs::read_to_string(root().join("scenarios/pgmcc-beside-tcp.toml")).unwrap();
    site.put("slow.toml", scenario.replace("300 s", "20 s"));
    assert!(site.succeed("bench my-suite.toml --list").contains("Slow links"));
    let ended = site.start("bench my-suite.toml --seeds 1").end();
    assert!(ended.out.contains("slow.share"), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("--on lab") && ended.err.lines().count() == 1, "{}", ended.err);
}
