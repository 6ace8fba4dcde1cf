//! Names in registries, and their options.

use std::io::Read;
use std::path::Path;

use faircast_proto::options::{OptionKind, OptionSpec, OptionValue, Options, did_you_mean};

use crate::error::{Problem, quoted};
use crate::read::Table;
use crate::value::{Kind, SettingValue};

pub(crate) fn registered<'n, T>(
    value: &SettingValue,
    what: &str,
    all: impl Iterator<Item = (&'n str, T)> + Clone,
) -> Result<T, Problem> {
    let text = value.text()?;
    all.clone().find(|(name, _)| *name == text).map(|(_, found)| found).ok_or_else(|| {
        let names: Vec<&str> = all.map(|(name, _)| name).collect();
        let message = format!(
            "unknown {what} {}{}; allowed: {}",
            quoted(text),
            did_you_mean(text, names.iter().copied()),
            names.join(", ")
        );
        value.problem(message)
    })
}

pub(crate) type RawOptions = Vec<(String, OptionValue)>;

pub(crate) fn options(
    table: &Table<'_>,
    (name, specs): (&str, &[OptionSpec]),
    files: &Files<'_>,
) -> Result<(Options, RawOptions), Problem> {
    let checked = table.optional("options", |value| {
        let given = value.any_table()?;
        let is_known = |key: &str| specs.iter().any(|spec| spec.name == key);
        if let Some((key, value)) = given.entries().into_iter().find(|(key, _)| !is_known(key)) {
            let hint = did_you_mean(key, specs.iter().map(|spec| spec.name));
            let allowed = allowed(name, specs);
            let message = format!("unknown key {}{hint}; {allowed}", quoted(key));
            return Err(value.problem(message).within(key));
        }
        let mut raw = RawOptions::new();
        for (key, value) in given.entries() {
            let spec = specs.iter().find(|spec| spec.name == *key);
            let read = match spec.map(|spec| spec.kind) {
                Some(OptionKind::File { max_bytes }) => files.read(value, max_bytes),
                _ => option(value),
            };
            raw.push((key.clone(), read.map_err(|problem| problem.within(key))?));
        }
        let checked = Options::checked(raw.iter().cloned(), specs)
            .map_err(|error| given.problem(&error.key, error.message))?;
        Ok((checked, raw))
    })?;
    Ok(checked.unwrap_or_default())
}

#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) runs_programs: bool,
}

impl Files<'_> {
    fn read(&self, value: &SettingValue, max_bytes: u32) -> Result<OptionValue, Problem> {
        let path = self.folder.join(value.text()?);
        if !self.runs_programs {
            let message = "cannot be run: this faircast was built without programs of sessions; \
                           build it with --features programs";
            return Err(value.problem(message));
        }
        // Reads a byte beyond the limit, but never an endless file.
        let bytes = std::fs::File::open(&path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(u64::from(max_bytes) + 1).read_to_end(&mut bytes).map(|_| bytes)
        });
        match bytes {
            Ok(bytes) if (1..=max_bytes as usize).contains(&bytes.len()) => {
                Ok(OptionValue::Bytes(bytes.into()))
            }
            Ok(_) => Err(value.wrong(format!("a file of 1 to {max_bytes} bytes"))),
            Err(error) => {
                let message = format!(
                    "is {}, which cannot be read: {error}; expected a file, its path relative to the \
                     scenario",
                    value.shown()
                );
                Err(value.problem(message))
            }
        }
    }
}

fn allowed(name: &str, specs: &[OptionSpec]) -> String {
    match specs.len() {
        0 => "allowed: none".to_string(),
        1..=OPTIONS_LISTED_MAX => {
            let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
            format!("allowed: {}", names.join(", "))
        }
        many => format!("\"faircast schemes {name}\" lists all {many}"),
    }
}

fn option(value: &SettingValue) -> Result<OptionValue, Problem> {
    match &value.kind {
        Kind::Bool(flag) => Ok(OptionValue::Bool(*flag)),
        Kind::Integer(number) => Ok(OptionValue::Integer(*number)),
        Kind::Float(number) => Ok(OptionValue::Float(*number)),
        Kind::Text(text) if text.len() <= OPTION_BYTES_MAX => Ok(OptionValue::Text(text.clone())),
        _ => Err(value.wrong("true, false, a number or a short text")),
    }
}

const OPTION_BYTES_MAX: usize = 128;
const OPTIONS_LISTED_MAX: usize = 8;
