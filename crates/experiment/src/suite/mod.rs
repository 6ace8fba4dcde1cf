//! Suites: scenarios with expected figures, run with several seeds and judged.

mod against_sim;
mod bundled;
mod file;
mod judge;
pub(crate) mod measure;
mod offline;
mod oracle;
mod overlay;
pub(crate) mod probe;
pub(crate) mod runner;
pub(crate) mod score;
mod tcp;
#[cfg(test)]
mod tests;
mod worked;
mod worth;

use std::path::PathBuf;

use faircast_report::{Row, Source, Suite, Verdicts, bench_page};
use faircast_trace::On;

pub(crate) use bundled::{BUNDLED, bundled};
pub(crate) use file::{Bundled, Experiment, SuiteFile, from_toml, plain};

use crate::Error;
use crate::files::read_page;
use crate::monitor::Monitor;
use crate::request::{Request, Results, listing};
use runner::{Files, Ran, Runner, Scheme};

/// Suite with the files beside it.
pub struct LoadedSuite {
    suite: SuiteFile,
    files: Files,
    in_lab: bool,
    from_code: Vec<&'static FromCode>,
}

/// Rows of a suite that code computes without a scenario.
struct FromCode {
    suite: &'static str,
    id: &'static str,
    group: &'static str,
    question: &'static str,
    is_chosen: fn(Option<&str>) -> bool,
    rows: fn(Option<&str>) -> Result<Vec<Row>, Error>,
}

const FROM_CODE: &[FromCode] = &[
    FromCode {
        suite: "tcp",
        id: "droplist",
        group: "Drop lists: every retransmission of ns-2",
        question: "Does TCP retransmit the same packets at the same moments as ns-2?",
        is_chosen: oracle::is_chosen,
        rows: oracle::rows,
    },
    FromCode {
        suite: "tfmcc",
        id: worked::ID,
        group: "Worked by hand",
        question: "Do the equation and the loss intervals give what RFC 4654 makes of the same packets?",
        is_chosen: |only| !worked::rows(only).is_empty(),
        rows: |only| Ok(worked::rows(only)),
    },
];

pub(crate) fn no_session(scheme: &str, suite: &str) -> Error {
    Error::Usage(format!(
        "--scheme {scheme}: the suite \"{suite}\" has no session that a scheme could replace; try \
         fairness"
    ))
}

impl LoadedSuite {
    pub(crate) fn new(name: &str, request: &Request) -> Result<Self, Error> {
        let (mut suite, files) = load(name)?;
        if let (Some(scheme), None) = (&request.scheme, &suite.session) {
            return Err(no_session(scheme, &suite.name));
        }
        let in_lab = request.on == On::Lab && !suite.against_sim;
        if in_lab {
            suite = against_sim::in_lab(&suite, request)?;
        }
        let only = request.only.as_deref();
        let from_code = FROM_CODE
            .iter()
            .filter(|rows| rows.suite == name && (rows.is_chosen)(only) && request.on == On::Sim);
        Ok(Self { suite, files, in_lab, from_code: from_code.collect() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.suite.name
    }

    pub(crate) fn is_empty(&self, request: &Request) -> bool {
        self.from_code.is_empty() && self.experiments(request).next().is_none()
    }

    pub(crate) fn list(&self, request: &Request) -> String {
        let experiments =
            self.experiments(request).map(|e| (&*e.group, &*e.id, e.question.clone()));
        let last = self.experiments(request).last().map_or("", |e| &*e.group);
        let from_code =
            self.from_code.iter().map(|rows| (last, rows.id, rows.question.to_string()));
        let rows: Vec<_> = experiments.chain(from_code).collect();
        let rows = rows.iter().map(|(group, id, question)| (*group, *id, &**question));
        listing(&self.suite.name, &self.suite.title, rows)
    }

    fn experiments<'a>(&'a self, request: &'a Request) -> impl Iterator<Item = &'a Experiment> {
        self.suite.experiments(request.only.as_deref(), false)
    }

    fn runner<'a>(
        &'a self,
        request: &'a Request,
        scheme: Option<&'a Scheme>,
        monitor: &'a dyn Monitor,
    ) -> Runner<'a> {
        Runner {
            suite: &self.suite,
            files: &self.files,
            seeds: request.seeds,
            scheme,
            only: request.only.as_deref(),
            plots: request.out.is_some(),
            on: if self.suite.against_sim || self.in_lab { On::Lab } else { On::Sim },
            side_by_side: request.jobs.is_some(),
            monitor,
        }
    }

