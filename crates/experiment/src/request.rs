//! Requests and results that all benchmarks share.

use std::path::{Path, PathBuf};

use faircast_report::wrap;
use faircast_trace::On;

use crate::{Error, files};

/// Request to benchmarks. Most settings concern some of them alone.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Run only what has this in its id.
    pub only: Option<String>,
    /// Seeds for each experiment, instead of the suite's.
    pub seeds: Option<u32>,
    /// Where experiments run.
    pub on: On,
    /// Runs at the same time, where a number was given.
    pub jobs: Option<u16>,
    /// The scheme to judge, or to send with; several for the matrix, with commas between.
    pub scheme: Option<String>,
    /// Options of that scheme, `KEY=VALUE`.
    pub options: Vec<String>,
    /// Where results are to be written: what takes longer to make is made only where they are.
    pub out: Option<PathBuf>,
    /// The program `faircast` of this build, which is run for what takes a process of its own.
    pub own: PathBuf,
    /// The program that is attacked instead of it.
    pub program: Option<PathBuf>,
    /// Bytes that the suite `wire` sends.
    pub size: u64,
    /// Rounds of the suite `wire`.
    pub rounds: u32,
    /// Whether the matrix has fewer and shorter cases.
    pub quick: bool,
    /// The file with the matrix's cases, instead of its own.
    pub cases: Option<PathBuf>,
    /// Where the matrix is wanted as a page of the documentation.
    pub document: Option<PathBuf>,
}

impl Request {
    /// Arguments of `faircast send` for the scheme and its options.
    pub(crate) fn scheme_words(&self) -> Vec<String> {
        let scheme = self.scheme.iter().map(|scheme| ["--scheme", scheme]);
        let options = self.options.iter().map(|option| ["--option", option]);
        scheme.chain(options).flatten().map(str::to_string).collect()
    }
}

/// Results of a benchmark.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// For people.
    pub table: String,
    /// For programs.
    pub json: String,
    /// Files to keep, by their names.
    pub files: Vec<(String, String)>,
    /// The name of the one that a person looks at first.
    pub page: Option<String>,
    /// The page of the documentation, where it was asked for.
    pub document: Option<String>,
    /// Why it is not all; `None` where it is.
    pub stopped: Option<String>,
    /// Whether every row holds.
    pub holds: bool,
}

impl Results {
    /// Writes the files into a folder, which is there.
    pub fn write(&self, out: &Path) -> Result<(), Error> {
        self.files.iter().try_for_each(|(name, text)| files::write(&out.join(name), text))
    }
}

/// Returns the items of `all` whose ids contain `only`.
pub(crate) fn chosen<T>(
    suite: &str,
    what: &str,
    all: impl IntoIterator<Item = T>,
    id: impl Fn(&T) -> &str,
    only: Option<&str>,
) -> Result<Vec<T>, Error> {
    let Some(only) = only else { return Ok(all.into_iter().collect()) };
    let (chosen, others): (Vec<T>, Vec<T>) =
        all.into_iter().partition(|one| id(one).contains(only));
    match chosen.is_empty() {
        true => {
            let all: Vec<&str> = others.iter().map(id).collect();
            let all = all.join(", ");
            Err(Error::Usage(format!("--only {only}: {suite} has no such {what}; there are {all}")))
        }
        false => Ok(chosen),
    }
}

/// Columns of the lists, as many as every terminal has.
pub(crate) const COLUMNS: usize = 80;

pub(crate) fn listing<'a>(
    name: &str,
    title: &str,
    rows: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let mut text = wrap(&format!("{name}: {title}"), COLUMNS).join("\n") + "\n";
    let width =
        rows.iter().map(|(_, id, _)| id.chars().count()).max().unwrap_or(0).min(COLUMNS / 2);
    let mut last = "";
    for (group, id, question) in rows {
        if group != last {
            last = group;
            wrap(group, COLUMNS - 2).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        let mut lines = wrap(question, COLUMNS - 5 - width).into_iter();
        let first = lines.next().unwrap_or_default();
        text.push_str(format!("    {id:<width$} {first}").trim_end());
        text.push('\n');
        lines.for_each(|line| text.push_str(&format!("    {:<width$} {line}\n", "")));
    }
    text
}
