//! `faircast bench`: suites of scenarios with the figures that are expected of them.

mod against_sim;
mod attack;
#[cfg(target_os = "linux")]
mod beside;
mod bundled;
mod matrix;
mod measure;
mod oracle;
mod probe;
mod runner;
mod score;
mod speed;
mod suite;
mod tcp;
mod wire;
mod worked;

use std::path::{Path, PathBuf};

use faircast_experiment::TRIES_MAX;
use faircast_proto::catalog;
use faircast_report::{Row, Suite, bench_page};

use crate::args::{BenchArgs, On};
use crate::error::{Failure, note, print};
use crate::interrupt::listen;
use crate::run::write;
use runner::{Files, Measured, Plan, Ran, Run, Scheme};
use suite::{RowFile, SuiteFile};

/// Suites that come with the program, in the order in which they run.
const BUNDLED: &[&str] = &["tcp", "fairness", "fec", "tfmcc", "ormcc"];

/// Runs suites, prints their rows, and writes pages where asked to.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(case) = &args.speed_case {
        return speed::run_case(case);
    }
    if let Some(case) = &args.wire_case {
        return wire::run_case(case);
    }
    only_in_one_suite(args)?;
    let names: Vec<&str> = match (&args.suites[..], &args.scheme) {
        // A scheme can only take the place of a suite's session.
        ([], Some(_)) => vec!["fairness"],
        ([], None) if args.list => [BUNDLED, &["speed", "wire", "attack", "matrix"]].concat(),
        ([], None) => BUNDLED.to_vec(),
        (given, _) => given.iter().map(String::as_str).collect(),
    };
    // All suites are read before the first one runs: a mistake in the last must not cost the
    // minutes of those before it.
    let chosen = names.into_iter().map(|name| choose(name, args)).collect::<Result<Vec<_>, _>>()?;
    if args.list {
        return chosen.iter().try_for_each(|chosen| chosen.list(args));
    }
    if args.peers && !chosen.iter().any(Chosen::has_on_demand) {
        return Err(Failure::Usage(
            "--peers: none of these suites runs programs of others on demand; tfmcc does".into(),
        ));
    }
    let chosen = not_empty(chosen, args)?;
    if let Some(out) = &args.out {
        Failure::make_folder(out)?;
    }
    listen();
    if let Some(jobs) = args.jobs {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(usize::from(jobs));
        pool.build_global().map_err(|error| Failure::Work(format!("--jobs {jobs}: {error}")))?;
    }
    let mut holds = true;
    for chosen in chosen {
        holds &= match chosen {
            Chosen::Speed => speed::speed(args)?,
            Chosen::Wire => wire::wire(args)?,
            Chosen::Attack => attack::attack(args)?,
            Chosen::Matrix(matrix) => matrix.run(args).map(|()| true)?,
            Chosen::Suite(suite) => run_suite(&suite, args)?,
        };
    }
    if holds { Ok(()) } else { Err(Failure::Verdict) }
}

/// A suite that was asked for.
enum Chosen {
    /// How fast the simulator is: no scenarios with expectations, but timings.
    Speed,
    /// How fast files are on real sockets: no scenarios either.
    Wire,
    /// What hosts that attack do to a transfer.
    Attack,
    /// All schemes in the same cases: no expectations, but a comparison.
    Matrix(Box<matrix::Loaded>),
    Suite(Box<Loaded>),
}

/// A suite with the files beside it.
struct Loaded {
    suite: SuiteFile,
    files: Files,
    /// The rows without a scenario that belong to it, and of which `--only` chooses any.
    from_code: Vec<&'static FromCode>,
}

/// Rows of a suite that code gives and no scenario.
struct FromCode {
    suite: &'static str,
    /// What their ids begin with.
    id: &'static str,
    question: &'static str,
    /// Whether they run programs of others, and only where `--peers` says so.
    on_demand: bool,
    /// Whether `--only` chooses any of them.
    is_chosen: fn(Option<&str>) -> bool,
    rows: fn(Option<&str>) -> Result<Vec<Row>, Failure>,
}

/// All of them, in the order of their rows.
const FROM_CODE: &[FromCode] = &[
    FromCode {
        suite: "tcp",
        id: "droplist",
        question: oracle::QUESTION,
        on_demand: false,
        is_chosen: oracle::is_chosen,
        rows: oracle::rows,
    },
    FromCode {
        suite: "tfmcc",
        id: worked::ID,
        question: worked::QUESTION,
        on_demand: false,
        is_chosen: worked::is_chosen,
        rows: |only| Ok(worked::rows(only)),
    },
    #[cfg(target_os = "linux")]
    FromCode {
        suite: "tfmcc",
        id: beside::ID,
        question: beside::QUESTION,
        on_demand: true,
        is_chosen: beside::is_chosen,
        rows: beside::rows,
    },
];

