//! Requests and results of measurements.

use std::path::{Path, PathBuf};

use faircast_report::{Row, Suite, bench_page, wrap};

use crate::{Error, files};

/// Request for measurements. Most settings apply to some of them only.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Request {
    /// Text that the ids of the selected cases contain.
    pub only: Option<String>,
    pub scheme: Option<String>,
    /// Options of the scheme, `KEY=VALUE`.
    pub options: Vec<String>,
    pub own: PathBuf,
    /// Program under attack, instead of `own`.
    pub program: Option<PathBuf>,
    /// Bytes that `wire` sends.
    pub size: u64,
    /// Rounds of `wire`.
    pub rounds: u32,
}

impl Request {
    pub(crate) fn scheme_words(&self) -> Vec<String> {
        let scheme = self.scheme.iter().map(|scheme| ["--scheme", scheme]);
        let options = self.options.iter().map(|option| ["--option", option]);
        scheme.chain(options).flatten().map(str::to_string).collect()
    }
}

/// Results of a benchmark.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Results {
    pub table: String,
    pub json: String,
    /// Files to store: name and text.
    pub files: Vec<(String, String)>,
    /// Name of the file to read first.
    pub page: Option<String>,
    /// Page of the documentation, if requested.
    pub document: Option<String>,
    /// Reason for incomplete results; `None` if they are complete.
    pub stopped: Option<String>,
    pub holds: bool,
}

impl Results {
    pub(crate) fn of(name: &str, title: &str, rows: Vec<Row>) -> Self {
        let suite = Suite { name: name.into(), about: title.into(), rows };
        let json = suite.to_json() + "\n";
        let page = (format!("{name}.html"), bench_page(&suite));
        Self {
            table: suite.table(),
            files: vec![page, (format!("{name}.json"), json.clone())],
            json,
            holds: suite.holds(),
            ..Self::default()
        }
    }

    /// Writes the files into an existing folder.
    pub fn write(&self, out: &Path) -> Result<(), Error> {
        self.files.iter().try_for_each(|(name, text)| files::write(&out.join(name), text))
    }
}

pub(crate) fn chosen<T>(
    suite: &str,
    what: &str,
    all: impl IntoIterator<Item = T>,
    id: impl Fn(&T) -> &str,
    only: Option<&str>,
) -> Result<Vec<T>, Error> {
    let only = only.unwrap_or_default();
    let (chosen, others): (Vec<T>, Vec<T>) =
        all.into_iter().partition(|one| id(one).contains(only));
    if chosen.is_empty() {
        let all = others.iter().map(id).collect::<Vec<_>>().join(", ");
        let message = format!("--only {only}: {suite} has no such {what}; there are {all}");
        return Err(Error::Usage(message));
    }
    Ok(chosen)
}

/// Width of the lists, in columns; every terminal has as many.
pub const COLUMNS: usize = 80;

/// Returns a list of cases: group, id and question of each, below the question of all.
pub fn listing<'a>(
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
