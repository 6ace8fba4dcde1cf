//! Settings of protocols: one table gives keys, ranges and defaults to all users.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Bitrate, Duration, Quantity};

/// Value of a setting, as given in the scenario file.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum OptionValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Bytes(Arc<[u8]>),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(x) => x.fmt(f),
            Self::Integer(x) => x.fmt(f),
            Self::Float(x) => x.fmt(f),
            Self::Text(x) => write!(f, "\"{x}\""),
            Self::Bytes(x) => write!(f, "{} bytes", x.len()),
        }
    }
}

/// Type of a setting's value, with its closed range.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum OptionKind {
    Bool,
    Integer { min: i64, max: i64 },
    Float { min: f64, max: f64 },
    Duration { min_ns: u64, max_ns: u64 },
    Rate { min_bits_per_s: u64, max_bits_per_s: u64 },
    Choice(&'static [&'static str]),
    File { max_bytes: u32 },
}

/// Setting of a protocol.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct OptionSpec {
    pub name: &'static str,
    pub kind: OptionKind,
    /// Default, as written in a scenario file.
    pub default: &'static str,
    /// Description in one sentence, with its source.
    pub doc: &'static str,
}

/// Returns the settings of `all` with these names, or without. Panics if their number is not `N`.
pub(crate) const fn selected<const N: usize>(
    all: &[OptionSpec],
    names: &[&str],
    among: bool,
) -> [OptionSpec; N] {
    let mut selected = [all[0]; N];
    let (mut i, mut place) = (0, 0);
    while i < all.len() {
        if has(names, all[i].name) == among {
            selected[place] = all[i];
            place += 1;
        }
        i += 1;
    }
    assert!(place == N, "each name is that of a setting");
    selected
}