/// Refuses what means something to one suite and nothing to any other.
fn only_in_one_suite(args: &BenchArgs) -> Result<(), Failure> {
    let given = [
        ("--quick", "matrix", args.quick),
        ("--cases", "matrix", args.cases.is_some()),
        ("--docs", "matrix", args.docs.is_some()),
        ("--program", "attack", args.program.is_some()),
    ];
    let elsewhere = |suite: &str| !matches!(&args.suites[..], [one] if one == suite);
    match given.iter().find(|(_, suite, is_given)| *is_given && elsewhere(suite)) {
        Some((option, suite, _)) => {
            Err(Failure::Usage(format!("{option}: belongs to the suite {suite} alone")))
        }
        None => Ok(()),
    }
}

fn choose(name: &str, args: &BenchArgs) -> Result<Chosen, Failure> {
    if name == "matrix" {
        return Ok(Chosen::Matrix(Box::new(matrix::Loaded::new(args)?)));
    }
    let timings = match name {
        "speed" => Some(Chosen::Speed),
        "wire" => Some(Chosen::Wire),
        "attack" => Some(Chosen::Attack),
        _ => None,
    };
    if let Some(timings) = timings {
        return match (&args.scheme, &timings) {
            (None, _) => Ok(timings),
            // Our own senders use it.
            (Some(scheme), Chosen::Wire | Chosen::Attack) if catalog::scheme(scheme).is_some() => {
                Ok(timings)
            }
            (Some(scheme), Chosen::Wire | Chosen::Attack) => {
                let known: Vec<&str> = catalog::SCHEMES.iter().map(|entry| entry.name).collect();
                let known = known.join(", ");
                Err(Failure::Usage(format!("--scheme {scheme}: no such scheme; there are {known}")))
            }
            (Some(scheme), _) => Err(no_session(scheme, name)),
        };
    }
    let (suite, files) = load(name)?;
    if let (Some(scheme), None) = (&args.scheme, &suite.session) {
        return Err(no_session(scheme, &suite.name));
    }
    let only = args.only.as_deref();
    let from_code = FROM_CODE.iter().filter(|rows| rows.suite == name && (rows.is_chosen)(only));
    let from_code = from_code.collect();
    Ok(Chosen::Suite(Box::new(Loaded { suite, files, from_code })))
}

fn no_session(scheme: &str, suite: &str) -> Failure {
    Failure::Usage(format!(
        "--scheme {scheme}: the suite \"{suite}\" has no session that a scheme could replace; try \
         fairness"
    ))
}

/// Leaves out the suites of which `--only` chooses nothing, if there are others. No suite passes
/// because it is empty.
fn not_empty(chosen: Vec<Chosen>, args: &BenchArgs) -> Result<Vec<Chosen>, Failure> {
    let mut full = Vec::new();
    for chosen in chosen {
        match &chosen {
            Chosen::Suite(loaded)
                if loaded.code_rows(args).next().is_none()
                    && loaded.plan(args, None).experiments().next().is_none() =>
            {
                if args.only.is_none() {
                    let name = &loaded.suite.name;
                    return Err(Failure::Usage(format!(
                        "{name}: has no experiment; expected [[experiment]] with rows"
                    )));
                }
            }
            _ => full.push(chosen),
        }
    }
    match &args.only {
        Some(only) if full.is_empty() => Err(Failure::Usage(format!(
            "--only {only}: no experiment has that in its id; --list shows them"
        ))),
        _ => Ok(full),
    }
}

impl Loaded {
    fn plan<'a>(&'a self, args: &'a BenchArgs, scheme: Option<&'a Scheme>) -> Plan<'a> {
        Plan {
            suite: &self.suite,
            files: &self.files,
            seeds: args.seeds,
            scheme,
            only: args.only.as_deref(),
            plots: args.out.is_some(),
            on: if self.suite.against_sim { On::Lab } else { On::Sim },
        }
    }

    /// The rows without a scenario that are to be made.
    fn code_rows(&self, args: &BenchArgs) -> impl Iterator<Item = &'static FromCode> {
        self.from_code.iter().copied().filter(move |rows| args.peers || !rows.on_demand)
    }
}

impl Chosen {
    fn has_on_demand(&self) -> bool {
        matches!(self, Self::Suite(loaded) if loaded.from_code.iter().any(|rows| rows.on_demand))
    }