    pub(crate) fn run(&self, request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
        let suite = &self.suite;
        let mut verdicts = match &request.document {
            Some(path) => {
                Some(Verdicts::parse(&read_page(path, Verdicts::HEADING)?.unwrap_or_default()))
            }
            None => None,
        };
        let scheme = request
            .scheme
            .as_ref()
            .map(|name| Scheme { name: name.clone(), options: request.options.clone() });
        // The simulator runs first, so that completed runs of a stopped lab can be judged.
        let simulated = match (suite.against_sim || self.in_lab) && scheme.is_none() {
            true => Some(against_sim::simulated(self, request, monitor)?),
            false => None,
        };
        let expected = match &simulated {
            Some(simulated) if suite.against_sim => Some(against_sim::expected(suite, simulated)),
            _ => None,
        };
        let runner = self.runner(request, scheme.as_ref(), monitor);
        let Ran { measured, stopped } = runner.run(&suite.name)?;
        if let Some(scheme) = &scheme {
            return Ok(score::results(suite, scheme, &measured));
        }
        let (ran, planned) = (measured.len(), self.experiments(request).count());
        let mut rows = judge::rows(expected.as_ref().unwrap_or(suite), measured, monitor);
        for row in &mut rows {
            row.expected.against_sim = expected.is_some();
            row.expected.simulated = simulated.as_ref().and_then(|all| all.get(&row.id).copied());
        }
        for from_code in self.from_code.iter().filter(|_| !stopped) {
            let own = (from_code.rows)(request.only.as_deref())?.into_iter().map(|row| Row {
                source: Source {
                    group: from_code.group.into(),
                    experiment: from_code.id.into(),
                    question: from_code.question.into(),
                    ..row.source
                },
                ..row
            });
            rows.extend(own);
        }
        let in_lab = suite.in_lab().experiments.iter().map(|of| of.rows.len()).sum::<usize>();
        if in_lab > 0 && !self.in_lab {
            let name = &suite.name;
            monitor.note(&format!(
                "{name}: rows that run in the lab as well: {in_lab}; take --on lab, as root"
            ));
        }
        let result = Suite { name: suite.name.clone(), about: suite.title.clone(), rows };
        let page = format!("{}.html", suite.name);
        let mut files = Vec::new();
        if request.out.is_some() {
            files.push((page.clone(), bench_page(&result)));
            files.push((format!("{}.json", suite.name), result.to_json()));
        }
        let stopped = stopped.then(|| {
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
}

fn load(name: &str) -> Result<(SuiteFile, Files), Error> {
    if name == "tcp" {
        return Ok((tcp::suite(), Files::Bundled(&tcp::FILES)));
    }
    if let Some(files) = bundled::find(name) {
        let suite = SuiteFile::parse(&format!("{}/suite.toml", files.folder), files.suite);
        return Ok((suite.map_err(Error::Usage)?, Files::Bundled(files)));
    }
    let path = PathBuf::from(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Error::Usage(format!(
            "no suite is called \"{name}\"; there are {}, tram-scale, speed, wire, matrix, sim-vs-lab, and files that end in .toml",
            BUNDLED.join(", ")
        )));
    }
    let (text, files) = Files::beside(&path)?;
    Ok((SuiteFile::parse(name, &text).map_err(Error::Usage)?, files))
}
