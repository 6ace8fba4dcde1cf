//! Published figures, compared with recorded results of the suites, with few seeds.

use super::*;

/// Rows of the suite `fairness` with one seed. A change alters every published comparison.
const GOLDEN: &str = include_str!("fairness.txt");

const TFMCC: &str = include_str!("tfmcc.txt");
const ORMCC: &str = include_str!("ormcc.txt");

fn rows(words: &str) -> Vec<Value> {
    let ended = run_within(600, words);
    assert!(matches!(ended.code, Some(0 | 1)), "{words}: {}", ended.err);
    ended.document()["rows"].as_array().unwrap().clone()
}

fn held(options: &str) -> usize {
    let rows = rows(&format!("bench tcp --json --only {options}"));
    rows.iter().for_each(|row| assert_eq!(row["holds"], true, "{row}"));
    rows.len()
}

#[test]
fn every_retransmission_of_ns_2_comes_at_its_microsecond() {
    assert_eq!(held("droplist"), 93);
}

#[test]
fn a_lone_flow_does_what_it_does_in_ns_2() {
    for case in ["i.base.Reno.1", "iii.base.low-rtt200.Sack1.1", "iv.base.dt.0.9Mb.Newreno.1"] {
        let rows = held(&format!("{case} --seeds 2"));
        assert!(rows >= 4, "{case}: {rows} rows");
    }
}

#[test]
fn the_experiments_of_seada_and_helmy_give_what_is_recorded() {
    compare("fairness", GOLDEN);
}

#[test]
fn what_rfc_4654_makes_one_expect_is_as_recorded() {
    compare("tfmcc", TFMCC);
}

#[test]
fn the_experiments_of_li_and_kalyanaraman_give_what_is_recorded() {
    compare("ormcc", ORMCC);
}

fn compare(suite: &str, recorded: &str) {
    let rows = rows(&format!("bench {suite} --seeds 1 --json"));
    let mut lines = String::new();
    for row in rows {
        // JSON has no infinity: the time of an event that never happened is null.
        let ours = row["ours"].as_f64().unwrap_or(f64::INFINITY);
        lines += &format!("{} {ours:.4}\n", row["id"].as_str().unwrap());
    }
    assert!(
        lines == recorded,
        "the figures of {suite} are not those recorded (docs/verdicts.md quotes some of them, and \
         HACKING.md has the command that makes it again); now they are\n{lines}"
    );
}
