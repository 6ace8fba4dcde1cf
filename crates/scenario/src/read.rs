//! Typed access to the tree of values: each mistake names its key, the value and what is allowed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use faircast_base::{Duration, Quantity};
use faircast_proto::options::did_you_mean;

use crate::error::{Place, Problem, quoted};
use crate::value::{Kind, SettingValue};

/// Table whose keys are known to be allowed.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    map: &'a BTreeMap<String, SettingValue>,
    pub(crate) place: Place,
}

impl<'a> Table<'a> {
    pub(crate) fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a SettingValue) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        self.map
            .get(key)
            .map(|value| read(value).map_err(|problem| problem.within(key)))
            .transpose()
    }

    /// Reads a required key; `example` shows its form.
    pub(crate) fn required<T>(
        &self,
        key: &str,
        example: &str,
        read: impl FnOnce(&'a SettingValue) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.optional(key, read)?.ok_or_else(|| {
            let message = format!("is missing; expected for example {key} = {example}");
            Problem::at(self.place, message).within(key)
        })
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        let place = self.map.get(key).map_or(self.place, |value| value.place);
        Problem::at(place, message).within(key)
    }

    pub(crate) fn entries(&self) -> Vec<(&'a String, &'a SettingValue)> {
        let mut entries: Vec<_> = self.map.iter().collect();
        entries.sort_by_key(|(_, value)| match value.place {
            Place::Line(number) => (0, number),
            Place::Set(index) => (1, index),
            Place::Code => (2, 0),
        });
        entries
    }
}

impl SettingValue {
    pub(crate) fn table(&self, keys: &[&str]) -> Result<Table<'_>, Problem> {
        let table = self.any_table()?;
        match table.entries().into_iter().find(|(key, _)| !keys.contains(&key.as_str())) {
            None => Ok(table),
            Some((key, value)) => {
                let hint = did_you_mean(key, keys.iter().copied());
                let allowed = if keys.is_empty() { "none".to_string() } else { keys.join(", ") };
                let message = format!("unknown key {}{hint}; allowed: {allowed}", quoted(key));
                Err(value.problem(message).within(key))
            }
        }
    }

    pub(crate) fn any_table(&self) -> Result<Table<'_>, Problem> {
        match &self.kind {
            Kind::Table(map) => Ok(Table { map, place: self.place }),
            _ => Err(self.wrong("a table such as { key = value }")),
        }
    }

    pub(crate) fn text(&self) -> Result<&str, Problem> {
        match &self.kind {
            Kind::Text(text) => Ok(text),
            _ => Err(self.wrong("text in quotes")),
        }
    }

    pub(crate) fn flag(&self) -> Result<bool, Problem> {
        match self.kind {
            Kind::Bool(flag) => Ok(flag),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(crate) fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, Problem> {
        match self.kind {
            Kind::Integer(number) => u64::try_from(number).ok().filter(|n| range.contains(n)),
            _ => None,
        }
        .ok_or_else(|| {
            self.wrong(format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    pub(crate) fn number(
        &self,
        range: &str,
        allowed: impl FnOnce(f64) -> bool,
    ) -> Result<f64, Problem> {
        let number = match self.kind {
            Kind::Integer(number) => Some(number as f64),
            Kind::Float(number) => Some(number),
            _ => None,
        };
        number.filter(|x| allowed(*x)).ok_or_else(|| self.wrong(format!("a number {range}")))
    }

    /// Reads a quantity within a range of its base units.
    pub(crate) fn quantity<Q: Quantity + Copy + Ord + Display>(
        &self,
        range: RangeInclusive<u64>,
    ) -> Result<Q, Problem> {
        let text = match &self.kind {
            Kind::Text(text) if text.len() <= QUANTITY_BYTES_MAX => text.clone(),
            // The parser of the quantity reports the missing unit.
            Kind::Integer(_) | Kind::Float(_) => self.shown(),
            _ => return Err(self.wrong(format!("{} such as \"{}\"", Q::WHAT, Q::EXAMPLE))),
        };
        let [low, high] = [*range.start(), *range.end()].map(Q::from_base_units);
        let outside = || self.wrong(format!("{} from {low} to {high}", Q::WHAT));
        match Q::parse(&text) {
            Ok(quantity) if (low..=high).contains(&quantity) => Ok(quantity),
            Ok(_) => Err(outside()),
            // Beyond 64 bits: the message with the range is more helpful.
            Err(error) if error.problem == "is too large" => Err(outside()),
            Err(error) => Err(self.problem(error.to_string())),
        }
    }

    pub(crate) fn duration(&self, range: RangeInclusive<u64>) -> Result<Duration, Problem> {
        self.quantity(range)
    }

    pub(crate) fn each<T>(
        &'_ self,
        what: &str,
        mut read: impl FnMut(usize, &SettingValue) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let Kind::List(items) = &self.kind else { return Err(self.wrong(what)) };
        let item = |(i, value)| read(i, value).map_err(|problem| problem.within(i));
        items.iter().enumerate().map(item).collect()
    }

    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::at(self.place, message)
    }

    pub(crate) fn wrong(&self, expected: impl Display) -> Problem {
        self.problem(format!("is {}; expected {expected}", self.shown()))
    }
}

const QUANTITY_BYTES_MAX: usize = 64;
