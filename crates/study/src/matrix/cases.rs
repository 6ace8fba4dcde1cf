//! Cases of a matrix, from a TOML file (example: docs/research.md), as scenarios of any suite.

use std::collections::BTreeSet;

use faircast_scenario::{Catalog, Scenario};
use serde::Deserialize;

use crate::suite::measure::Measure;
use crate::suite::{Experiment, from_toml, plain};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MatrixFile {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) seeds: u32,
    pub(crate) session: String,
    #[serde(rename = "case")]
    pub(crate) cases: Vec<Case>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) question: String,
    pub(crate) scenario: String,
    #[serde(default)]
    pub(crate) set: Vec<String>,
    pub(crate) session: Option<String>,
    /// Flows that a scheme replaces, if there are more than the judged flow.
    #[serde(default)]
    pub(crate) sessions: Vec<String>,
    /// Throughput ratios that are 1 if the session is fair.
    #[serde(default)]
    pub(crate) fairness: Vec<Measure>,
    /// Bottlenecks, `from>to`, whose utilisation is measured.
    #[serde(default)]
    pub(crate) bottlenecks: Vec<String>,
    #[serde(default)]
    pub(crate) alone: Vec<String>,
    /// Share of the slowest receiver in bit/s, if it is known without a run.
    pub(crate) fair_bps: Option<f64>,
    /// Interval in which settling and variation are measured, in s; by default the whole run.
    pub(crate) span_s: Option<[u32; 2]>,
    pub(crate) seeds: Option<u32>,
    pub(crate) note: Option<String>,
    pub(crate) quick: Option<Vec<String>>,
    #[serde(skip)]
    sends_objects: bool,
    /// True if the case has a copy in which sessions send objects.
    #[serde(default)]
    pub(crate) objects: bool,
    /// True to leave out sessions under credits: with a relay at every router a run takes hours.
    #[serde(default)]
    pub(crate) without_credits: bool,
}

impl MatrixFile {
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, String> {
        let mut matrix: Self = from_toml(file, text)?;
        for case in std::mem::take(&mut matrix.cases) {
            let twin = case.objects.then(|| case.with_objects(&matrix));
            matrix.cases.extend([Some(case), twin].into_iter().flatten());
        }
        matrix.check().map_err(|problem| format!("{file}: {problem}"))?;
        Ok(matrix)
    }

    fn check(&self) -> Result<(), String> {
        plain("name", &self.name)?;
        let mut ids = BTreeSet::new();
        for case in &self.cases {
            let id = &case.id;
            // Pages of runs are named after the id.
            plain("id", id)?;
            if !ids.insert(id) {
                return Err(format!("case \"{id}\": the id is there twice"));
            }
            let wrong = |problem: &str| Err(format!("case \"{id}\": {problem}"));
            if self.seeds == 0 || case.seeds == Some(0) {
                return wrong("seeds is 0; expected at least 1");
            }
            if !case.alone.is_empty() && case.fair_bps.is_some() {
                return wrong("alone and fair_bps are two answers to one question; give one");
            }
            if case.fair_bps.is_some_and(|bps| !(bps > 0.0 && bps.is_finite())) {
                return wrong("fair_bps must be more than 0");
            }
            if case.span_s.is_some_and(|[from, to]| from >= to) {
                return wrong("span_s must rise");
            }
        }
        if ids.is_empty() {
            return Err("has no case; expected [[case]]".into());
        }
        Ok(())
    }
}

/// Option of protocols that distinguish streams and objects: the kind to send.
const DELIVERY: &str = "delivery";

impl Case {
    fn with_objects(&self, matrix: &MatrixFile) -> Self {
        let mut case = self.clone();
        let delivery = |session: String| format!("flow.{session}.options.{DELIVERY}=object");
        case.sends_objects = true;
        case.id.push_str("-object");
        case.question.push_str(" Sent as an object.");
        case.set.extend(self.replaced(matrix).into_iter().map(delivery));
        case
    }

    /// True if `protocol` can run the case: not all protocols distinguish objects and streams.
    pub(crate) fn is_for(&self, protocol: &str, catalog: &Catalog) -> bool {
        let Some(stack) = catalog.stack(protocol) else { return true };
        let excluded = self.without_credits && stack.hop.is_some();
        !excluded && (!self.sends_objects || stack.has_option(DELIVERY))
    }

    pub(crate) fn session<'a>(&'a self, matrix: &'a MatrixFile) -> &'a str {
        self.session.as_deref().unwrap_or(&matrix.session)
    }

    fn replaced(&self, matrix: &MatrixFile) -> Vec<String> {
        match self.sessions.is_empty() {
            true => vec![self.session(matrix).to_string()],
            false => self.sessions.clone(),
        }
    }

    pub(crate) fn experiment(&self, matrix: &MatrixFile, quick: bool) -> Experiment {
        let mut set = self.set.clone();
        if quick {
            set.extend(self.quick.iter().flatten().cloned());
        }
        Experiment {
            id: self.id.clone(),
            group: self.group.clone(),
            question: self.question.clone(),
            scenario: self.scenario.clone(),
            set,
            sessions: self.replaced(matrix),
            seeds: self.seeds,
            judges_schemes: true,
            bottlenecks: self.bottlenecks.clone(),
            ..Experiment::default()
        }
    }

