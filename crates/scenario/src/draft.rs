//! Scenario before its check: settings from a file or from code.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use faircast_base::{Bitrate, Bytes, Duration};

use crate::catalog::Catalog;
use crate::error::{ErrorPlace, Place, Problem};
use crate::limits::FILE_BYTES_MAX;
use crate::overrides::{Overrides, set};
use crate::value::{Kind, SettingValue};
use crate::{Scenario, ScenarioError, parse};

/// Scenario before its check: the settings of a file (`docs/scenario.md`), read from one or made in
/// code.
///
/// Settings are named by paths of keys, as in [`Overrides::set`]. [`check`](Self::check) gives the
/// errors of a file, with the path of the setting in place of the line.
///
/// ```
/// use faircast_base::{Bitrate, Duration};
/// use faircast_scenario::{Catalog, Draft, ListEntry};
///
/// let (rate, delay) = (Bitrate::from_bits_per_s(500_000), Duration::from_millis(50));
/// let draft = Draft::new("two-nodes")
///     .set("duration", Duration::from_secs(60))
///     .add("link", ListEntry::link("a", "b", rate, delay).set("queue.kind", "droptail"))
///     .add("flow", ListEntry::flow("tcp", "tcp-sacc", "a", ["b"]));
/// let error = draft.check(&Catalog::default()).unwrap_err();
/// assert!(error.to_string().starts_with("two-nodes: link.0.queue.packets: is missing"));
/// ```
#[derive(Clone, Debug)]
pub struct Draft {
    file: PathBuf,
    /// Text of the file; `None` for settings from code.
    text: Option<String>,
    root: SettingValue,
    /// First change of a path that the settings do not have.
    problem: Option<Problem>,
}

/// Entry of a list of a scenario, such as a link or a flow: keys with values.
#[derive(Clone, Debug, Default)]
pub struct ListEntry(BTreeMap<String, SettingValue>);

impl Draft {
    /// Begins a scenario without settings. `name` stands for the file in errors and traces: files
    /// to send are relative to its folder.
    pub fn new(name: impl Into<PathBuf>) -> Self {
        let root = ListEntry::new().into();
        Self { file: name.into(), text: None, root, problem: None }
    }

    /// Reads the settings in the file `path`.
    ///
    /// # Errors
    /// The file is unreadable, above 10 MB, or not TOML in UTF-8.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let refused = |place, message| ScenarioError {
            file: path.to_owned(),
            place,
            key: String::new(),
            message,
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| {
                let message = format!("cannot be read: {error}; expected a scenario file");
                refused(ErrorPlace::File, message)
            })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let message =
                format!("is larger than a scenario may be; at most {FILE_BYTES_MAX} bytes");
            return Err(refused(ErrorPlace::File, message));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            let place = ErrorPlace::Line(u32::try_from(line).unwrap_or(u32::MAX));
            refused(place, "is not UTF-8 text; a scenario is TOML in UTF-8".to_string())
        })?;
        Self::read(path, &text)
    }

    /// Reads the settings in `text`, the content of `file`.
    ///
    /// # Errors
    /// The text is above 10 MB, or not TOML.
    pub fn read(file: &Path, text: &str) -> Result<Self, ScenarioError> {
        let root = match text.len() as u64 > FILE_BYTES_MAX {
            true => {
                let message = format!("has too much text; at most {FILE_BYTES_MAX} bytes");
                Err(Problem::at(Place::Line(1), message))
            }
            false => SettingValue::from_file(text),
        };
        let root = root.map_err(|problem| problem.into_error(file, &[]))?;
        Ok(Self { file: file.to_owned(), text: Some(text.to_string()), root, problem: None })
    }

    /// Returns the path of the file, or the name.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Changes the setting at this path, as `--set` does.
    pub fn set(mut self, path: &str, value: impl Into<SettingValue>) -> Self {
        let keys: Vec<&str> = path.split('.').collect();
        let failed = set(&mut self.root, &keys, value.into()).err();
        self.problem = self.problem.or(failed);
        self
    }

    /// Adds an entry to a list: `link`, `node`, `flow`, `relay`, `daemon`, `client` or `fault`.
    pub fn add(mut self, list: &str, entry: ListEntry) -> Self {
        let Kind::Table(root) = &mut self.root.kind else { unreachable!("the root is a table") };
        let entries =
            root.entry(list.to_string()).or_insert_with(|| Vec::<SettingValue>::new().into());
        match &mut entries.kind {
            Kind::List(entries) => entries.push(entry.into()),
            _ => {
                let problem = Problem::at(Place::Code, "has no entries; allowed: flow, link …");
                self.problem.get_or_insert(problem.within(list));
            }
        }
        self
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The first mistake: its place, the value and the allowed values.
    pub fn check(&self, catalog: &Catalog) -> Result<Scenario, ScenarioError> {
        self.check_with(&Overrides::default(), catalog)
    }

    /// Checks all settings after changes by texts.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn check_with(
        &self,
        overrides: &Overrides,
        catalog: &Catalog,
    ) -> Result<Scenario, ScenarioError> {
        let checked = || {
            if let Some(problem) = &self.problem {
                return Err(problem.clone());
            }
            let mut root = self.root.clone();
            overrides.apply(&mut root)?;
            let scenario = parse::scenario(&root, &self.file, overrides, catalog)?;
            Ok((root, scenario))
        };
        let (root, mut scenario) =
            checked().map_err(|problem| problem.into_error(&self.file, &overrides.set))?;
        scenario.size_credit_buffers();
        scenario.text = match &self.text {
            Some(text) => overrides.noted(text),
            None => root.to_toml(),
        };
        Ok(scenario)
    }
}

