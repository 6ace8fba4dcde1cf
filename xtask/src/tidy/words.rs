//! Rules for vocabulary: one term for each meaning, and first lines that a search finds.

use std::collections::BTreeMap;
use std::path::Path;

use super::{TextFile, lines};

pub(super) fn private_words(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = ["rs", "md", "toml"].into_iter().flat_map(|extension| lines(files, extension));
    let is_read = |file: &TextFile| !UNREAD.iter().any(|path| file.path == Path::new(path));
    for (file, number, line) in lines.filter(|(file, ..)| is_read(file)) {
        // File name under which users look for the guarantees of group communication.
        let parts = parts(&line.replace("promises.md", ""));
        let said = |word: &str| parts.iter().any(|part| part == word);
        for (word, instead) in PRIVATE.iter().filter(|(word, _)| said(word)) {
            let what = format!("{word} is a word of our own: say {instead}");
            complaints.push(file.complaint(number, what));
        }
    }
    complaints
}

pub(super) fn type_names(files: &[TextFile]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let is_code = |file: &TextFile| file.path.starts_with("crates") && file.is_below("src");
    for (file, number, line) in lines(files, "rs").filter(|(file, ..)| is_code(file)) {
        if let Some(name) = public_type(line) {
            let place = format!("{}:{number}", file.path.display());
            places.entry(name).or_default().push(place);
        }
    }
    let mut complaints = Vec::new();
    for (name, places) in places {
        let allowed = 1 + SHARED.iter().filter(|shared| **shared == name).count();
        for place in places.iter().skip(allowed) {
            let what = format!("another public type is called {name}, in {}", places[0]);
            complaints.push(format!("{place}: {what}"));
        }
    }
    complaints
}

pub(super) fn first_lines(files: &[TextFile]) -> Vec<String> {
    let complaint = |file: &TextFile| {
        let Some(title) = file.text.strip_prefix("//! ") else {
            return Some(file.complaint(1, "a module begins with a line of //!"));
        };
        let first = title.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let what = format!("the first line begins with {first}: name the thing with a noun");
        RIDDLES.contains(&first).then(|| file.complaint(1, what))
    };
    files.iter().filter(|file| file.has_extension("rs")).filter_map(complaint).collect()
}

/// Returns the words of a line in lower case, those of identifiers too: `RetryTimer` has two.
fn parts(line: &str) -> Vec<String> {
    let (mut apart, mut after_small) = (String::new(), false);
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && after_small) {
            apart.push(' ');
        }
        if c.is_alphabetic() {
            apart.extend(c.to_lowercase());
        }
        after_small = c.is_lowercase();
    }
    apart.split_whitespace().map(String::from).collect()
}

fn public_type(line: &str) -> Option<&str> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace();
    let kind = words.next()?;
    let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
    (["struct", "enum", "trait", "type"].contains(&kind) && !name.is_empty()).then_some(name)
}

/// Old terms remain in the history, and references keep the titles of other authors.
const UNREAD: &[&str] = &["CHANGELOG.md", "docs/references.md", "xtask/src/tidy/words.rs"];

const PRIVATE: &[(&str, &str)] = &[
    ("bell", "an event_fd, which is cleared, or a waker"),
    ("happening", "a scheduled event"),
    ("happenings", "scheduled events"),
    ("hush", "to clear"),
    ("noting", "a session store"),
    ("patience", "a time limit, a retry timer"),
    ("promises", "guarantees, bounds of feedback"),
    ("riddle", "the thing's name"),
    ("speech", "scheme negotiation"),
    ("stranger", "an unknown sender, a mismatched receiver"),
    ("strangers", "unknown senders, mismatched receivers"),
];

const SHARED: &[&str] = &[
    "Arrival", "Data", "Error", "Event", "Feedback", "Header", "On", "Options", "Outcome",
    "Profile", "Program", "Received", "Request", "Request", "Role", "Store", "Sweep", "Trace",
];

const RIDDLES: &[&str] = &[
    "How", "It", "That", "They", "This", "We", "What", "Whatever", "When", "Where", "Whether",
    "Which", "Who", "Whoever", "Whom", "Whose", "Why", "You",
];

#[cfg(test)]
mod tests {
    use super::super::text_file;
    use super::*;

    #[test]
    fn private_words_are_found_in_identifiers_and_texts() {
        let text =
            "struct SpeechTimer;\nlet a_patience_ms = 1;\n// Impatience, bells.\nfn bell() {}";
        let complaints = private_words(&[text_file("a.rs", text), text_file("CHANGELOG.md", text)]);
        let lines: Vec<&str> = complaints.iter().map(|complaint| &complaint[..7]).collect();
        assert_eq!(lines, ["a.rs:1:", "a.rs:2:", "a.rs:4:"]);
        assert!(complaints[0].ends_with("say scheme negotiation"), "{complaints:?}");
    }

    #[test]
    fn types_have_names_of_their_own() {
        let one = "pub struct Plan {\n    pub kind: Kind,\n}\npub enum Error {\nstruct Own;\n";
        let two = "pub(crate) struct Own;\npub trait Plan: Send {\npub type Error = ();\n";
        let files = [text_file("crates/a/src/x.rs", one), text_file("crates/b/src/y.rs", two)];
        let complaint =
            "crates/b/src/y.rs:2: another public type is called Plan, in crates/a/src/x.rs:1";
        assert_eq!(type_names(&files), [complaint]);
        let third = text_file("crates/c/src/z.rs", "pub struct Error;\n");
        let [one, two] = files;
        assert_eq!(type_names(&[one, two, third]).len(), 2);
    }

    #[test]
    fn modules_begin_with_a_noun() {
        let of = |text: &str| first_lines(&[text_file("a.rs", text)]).len();
        assert_eq!(of("//! The receiver's NAK timers.\n"), 0);
        assert_eq!(of("//! Whole packets, and when they leave.\n"), 0);
        for riddle in ["//! What a sender sends.\n", "//! Who receives.\n", "use super::*;\n"] {
            assert_eq!(of(riddle), 1, "{riddle}");
        }
    }
}