/// Joins two tables. Panics if `N` is not the sum of their lengths.
pub(crate) const fn joined<const N: usize>(
    first: &[OptionSpec],
    second: &[OptionSpec],
) -> [OptionSpec; N] {
    assert!(N == first.len() + second.len(), "N is the sum of the lengths");
    let mut all = [if first.is_empty() { second[0] } else { first[0] }; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

const fn has(names: &[&str], name: &str) -> bool {
    let mut i = 0;
    while i < names.len() {
        if is_same(names[i].as_bytes(), name.as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Error of a refused setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are what their names say")]
pub struct OptionError {
    pub key: String,
    pub message: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option \"{}\" {}", self.key, self.message)
    }
}

impl core::error::Error for OptionError {}

/// Settings by key, checked against a table of [`OptionSpec`]s: known keys, types and ranges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options(BTreeMap<String, OptionValue>);

impl Options {
    /// Checks `raw` against `specs`.
    ///
    /// # Errors
    /// Names the first unknown key with the nearest known one, or an invalid value and the range.
    pub fn checked(
        raw: impl IntoIterator<Item = (String, OptionValue)>,
        specs: &[OptionSpec],
    ) -> Result<Self, OptionError> {
        let checked = raw.into_iter().map(|(key, value)| {
            let spec = specs.iter().find(|spec| spec.name == key);
            let outcome = spec.ok_or_else(|| unknown_key(&key, specs));
            match outcome.and_then(|spec| check(&value, spec.kind)) {
                Ok(()) => Ok((key, value)),
                Err(message) => Err(OptionError { key, message }),
            }
        });
        checked.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the settings that were set and that `specs` contains, sorted by key.
    pub fn of(&self, specs: &[OptionSpec]) -> Vec<(String, OptionValue)> {
        let known = |key: &str| specs.iter().any(|spec| spec.name == key);
        let all = self.0.iter().filter(|(key, _)| known(key));
        all.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Returns these settings, completed by `others` that are unset here and valid by `specs`.
    #[must_use]
    pub fn under(&self, others: &[(String, OptionValue)], specs: &[OptionSpec]) -> Self {
        let mut all = self.clone();
        for (key, value) in others {
            let spec = specs.iter().find(|spec| spec.name == key);
            if spec.is_some_and(|spec| check(value, spec.kind).is_ok()) {
                all.0.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        all
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: OptionValue) -> Self {
        self.0.insert(key.to_string(), value);
        self
    }

    /// True if `key` was set.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns a boolean, if set.
    pub fn bool(&self, key: &str) -> Option<bool> {
        let OptionValue::Bool(x) = self.0.get(key)? else { return None };
        Some(*x)
    }

    /// Returns an integer, if set.
    pub fn integer(&self, key: &str) -> Option<i64> {
        let OptionValue::Integer(x) = self.0.get(key)? else { return None };
        Some(*x)
    }

    /// Returns a number, if set.
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.0.get(key)? {
            OptionValue::Float(x) => Some(*x),
            OptionValue::Integer(x) => Some(*x as f64),
            _ => None,
        }
    }

    /// Returns a text, if set.
    pub fn text(&self, key: &str) -> Option<&str> {
        let OptionValue::Text(x) = self.0.get(key)? else { return None };
        Some(x)
    }

    /// Returns the content of a file, if set.
    pub fn bytes(&self, key: &str) -> Option<&Arc<[u8]>> {
        let OptionValue::Bytes(x) = self.0.get(key)? else { return None };
        Some(x)
    }

    /// Returns a duration, if set.
    pub fn duration(&self, key: &str) -> Option<Duration> {
        Duration::parse(self.text(key)?).ok()
    }

    /// Returns a rate, if set.
    pub fn rate(&self, key: &str) -> Option<Bitrate> {
        Bitrate::parse(self.text(key)?).ok()
    }
}

fn unknown_key(key: &str, specs: &[OptionSpec]) -> String {
    if specs.is_empty() {
        return "is unknown; this protocol has no options".to_string();
    }
    let hint = did_you_mean(key, specs.iter().map(|spec| spec.name));
    if hint.is_empty() {
        return format!("is unknown, and like none of the {} that there are", specs.len());
    }
    format!("is unknown{hint}")
}

/// Returns a hint with the most similar name, such as ` (did you mean "rate"?)`, or nothing.
pub fn did_you_mean<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> String {
    // A very long name is no typing error, and its comparison with many others is slow.
    if wrong.len() > NAME_BYTES_COMPARED_MAX {
        return String::new();
    }
    let nearest = names
        .take(NAMES_COMPARED_MAX)
        .filter_map(|name| distance(wrong, name).map(|distance| (distance, name)))
        .min_by_key(|(distance, _)| *distance);
    nearest.map_or_else(String::new, |(_, name)| format!(" (did you mean \"{name}\"?)"))
}

/// Returns the distance of a wrong name; `None` if not similar. Names that contain all its words
/// come first: `bbr` suggests `tcp-bbr`, not `cbr`.
fn distance(wrong: &str, name: &str) -> Option<(bool, usize)> {
    let (wrong, name) = (wrong.to_lowercase(), name.to_lowercase());
    let distance = edit_distance(&wrong, &name);
    let has = |word: &str| words(&name).any(|of_name| of_name == word);
    if words(&wrong).next().is_some() && words(&wrong).all(has) {
        return Some((false, distance));
    }
    // Names are similar if more than half of the letters agree, or if one contains the other.
    let letters = wrong.chars().count();
    let is_near = distance <= letters / 2 + 1;
    let is_part = wrong.len() >= PART_BYTES_MIN && name.contains(&wrong);
    // The remaining words of the name count as one wrong letter.
    let near_word = words(&name).map(|word| edit_distance(&wrong, word)).min();
    let near_word = near_word.filter(|of_word| *of_word <= letters / WORD_SHARE);
    let near_word = near_word.map(|of_word| of_word + 1);
    let near_name = (is_near || is_part).then_some(distance);
    near_name.into_iter().chain(near_word).min().map(|distance| (true, distance))
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['-', '_', '.', ' ']).filter(|word| !word.is_empty())
}

const NAME_BYTES_COMPARED_MAX: usize = 64;
const NAMES_COMPARED_MAX: usize = 20_000;
/// Shortest part of a name that identifies the name, in bytes.
const PART_BYTES_MIN: usize = 4;
/// Letters of a word for each wrong letter that is allowed.
const WORD_SHARE: usize = 4;

fn check(value: &OptionValue, kind: OptionKind) -> Result<(), String> {
    let (is_allowed, allowed) = match (kind, value) {
        (OptionKind::Bool, _) => (matches!(value, OptionValue::Bool(_)), "true or false".into()),
        (OptionKind::Integer { min, max }, _) => (
            matches!(value, OptionValue::Integer(x) if (min..=max).contains(x)),
            format!("a whole number from {min} to {max}"),
        ),
        (OptionKind::Float { min, max }, _) => {
            let number = match value {
                OptionValue::Float(x) => *x,
                OptionValue::Integer(x) => *x as f64,
                _ => f64::NAN,
            };
            ((min..=max).contains(&number), format!("a number from {min} to {max}"))
        }
        (OptionKind::Duration { min_ns, max_ns }, OptionValue::Text(text)) => {
            let range = [min_ns, max_ns].map(Duration::from_nanos);
            (is_within(text, range)?, format!("a duration from {} to {}", range[0], range[1]))
        }
        (OptionKind::Duration { .. }, _) => (false, "a duration such as \"4 s\"".into()),
        (OptionKind::Rate { min_bits_per_s, max_bits_per_s }, OptionValue::Text(text)) => {
            let range = [min_bits_per_s, max_bits_per_s].map(Bitrate::from_bits_per_s);
            (is_within(text, range)?, format!("a rate from {} to {}", range[0], range[1]))
        }
        (OptionKind::Rate { .. }, _) => (false, "a rate such as \"500 kbit/s\"".into()),
        (OptionKind::Choice(words), _) => (
            matches!(value, OptionValue::Text(text) if words.contains(&text.as_str())),
            format!("one of {}", words.join(", ")),
        ),
        (OptionKind::File { max_bytes }, _) => (
            matches!(value, OptionValue::Bytes(x) if (1..=max_bytes as usize).contains(&x.len())),
            format!("the name of a file of 1 to {max_bytes} bytes"),
        ),
    };
    if is_allowed { Ok(()) } else { Err(format!("is {value}; expected {allowed}")) }
}

fn is_within<Q: Quantity + PartialOrd>(text: &str, [min, max]: [Q; 2]) -> Result<bool, String> {
    let quantity = Q::parse(text).map_err(|error| error.to_string())?;
    Ok((min..=max).contains(&quantity))
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_checked_against_their_range() {
        let kind = OptionKind::Rate { min_bits_per_s: 1000, max_bits_per_s: 2_000_000 };
        let specs = [OptionSpec { name: "rate", kind, default: "1 Mbit/s", doc: "" }];
        let check = |value| Options::checked([("rate".to_string(), value)], &specs);
        let text = |text: &str| OptionValue::Text(text.to_string());
        let options = check(text("1.5 Mbit/s")).unwrap();
        assert_eq!(options.rate("rate"), Some(Bitrate::from_bits_per_s(1_500_000)));
        for (value, message) in [
            (text("3 Mbit/s"), "a rate from 1 kbit/s to 2 Mbit/s"),
            (text("5 ms"), "unknown unit"),
            (OptionValue::Integer(500), "500 kbit/s"),
        ] {
            let error = check(value).unwrap_err();
            assert!(error.message.contains(message), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_one() {
        let of = |name| OptionSpec { name, kind: OptionKind::Bool, default: "false", doc: "" };
        let specs = [of("acker_bias"), of("adaptive_timeout"), of("rate_max"), of("rate_min")];
        let message = |key: &str| {
            let given = [(key.to_string(), OptionValue::Bool(true))];
            Options::checked(given, &specs).unwrap_err().message
        };
        for (key, want) in [
            ("aker_bias", "is unknown (did you mean \"acker_bias\"?)"),
            ("acker-bias", "is unknown (did you mean \"acker_bias\"?)"),
            ("bias", "is unknown (did you mean \"acker_bias\"?)"),
            ("rate_mim", "is unknown (did you mean \"rate_min\"?)"),
            ("colour", "is unknown, and like none of the 4 that there are"),
        ] {
            assert_eq!(message(key), want, "{key}");
        }
        let protocols =
            ["cbr", "tcp-bbr", "tcp-cubic", "tcp-reno", "tcp-newreno", "tram-pgmcc", "pgmcc"];
        for (wrong, want) in [
            ("bbr", "tcp-bbr"),
            ("BBR", "tcp-bbr"),
            ("cubic", "tcp-cubic"),
            ("cubik", "tcp-cubic"),
            ("newreno", "tcp-newreno"),
            ("tcp_reno", "tcp-reno"),
            ("pgmc", "pgmcc"),
            ("pgmcc-tram", "tram-pgmcc"),
            ("cbrr", "cbr"),
        ] {
            let hint = did_you_mean(wrong, protocols.into_iter());
            assert_eq!(hint, format!(" (did you mean \"{want}\"?)"), "{wrong}");
        }
        let none = Options::checked([("a".to_string(), OptionValue::Bool(true))], &[]);
        assert_eq!(none.unwrap_err().message, "is unknown; this protocol has no options");
    }
}