    fn list(&self, args: &BenchArgs) -> Result<(), Failure> {
        match self {
            Self::Speed => speed::speed(args).map(|_| ()),
            Self::Wire => wire::wire(args).map(|_| ()),
            Self::Attack => attack::attack(args).map(|_| ()),
            Self::Matrix(matrix) => matrix.list(),
            Self::Suite(loaded) => {
                let suite = &loaded.suite;
                let mut text = format!("{}: {}\n", suite.name, suite.title);
                let mut group = "";
                for experiment in loaded.plan(args, None).experiments() {
                    if experiment.group != group {
                        group = &experiment.group;
                        text.push_str(&format!("  {group}\n"));
                    }
                    text.push_str(&format!("  {:<34} {}\n", experiment.id, experiment.question));
                }
                for rows in &loaded.from_code {
                    let demand = if rows.on_demand { " (--peers)" } else { "" };
                    text.push_str(&format!("  {:<34} {}{demand}\n", rows.id, rows.question));
                }
                print(&text)
            }
        }
    }
}

/// Runs one suite. True where every row holds.
fn run_suite(loaded: &Loaded, args: &BenchArgs) -> Result<bool, Failure> {
    let suite = &loaded.suite;
    let scheme = args
        .scheme
        .as_ref()
        .map(|name| Scheme { name: name.clone(), options: args.options.clone() });
    let expected = match suite.against_sim && scheme.is_none() {
        true => Some(against_sim::expected(loaded, args)?),
        false => None,
    };
    let Ran { measured, stopped } = loaded.plan(args, scheme.as_ref()).run(&suite.name)?;
    if let Some(scheme) = &scheme {
        return score::print_scores(suite, scheme, &measured, args).map(|()| true);
    }
    let (ran, planned) = (measured.len(), loaded.plan(args, None).experiments().count());
    let mut rows = rows(expected.as_ref().unwrap_or(suite), measured);
    rows.iter_mut().for_each(|row| row.against_sim = expected.is_some());
    for from_code in loaded.code_rows(args).filter(|_| !stopped) {
        rows.extend((from_code.rows)(args.only.as_deref())?);
    }
    for rows in loaded.from_code.iter().filter(|rows| rows.on_demand && !args.peers) {
        let (suite, id) = (rows.suite, rows.id);
        note(&format!("{suite}: the rows {id} run programs of others, and only with --peers"));
    }
    let result = Suite { name: suite.name.clone(), about: suite.title.clone(), rows };
    if let Some(out) = &args.out {
        write_pages(&result, out)?;
    }
    print(&if args.json { format!("{}\n", result.to_json()) } else { result.table() })?;
    if let (Some(out), false) = (&args.out, args.json) {
        print(&format!("report: {}\n", out.join(format!("{}.html", suite.name)).display()))?;
    }
    if stopped {
        return Err(Failure::Work(format!(
            "interrupted; the rows are of {ran} of {planned} experiments, the last perhaps with fewer seeds"
        )));
    }
    Ok(result.holds())
}

/// The page and the rows of a suite, as files.
fn write_pages(suite: &Suite, out: &Path) -> Result<(), Failure> {
    write(&out.join(format!("{}.html", suite.name)), bench_page(suite).as_bytes())?;
    write(&out.join(format!("{}.json", suite.name)), suite.to_json().as_bytes())
}

/// A suite that comes with the program, or one in a file.
fn load(name: &str) -> Result<(SuiteFile, Files), Failure> {
    if name == "tcp" {
        return Ok((tcp::suite(), Files::Bundled(&tcp::FILES)));
    }
    if let Some(files) = bundled::find(name) {
        let suite = SuiteFile::parse(&format!("{}/suite.toml", files.folder), files.suite);
        return Ok((suite.map_err(Failure::Usage)?, Files::Bundled(files)));
    }
    let path = PathBuf::from(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Failure::Usage(format!(
            "no suite is called \"{name}\"; there are {}, speed, wire, matrix, sim-vs-lab, and files that end in .toml",
            BUNDLED.join(", ")
        )));
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::Usage(format!("{name}: cannot be read: {error}")))?;
    let suite = SuiteFile::parse(name, &text).map_err(Failure::Usage)?;
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok((suite, Files::Folder(folder)))
}