    pub(crate) fn alone(&self, matrix: &MatrixFile, quick: bool) -> Option<Experiment> {
        let mut experiment = self.experiment(matrix, quick);
        experiment.set.extend(self.alone.iter().cloned());
        (!self.alone.is_empty()).then_some(experiment)
    }

    pub(crate) fn check(&self, matrix: &MatrixFile, scenario: &Scenario) -> Result<(), String> {
        let id = &self.id;
        let session = self.session(matrix);
        if !scenario.flows.iter().any(|flow| flow.name == session) {
            let names: Vec<&str> = scenario.flows.iter().map(|flow| &*flow.name).take(20).collect();
            let names = names.join(", ");
            return Err(format!(
                "case \"{id}\": session: \"{session}\" is no flow of its scenario; there are {names}"
            ));
        }
        for measure in &self.fairness {
            measure
                .check(scenario)
                .map_err(|problem| format!("case \"{id}\": fairness: {problem}"))?;
        }
        let ends_s = scenario.duration.as_secs_f64();
        match self.span_s {
            Some([_, to]) if f64::from(to) > ends_s => {
                Err(format!("case \"{id}\": span_s: its scenario ends at {ends_s} s"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = 'm'\ntitle = 'x'\nseeds = 2\nsession = 'mcc'\n[[case]]\nid = 'a'\n\
        question = '?'\nscenario = 's'\nset = ['x=1']\nalone = ['y=2']\nquick = ['z=3']\n";

    #[test]
    fn a_case_becomes_an_experiment_and_one_for_the_slowest_receiver_alone() {
        let matrix = MatrixFile::parse("f", GOOD).unwrap();
        let case = &matrix.cases[0];
        let plain = case.experiment(&matrix, false);
        assert_eq!((plain.set.join(" "), plain.sessions), ("x=1".into(), vec!["mcc".to_string()]));
        assert_eq!(case.experiment(&matrix, true).set.join(" "), "x=1 z=3");
        assert_eq!(case.alone(&matrix, true).unwrap().set.join(" "), "x=1 z=3 y=2");
        let matrix = MatrixFile::parse("f", &GOOD.replace("alone = ['y=2']\n", "")).unwrap();
        assert!(matrix.cases[0].alone(&matrix, false).is_none());
    }

    #[test]
    fn a_case_with_objects_is_there_twice_and_the_second_differs_in_delivery_alone() {
        let matrix = MatrixFile::parse("f", &GOOD.replace("id = 'a'", "id = 'a'\nobjects = true"));
        let matrix = matrix.unwrap();
        let ids: Vec<&str> = matrix.cases.iter().map(|case| &*case.id).collect();
        assert_eq!(ids, ["a", "a-object"]);
        let [stream, object] =
            [0, 1].map(|place| matrix.cases[place].alone(&matrix, true).unwrap());
        assert_eq!(stream.set.join(" "), "x=1 z=3 y=2");
        assert_eq!(object.set.join(" "), "x=1 flow.mcc.options.delivery=object z=3 y=2");
        let both = GOOD.replace("id = 'a'", "id = 'a'\nobjects = true\nsessions = ['mcc', 'b']");
        let set = MatrixFile::parse("f", &both).unwrap().cases[1].set.join(" ");
        assert!(set.ends_with("flow.mcc.options.delivery=object flow.b.options.delivery=object"));
        let again = format!("{both}[[case]]\nid = 'a-object'\nquestion = '?'\nscenario = 's'\n");
        assert!(MatrixFile::parse("f", &again).unwrap_err().contains("there twice"));
    }

    #[test]
    fn mistakes_are_one_line() {
        for (from, to, want) in [
            ("seeds = 2", "seeds = 0", "f: case \"a\": seeds is 0"),
            ("id = 'a'", "id = '../a'", "f: id: is \"../a\""),
            ("name = 'm'", "name = ''", "f: name: is \"\""),
            ("alone = ", "alon = ", "f:10: unknown field"),
            ("set = ['x=1']", "fair_bps = 1.0", "two answers to one question"),
            ("alone = ['y=2']", "fair_bps = 0.0", "more than 0"),
            ("alone = ['y=2']", "span_s = [9, 9]", "span_s must rise"),
            ("set = ['x=1']", "fairness = ['speed a']", "no quantity \"speed\""),
        ] {
            let error = MatrixFile::parse("f", &GOOD.replace(from, to)).unwrap_err();
            assert!(error.contains(want) && !error.contains('\n'), "{to}: {error}");
        }
        let twice = format!("{GOOD}{}", &GOOD[GOOD.find("[[case]]").unwrap()..]);
        assert!(MatrixFile::parse("f", &twice).unwrap_err().contains("there twice"));
        let none = &GOOD[..GOOD.find("[[case]]").unwrap()];
        assert!(MatrixFile::parse("f", none).is_err());
    }
}
