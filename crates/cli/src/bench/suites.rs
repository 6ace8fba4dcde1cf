//! Results of suites: tables, pages and documents of the judged rows, and of scores.

use std::fmt::Write as _;

use faircast_experiment::{LIVE, Lab, Results, listing};
use faircast_report::{Verdicts, bench_page};
use faircast_study::files::json;
use faircast_study::suite::{
    BUNDLED, Judged, LoadedSuite, Scores, Selection, TestedScheme, is_bundled,
};
use faircast_study::{Error, Study};

use super::choice::read_page;
use crate::args::BenchArgs;

pub(super) fn load(name: &str, args: &BenchArgs, study: &Study<'_>) -> Result<LoadedSuite, Error> {
    if !is_bundled(name) && !name.ends_with(".toml") {
        let live: Vec<&str> = LIVE.iter().map(|live| live.name).collect();
        return Err(Error::Usage(format!(
            "no suite is called \"{name}\"; there are {}, tram-scale, {}, matrix, sim-vs-lab, and files that end \
             in .toml",
            BUNDLED.join(", "),
            live.join(", ")
        )));
    }
    let scheme = |name: &String| TestedScheme { name: name.clone(), options: args.options.clone() };
    let selection = Selection {
        only: args.only.clone(),
        seeds: args.seeds,
        scheme: args.scheme.as_ref().map(scheme),
        plots: args.out.is_some(),
        side_by_side: args.jobs.is_some(),
    };
    LoadedSuite::load(name, selection, study)
}

pub(super) fn list(suite: &LoadedSuite) -> String {
    let all = suite.questions();
    let rows = all.iter().map(|of| (of.group, of.id, of.question));
    listing(suite.name(), suite.title(), rows)
}

pub(super) fn run(
    suite: &LoadedSuite,
    args: &BenchArgs,
    study: &Study<'_>,
) -> Result<Results, Error> {
    let mut study = study.clone();
    if suite.needs_lab() {
        study.backend = &Lab;
    }
    let document = args.docs.as_ref();
    let document = document.map(|path| read_page(path, Verdicts::HEADING)).transpose()?;
    let mut verdicts = document.map(|page| Verdicts::parse(&page.unwrap_or_default()));
    if let Some(scores) = suite.score(&study)? {
        let json = json(&scores);
        let files = vec![(format!("{}-{}.json", scores.suite, scores.scheme), json.clone())];
        let table = score_table(&scores);
        return Ok(Results { table, json, files, holds: true, ..Results::default() });
    }
    let Judged { suite: result, stopped } = suite.run(&study)?;
    let (name, in_lab) = (&result.name, suite.rows_in_lab());
    if in_lab > 0 {
        study.monitor.note(&format!(
            "{name}: rows that run in the lab as well: {in_lab}; take --on lab, as root"
        ));
    }
    let page = format!("{name}.html");
    let mut files = Vec::new();
    if args.out.is_some() {
        files.push((page.clone(), bench_page(&result)));
        files.push((format!("{name}.json"), result.to_json()));
    }
    let stopped = stopped.map(|(ran, planned)| {
        format!(
            "interrupted; the rows are of {ran} of {planned} experiments, the last perhaps with \
             fewer seeds"
        )
    });
    let document = verdicts.as_mut().map(|page| {
        page.put(&result);
        page.to_markdown()
    });
    Ok(Results {
        document: document.filter(|_| stopped.is_none()),
        table: result.table(),
        json: result.to_json() + "\n",
        files,
        page: Some(page),
        stopped,
        holds: result.holds(),
    })
}

fn score_table(scores: &Scores) -> String {
    let options = if scores.options.is_empty() {
        String::new()
    } else {
        format!(" with {}", scores.options.join(", "))
    };
    let mut text = format!("{}: {}{options}\n\n", scores.suite, scores.scheme);
    let _ = writeln!(
        text,
        "{:<16} {:>7} {:>15} {:>9} {:>12} {:>13}",
        "experiment", "f", "spread", "fairness", "utilisation", "session kb/s"
    );
    for score in &scores.experiments {
        for (index, ratio) in score.ratios.iter().enumerate() {
            let spread = format!("{:.2} to {:.2}", ratio.low, ratio.high);
            let (id, rest) = if index == 0 {
                let used = score
                    .utilisation
                    .map_or("-".into(), |utilisation| format!("{:.1} %", 100.0 * utilisation));
                let session = score.session_bps / 1e3;
                let rest = format!("{:>9.2} {used:>12} {session:>13.1}", score.fairness);
                (score.id.as_str(), rest)
            } else {
                ("", String::new())
            };
            let _ = writeln!(text, "{id:<16} {:>7.2} {spread:>15} {rest}", ratio.median);
        }
    }
    let _ = write!(
        text,
        "\nfairness {:.3} (geometric mean), worst {:.3}, utilisation {:.1} %\n\
         f is TCP's throughput over the session's: 1 is fair, below 1 TCP gets too little.\n",
        scores.fairness,
        scores.fairness_worst,
        100.0 * scores.utilisation
    );
    text
}