impl ListEntry {
    /// Begins an entry without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a link in both directions.
    pub fn link(a: &str, b: &str, rate: Bitrate, delay: Duration) -> Self {
        Self::new().set("between", [a, b]).set("rate", rate).set("delay", delay)
    }

    /// Returns a flow of a protocol from one sender.
    pub fn flow<'a>(
        name: &str,
        protocol: &str,
        from: &str,
        to: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let to: Vec<&str> = to.into_iter().collect();
        let flow = Self::new().set("name", name).set("protocol", protocol);
        flow.set("from", from).set("to", to)
    }

    /// Changes the setting at this path within the entry: `queue.packets`, `options.min_rto`.
    pub fn set(self, path: &str, value: impl Into<SettingValue>) -> Self {
        let (mut table, value) = (SettingValue::from(self), value.into());
        let keys: Vec<&str> = path.split('.').collect();
        let failed = set(&mut table, &keys, value.clone()).is_err();
        let Kind::Table(mut map) = table.kind else { unreachable!("a table stays a table") };
        if failed {
            // A path through a single value is an unknown key, which the check reports.
            map.insert(path.to_string(), value);
        }
        Self(map)
    }
}

impl SettingValue {
    fn of(kind: Kind) -> Self {
        Self { kind, place: Place::Code }
    }

    /// Returns a table as the text of a file: single settings first, then the entries of lists.
    fn to_toml(&self) -> String {
        let Kind::Table(root) = &self.kind else { return self.inline() };
        let is_entries = |value: &SettingValue| match &value.kind {
            Kind::List(items) => items.iter().all(|it| matches!(it.kind, Kind::Table(_))),
            _ => false,
        };
        let (lists, single): (Vec<_>, Vec<_>) = root.iter().partition(|(_, it)| is_entries(it));
        let mut text = String::new();
        for (key, value) in single {
            text += &format!("{key} = {}\n", value.inline());
        }
        for (list, value) in lists {
            let Kind::List(entries) = &value.kind else { continue };
            for entry in entries {
                text += &format!("\n[[{list}]]\n");
                let Kind::Table(entry) = &entry.kind else { continue };
                entry.iter().for_each(|(key, it)| text += &format!("{key} = {}\n", it.inline()));
            }
        }
        text
    }