/// The rows of all experiments, with the verdicts.
fn rows(suite: &SuiteFile, measured: Vec<Measured<'_>>) -> Vec<Row> {
    let mut rows = Vec::new();
    for Measured { experiment, runs, invalid, plot } in measured {
        // What the figures of a suite in the lab were expected to be is in `suite`.
        let experiment =
            suite.experiments.iter().find(|e| e.id == experiment.id).unwrap_or(experiment);
        for (seed, why) in &invalid {
            note(&format!(
                "{}, seed {seed}: left out after {TRIES_MAX} tries: {why}",
                experiment.id
            ));
        }
        let (mut scenario, mut series) = (None, None);
        if let Some(plot) = plot {
            scenario = Some((plot.header.scenario, plot.header.text));
            series = Some(plot.series);
        }
        for file in &experiment.rows {
            let mut row = judge(file, &runs);
            if let ([], Some((_, why))) = (&runs[..], invalid.first()) {
                row.holds = false;
                row.explained = Some(format!("not judged, since no run was valid: {why}"));
            }
            row.id = file.id.clone().unwrap_or_else(|| experiment.id.clone());
            row.group.clone_from(&experiment.group);
            row.experiment.clone_from(&experiment.id);
            row.file.clone_from(&experiment.scenario);
            row.set.clone_from(&experiment.set);
            row.question.clone_from(&experiment.question);
            row.paper_says.clone_from(&experiment.paper_says);
            // The first row of an experiment carries its plots.
            row.scenario = scenario.take();
            row.series = series.take();
            row.plots = experiment.plot.into();
            rows.push(row);
        }
    }
    compare_cures(suite, &mut rows);
    rows
}

/// The verdicts of rows that must be fairer than another one. Where that one was not run they
/// cannot hold.
fn compare_cures(suite: &SuiteFile, rows: &mut [Row]) {
    let unfairness = |ratio: f64| faircast_base::math::ln(ratio).abs();
    for experiment in &suite.experiments {
        for file in &experiment.rows {
            let Some(other) = &file.fairer_than else { continue };
            let id = file.id.as_ref().unwrap_or(&experiment.id);
            let other_ours = rows.iter().find(|row| row.id == *other).map(|row| row.ours);
            let Some(row) = rows.iter_mut().find(|row| row.id == *id) else { continue };
            let fairer = other_ours.is_some_and(|o| unfairness(row.ours) < unfairness(o));
            row.holds &= fairer;
            row.explained = file.explained.clone().filter(|_| !row.holds);
            match other_ours {
                Some(ours) => accept_fairer(row, ours),
                None => row.tolerance_reason = format!("{other} was not run: {}", file.reason),
            }
        }
    }
}

/// Narrows what the row accepts to the ratios that are closer to 1 than `other`, either way.
fn accept_fairer(row: &mut Row, other: f64) {
    let (from, to) = (other.min(1.0 / other), other.max(1.0 / other));
    let (low, high) = (row.accept_low.unwrap_or(from), row.accept_high.unwrap_or(to));
    row.accept_low = finite(low.max(from));
    row.accept_high = finite(high.min(to));
}

fn finite(bound: f64) -> Option<f64> {
    Some(bound).filter(|bound| bound.is_finite())
}

/// A row with the values of all seeds and the verdict. Its id and words about its experiment are
/// left empty.
fn judge(file: &RowFile, runs: &[Run]) -> Row {
    let value = |run: &Run| (run.summary.seed, file.measure.of(&run.summary, &run.probe));
    let per_seed: Vec<(u64, f64)> = runs.iter().map(value).collect();
    let values: Vec<f64> = per_seed.iter().map(|(_, value)| *value).collect();
    let ours = file.statistic.of(&values);
    let (low, high) = file.range();
    let paper_size = file.paper.map_or(0.0, f64::abs);
    let distance = file.absolute.map(|distance| distance / paper_size);
    // A value that is not a number holds nothing.
    // What the simulator gave may stand beside it, and is no expectation.
    let measured_only =
        low == f64::NEG_INFINITY && high == f64::INFINITY && file.fairer_than.is_none();
    let holds = measured_only || (ours >= low && ours <= high);
    Row {
        title: file.title.clone(),
        unit: file.unit.clone(),
        paper: file.paper,
        ours,
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        seeds: values.len() as u32,
        tolerance: file.tolerance.or(distance.filter(|d| d.is_finite())).unwrap_or(0.0),
        accept_low: finite(low),
        accept_high: finite(high),
        holds,
        measured_only,
        measure: file.measure.text().to_string(),
        absolute: file.absolute,
        fairer_than: file.fairer_than.clone(),
        explained: file.explained.clone().filter(|_| !holds),
        tolerance_reason: file.reason.clone(),
        per_seed,
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairer_than_another_row_is_a_range_around_one() {
        for (other, want) in [
            (0.5, (Some(0.5), Some(2.0))),
            (4.0, (Some(0.25), Some(4.0))),
            // Anything above nothing is fairer than nothing.
            (0.0, (Some(0.0), None)),
        ] {
            let mut row = Row::default();
            accept_fairer(&mut row, other);
            assert_eq!((row.accept_low, row.accept_high), want, "{other}");
        }
        let mut row = Row { accept_low: Some(0.8), accept_high: Some(9.0), ..Row::default() };
        accept_fairer(&mut row, 0.5);
        assert_eq!((row.accept_low, row.accept_high), (Some(0.8), Some(2.0)));
    }
}
