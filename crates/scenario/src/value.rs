//! TOML file as a tree of values with line numbers, which `--set` can change before checks.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Place, Problem, quoted};

/// Value of a setting, made from texts, numbers, quantities, lists of them, and entries.
#[derive(Clone, Debug)]
pub struct SettingValue {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Table(BTreeMap<String, SettingValue>),
    List(Vec<SettingValue>),
    /// Unused kinds: dates, and numbers beyond 64 bits.
    Other(&'static str, String),
}

impl SettingValue {
    pub(crate) fn from_file(text: &str) -> Result<Self, Problem> {
        let lines = Lines::of(text);
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let mut message = format!("not valid TOML: {}", error.message());
            let piece = text.get(span.clone()).unwrap_or("").trim();
            if !piece.is_empty() {
                message.push_str(&format!(", at {}", quoted(piece)));
            }
            message.push_str("; allowed is one TOML document, each key once");
            Problem::at(lines.place(span.start), message)
        })?;
        // The root spans the whole file: its missing keys are reported at line 1.
        Ok(Self { kind: kind_of_table(table.into_inner(), &lines), place: Place::Line(1) })
    }

    /// Reads the value of a `--set`: TOML, or else plain text, because shells remove quotes.
    pub(crate) fn from_set(text: &str, place: Place) -> Self {
        let mut value = match DeValue::parse(text) {
            Ok(value) => from_toml(value, &Lines::of(text)),
            Err(_) => Self { kind: Kind::Text(text.to_string()), place },
        };
        value.move_to(place);
        value
    }

    fn move_to(&mut self, place: Place) {
        self.place = place;
        match &mut self.kind {
            Kind::Table(map) => map.values_mut().for_each(|value| value.move_to(place)),
            Kind::List(items) => items.iter_mut().for_each(|value| value.move_to(place)),
            _ => {}
        }
    }

    pub(crate) fn shown(&self) -> String {
        match &self.kind {
            Kind::Text(text) => quoted(text),
            Kind::Integer(number) => number.to_string(),
            Kind::Float(number) => number.to_string(),
            Kind::Bool(flag) => flag.to_string(),
            Kind::Table(_) => "a table".to_string(),
            Kind::List(_) => "a list".to_string(),
            Kind::Other(what, text) => format!("{what} {}", quoted(text)),
        }
    }
}

fn from_toml(value: Spanned<DeValue<'_>>, lines: &Lines) -> SettingValue {
    let place = lines.place(value.span().start);
    let kind = match value.into_inner() {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) => Kind::Integer(value),
            Err(_) => Kind::Other("the number", number.to_string()),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(value) => Kind::Float(value),
            Err(_) => Kind::Other("the number", number.to_string()),
        },
        DeValue::Boolean(flag) => Kind::Bool(flag),
        DeValue::Datetime(date) => Kind::Other("the date", date.to_string()),
        DeValue::Array(items) => {
            Kind::List(items.into_iter().map(|item| from_toml(item, lines)).collect())
        }
        DeValue::Table(table) => kind_of_table(table, lines),
    };
    SettingValue { kind, place }
}

fn kind_of_table(table: DeTable<'_>, lines: &Lines) -> Kind {
    let entry = |(key, value): (Spanned<std::borrow::Cow<'_, str>>, _)| {
        (key.into_inner().into_owned(), from_toml(value, lines))
    };
    Kind::Table(table.into_iter().map(entry).collect())
}

struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after_break = |(at, byte)| if byte == b'\n' { Some(at + 1) } else { None };
        Self(text.bytes().enumerate().filter_map(after_break).collect())
    }

    fn place(&self, offset: usize) -> Place {
        let line = 1 + self.0.partition_point(|start| *start <= offset);
        Place::Line(u32::try_from(line).unwrap_or(u32::MAX))
    }
}
