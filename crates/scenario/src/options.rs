//! Names from registries, and the settings that go with them.

use faircast_proto::options::{OptionSpec, OptionValue, Options};

use crate::error::{Problem, quoted};
use crate::read::{Table, did_you_mean};
use crate::value::{Kind, Value};

/// The registered thing that the value names.
pub(crate) fn registered<'n, T>(
    value: &Value,
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
        Problem::at(value.place, message)
    })
}

/// Settings as they were written.
pub(crate) type RawOptions = Vec<(String, OptionValue)>;

/// The key `options` of a table, checked against `specs`.
pub(crate) fn options(
    table: &Table<'_>,
    specs: &[OptionSpec],
) -> Result<(Options, RawOptions), Problem> {
    let checked = table.optional("options", |value| {
        let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
        let given = value.table(&names)?;
        let mut raw = RawOptions::new();
        for (key, value) in given.entries() {
            raw.push((key.clone(), option(value).map_err(|problem| problem.within(key))?));
        }
        let checked = Options::checked(raw.iter().cloned(), specs)
            .map_err(|error| given.problem(&error.key, error.message))?;
        Ok((checked, raw))
    })?;
    Ok(checked.unwrap_or_default())
}

fn option(value: &Value) -> Result<OptionValue, Problem> {
    match &value.kind {
        Kind::Bool(flag) => Ok(OptionValue::Bool(*flag)),
        Kind::Integer(number) => Ok(OptionValue::Integer(*number)),
        Kind::Float(number) => Ok(OptionValue::Float(*number)),
        Kind::Text(text) if text.len() <= OPTION_BYTES_MAX => Ok(OptionValue::Text(text.clone())),
        _ => Err(value.wrong("true, false, a number or a short text")),
    }
}

/// Bytes of the longest text that a setting takes.
const OPTION_BYTES_MAX: usize = 128;