    fn inline(&self) -> String {
        match &self.kind {
            Kind::Text(text) => {
                let escaped = text.chars().map(|c| match c {
                    '"' | '\\' => format!("\\{c}"),
                    c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
                    c => c.to_string(),
                });
                format!("\"{}\"", escaped.collect::<String>())
            }
            Kind::Float(number) => format!("{number:?}"),
            Kind::List(items) => {
                let items: Vec<String> = items.iter().map(Self::inline).collect();
                format!("[{}]", items.join(", "))
            }
            Kind::Table(map) => {
                let all: Vec<String> =
                    map.iter().map(|(key, value)| format!("{key} = {}", value.inline())).collect();
                format!("{{ {} }}", all.join(", "))
            }
            Kind::Integer(_) | Kind::Bool(_) | Kind::Other(..) => self.shown(),
        }
    }
}

macro_rules! value_from {
    ($($from:ty: $value:ident => $kind:expr;)*) => {$(
        impl From<$from> for SettingValue {
            fn from($value: $from) -> Self {
                Self::of($kind)
            }
        }
    )*};
}

value_from! {
    &str: text => Kind::Text(text.to_string());
    String: text => Kind::Text(text);
    bool: flag => Kind::Bool(flag);
    i32: number => Kind::Integer(number.into());
    u32: number => Kind::Integer(number.into());
    i64: number => Kind::Integer(number);
    f64: number => Kind::Float(number);
    Duration: span => Kind::Text(span.to_string());
    Bitrate: rate => Kind::Text(rate.to_string());
    Bytes: size => Kind::Text(size.to_string());
    ListEntry: entry => Kind::Table(entry.0);
}

impl<T: Into<SettingValue>> From<Vec<T>> for SettingValue {
    fn from(items: Vec<T>) -> Self {
        Self::of(Kind::List(items.into_iter().map(Into::into).collect()))
    }
}

impl<T: Into<SettingValue>, const N: usize> From<[T; N]> for SettingValue {
    fn from(items: [T; N]) -> Self {
        Vec::from(items).into()
    }
}

#[cfg(test)]
mod tests {
    use faircast_proto::catalog;

    use super::*;

    fn catalog() -> Catalog {
        Catalog { protocols: catalog::stacks().collect(), ..Catalog::default() }
    }

    fn link(a: &str, b: &str) -> ListEntry {
        ListEntry::link(a, b, Bitrate::from_bits_per_s(1_500_000), Duration::from_millis(10))
    }

    fn draft() -> Draft {
        let tcp = ListEntry::flow("tcp", "tcp-sack", "s", ["a"]).set("options.min_rto", "1 s");
        Draft::new("code")
            .set("title", "Is a \"draft\" a\\file?")
            .set("duration", Duration::from_secs(60))
            .add("link", link("s", "r").set("queue.kind", "droptail").set("queue.packets", 20))
            .add("link", link("r", "a").set("loss", 0.01))
            .add("flow", tcp.set("packet", Bytes::new(1000)).set("count", 2))
    }

    #[test]
    fn a_draft_from_code_is_the_scenario_of_its_own_text() {
        let made = draft().check(&catalog()).unwrap();
        let read = Draft::read(Path::new("code"), &made.text).unwrap();
        let read = read.check(&catalog()).unwrap();
        let shown = |of: &Scenario| {
            let Scenario { title, duration, nodes, links, flows, .. } = of;
            format!("{:?}", (title, duration, nodes, links, flows))
        };
        assert_eq!(shown(&made), shown(&read), "{}", made.text);
        assert_eq!((made.flows.len(), made.links.len()), (2, 4));
    }

    #[test]
    fn mistakes_in_code_are_those_of_a_file_with_paths_for_lines() {
        for (draft, want) in [
            (
                draft().set("flow.tcp.protocol", "tcp-sac"),
                "code: flow.0.protocol: unknown protocol",
            ),
            (draft().set("durtion", 1), "code: durtion: unknown key \"durtion\" (did you mean"),
            (draft().set("link.7.loss", 0.1), "code: link.7: is no entry of the list"),
            (draft().set("link.0.loss", 2.0), "code: link.0.loss: is 2"),
            (
                draft().add("link", link("s", "r")),
                "is a second link from \"s\" to \"r\", after that of",
            ),
            (
                draft().add("flow", ListEntry::new().set("name", "x").set("name.y", 1)),
                "code: flow.1.name.y: unknown key \"name.y\"",
            ),
        ] {
            let error = draft.check(&catalog()).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
