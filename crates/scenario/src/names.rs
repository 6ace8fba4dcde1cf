//! Names of nodes and flows, and ranges of names: `mr{1..1000}`.

use crate::error::{Problem, quoted};
use crate::limits::{NAME_CHARS_MAX, NODES_MAX};
use crate::value::{Kind, SettingValue};

pub(crate) fn name(value: &SettingValue) -> Result<&str, Problem> {
    let text = value.text()?;
    if is_name(text) { Ok(text) } else { Err(wrong(value, text, NAME_RULE)) }
}

pub(crate) fn names(value: &SettingValue) -> Result<Vec<Named<'_>>, Problem> {
    let mut all = Vec::new();
    let mut add = |value, position| -> Result<(), Problem> {
        all.extend(expanded(value)?.into_iter().map(|name| Named { name, value, position }));
        match all.len() {
            0..=NODES_MAX => Ok(()),
            _ => Err(value.wrong(format!("at most {NODES_MAX} names in all"))),
        }
    };
    match &value.kind {
        Kind::List(items) => {
            for (i, item) in items.iter().enumerate() {
                add(item, Some(i)).map_err(|problem| problem.within(i))?;
            }
        }
        Kind::Text(_) => add(value, None)?,
        _ => return Err(value.wrong("a list of names such as [\"r1\", \"mr{1..10}\"]")),
    }
    if all.is_empty() { Err(value.wrong("at least one name")) } else { Ok(all) }
}

/// Name of a list, after its ranges are expanded.
pub(crate) struct Named<'a> {
    pub(crate) name: String,
    pub(crate) value: &'a SettingValue,
    position: Option<usize>,
}

impl Named<'_> {
    pub(crate) fn blamed(&self, problem: Problem) -> Problem {
        match self.position {
            Some(position) => problem.within(position),
            None => problem,
        }
    }

    pub(crate) fn problem(&self, message: String) -> Problem {
        self.blamed(Problem::at(self.value.place, message))
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(allowed)
}

fn expanded(value: &SettingValue) -> Result<Vec<String>, Problem> {
    let text = value.text()?;
    let Some((before, rest)) = text.split_once('{') else {
        return Ok(vec![name(value)?.to_string()]);
    };
    let bad = || wrong(value, text, RANGE_RULE);
    let (range, after) = rest.split_once('}').ok_or_else(bad)?;
    let (low, high) = range.split_once("..").ok_or_else(bad)?;
    let digits = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<u32>().ok(),
        false => None,
    };
    let (first, last) = (digits(low).ok_or_else(bad)?, digits(high).ok_or_else(bad)?);
    if first > last || (last - first) as usize >= NODES_MAX {
        return Err(bad());
    }
    // As in a shell, a leading zero sets a fixed width.
    let width = if low.starts_with('0') { low.len().min(NAME_CHARS_MAX) } else { 0 };
    let longest = format!("{before}{last:0width$}{after}");
    if !is_name(&longest) {
        let what = format!("stands for {}; expected {NAME_RULE}", quoted(&longest));
        return Err(value.problem(what));
    }
    Ok((first..=last).map(|i| format!("{before}{i:0width$}{after}")).collect())
}

fn wrong(value: &SettingValue, text: &str, rule: &str) -> Problem {
    match range_meant(text) {
        Some((range, _)) => Problem::at(
            value.place,
            format!("is {} (did you mean {}?); expected {rule}", quoted(text), quoted(&range)),
        ),
        None => value.wrong(rule),
    }
}

/// Returns the intended range, with its ends: `mr[1-3]`, `mr{1-3}`, `mr1-3`, `mr1..mr3`.
pub(crate) fn range_meant(text: &str) -> Option<(String, [String; 2])> {
    if text.len() > NAME_CHARS_MAX {
        return None;
    }
    let brackets = [('[', ']'), ('{', '}'), ('(', ')'), ('<', '>')];
    let bracketed = brackets.iter().find_map(|(open, close)| {
        let (before, rest) = text.split_once(*open)?;
        let (range, after) = rest.split_once(*close)?;
        Some((before, range, after))
    });
    let (before, range, after) = bracketed.unwrap_or_else(|| {
        let digits_at = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
        (&text[..digits_at], &text[digits_at..], "")
    });
    let separators = ["...", "..", "…", "-", "–", ":", ",", " to "];
    let (low, high) = separators.iter().find_map(|separator| range.split_once(separator))?;
    // `mr1-mr3` repeats the name.
    let high = high.trim().strip_prefix(before).unwrap_or(high.trim());
    let (low, high) = (low.trim(), high.trim());
    let is_number = |text: &str| {
        (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(low) || !is_number(high) {
        return None;
    }
    let rising = low.parse::<u32>().ok()? <= high.parse::<u32>().ok()?;
    let (low, high) = if rising { (low, high) } else { (high, low) };
    let range = format!("{before}{{{low}..{high}}}{after}");
    let ends = [low, high].map(|number| format!("{before}{number}{after}"));
    (is_name(&ends[0]) && is_name(&ends[1]) && range != text).then_some((range, ends))
}

const NAME_RULE: &str = "a name of 1 to 64 letters, digits and the characters _ - . :";
const RANGE_RULE: &str =
    "one range such as \"mr{1..1000}\", its first number not above its last, at most 200000 names";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;

    fn read(text: &str) -> Result<Vec<String>, Problem> {
        expanded(&SettingValue { kind: Kind::Text(text.to_string()), place: Place::Line(1) })
    }

    #[test]
    fn ranges_stand_for_every_name_in_them() {
        for (text, want) in [
            ("r1", vec!["r1"]),
            ("mr{1..3}", vec!["mr1", "mr2", "mr3"]),
            ("n3-{9..10}x", vec!["n3-9x", "n3-10x"]),
            ("r{08..10}", vec!["r08", "r09", "r10"]),
            ("r{5..5}", vec!["r5"]),
        ] {
            assert_eq!(read(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn bad_names_and_ranges_are_refused() {
        for text in [
            "",
            "a b",
            "é",
            "r{1..",
            "r{1-3}",
            "r{3..1}",
            "r{..}",
            "r{1..999999999}",
            "r}",
            "r{+1..2}",
            "r{1..2}{1..2}",
            "r{1..99999999999}",
            &"x".repeat(65),
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_as_others_write_them_are_told_how_they_are_written_here() {
        for (text, want) in [
            ("mr[1-3]", "mr{1..3}"),
            ("mr[1..3]", "mr{1..3}"),
            ("mr{1-3}", "mr{1..3}"),
            ("mr{1...3}", "mr{1..3}"),
            ("mr{3..1}", "mr{1..3}"),
            ("mr(1:3)x", "mr{1..3}x"),
            ("mr[01-10]", "mr{01..10}"),
            ("mr1-3", "mr{1..3}"),
            ("mr1..mr3", "mr{1..3}"),
            ("mr1-mr3", "mr{1..3}"),
        ] {
            assert_eq!(range_meant(text).map(|(range, _)| range).as_deref(), Some(want), "{text}");
            assert!(read(want).is_ok(), "{want}");
        }
        for text in ["mr", "mr1", "mr[a-b]", "mr{1..3}", "é[1-3]", "mr[1-99999999999]", "1-x"] {
            assert_eq!(range_meant(text), None, "{text}");
        }
    }
}
