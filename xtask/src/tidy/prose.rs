//! Rules for the prose of comments, from HACKING.md.

use super::TextFile;

const STARTS: &[&str] = &[
    "What", "Who", "Whom", "Whose", "Whoever", "Whatever", "How", "Those", "That of", "The same",
    "Of", "So", "Such", "Nothing", "Nobody", "Somebody", "It", "They",
];

const PHRASES: &[&str] = &["for how long", "after how long", "so many", "so long"];

const COLUMNS_MAX: usize = 100;

pub(super) fn complaints(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        let mut in_doc = false;
        for (number, line) in file.lines() {
            let code = line.trim_start();
            let doc = ["///", "//!"].iter().find_map(|mark| code.strip_prefix(mark)).map(str::trim);
            let begins = doc.filter(|_| !in_doc).unwrap_or_default();
            in_doc = doc.is_some_and(|words| !words.is_empty());
            let words = comment(line).map(str::to_lowercase);
            let says = |phrase: &&str| words.as_ref().is_some_and(|words| words.contains(*phrase));
            let is_long = line.chars().count() > COLUMNS_MAX;
            for (is_broken, rule) in [
                (STARTS.iter().any(|start| starts_with(begins, start)), BEGIN),
                (PHRASES.iter().any(says), VAGUE),
                (words.is_some() && is_long, LONG),
            ] {
                complaints.extend(is_broken.then(|| file.complaint(number, rule)));
            }
        }
    }
    complaints
}

const BEGIN: &str = "a doc comment begins with a question word or a pronoun";
const VAGUE: &str = "a phrase names neither limit nor unit";
const LONG: &str = "a comment line has more than 100 columns";

fn starts_with(words: &str, start: &str) -> bool {
    words.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// Returns a line's comment. A `//` inside quotes does not count.
fn comment(line: &str) -> Option<&str> {
    let (before, comment) = line.split_at(line.find("//")?);
    before.matches('"').count().is_multiple_of(2).then_some(comment)
}

#[cfg(test)]
mod tests {
    use super::super::text_file;
    use super::*;

    #[test]
    fn comments_that_break_a_rule_are_named() {
        let lines = [
            "/// Who sends.",
            "/// It waits.",
            "fn a() {} // % of them",
            "",
            "/// Sender.",
            "///",
            "/// What follows.",
            "let url = \"http://%\";",
        ];
        let code = lines.join("\n").replace('%', "so many") + &format!("\n// {}\n", "x".repeat(98));
        let found = complaints(&[text_file("a.rs", &code), text_file("a.md", &code)]);
        let wanted = [(1, BEGIN), (3, VAGUE), (7, BEGIN), (9, LONG)];
        assert_eq!(found, wanted.map(|(line, rule)| format!("a.rs:{line}: {rule}")));
    }
}
