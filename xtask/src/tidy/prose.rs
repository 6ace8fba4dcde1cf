//! Rules for the prose of comments, from HACKING.md.

use super::TextFile;

const STARTS: &[&str] = &[
    "What", "Who", "Whom", "Whose", "Whoever", "Whatever", "How", "Those", "That of", "The same",
    "Of", "So", "Such", "Nothing", "Nobody", "Somebody", "It", "They",
];

const PHRASES: &[&str] = &["for how long", "after how long", "so many", "so long"];

const COLUMNS_MAX: usize = 100;

const RULES: [&str; 3] = [
    "a doc comment begins with a question word or a pronoun",
    "a phrase names neither limit nor unit",
    "a comment line has more than 100 columns",
];

pub(super) fn complaints(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        for (lines, rule) in lines(file).iter().zip(RULES) {
            let path = file.path.display();
            complaints.extend(lines.iter().map(|line| format!("{path}:{line}: {rule}")));
        }
    }
    complaints
}

fn lines(file: &TextFile) -> [Vec<usize>; 3] {
    let mut found: [Vec<usize>; 3] = Default::default();
    let mut in_doc = false;
    for (number, line) in file.lines() {
        let code = line.trim_start();
        let doc = ["///", "//!"].iter().find_map(|mark| code.strip_prefix(mark)).map(str::trim);
        if let Some(words) = doc.filter(|_| !in_doc)
            && STARTS.iter().any(|start| starts_with(words, start))
        {
            found[0].push(number);
        }
        in_doc = doc.is_some_and(|words| !words.is_empty());
        let Some(at) = comment(line) else { continue };
        let words = line[at..].to_lowercase();
        if PHRASES.iter().any(|phrase| words.contains(phrase)) {
            found[1].push(number);
        }
        if line.chars().count() > COLUMNS_MAX {
            found[2].push(number);
        }
    }
    found
}

fn starts_with(words: &str, start: &str) -> bool {
    words.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// Returns the position of a line's comment. A `//` inside quotes does not count.
fn comment(line: &str) -> Option<usize> {
    let at = line.find("//")?;
    (line[..at].matches('"').count().is_multiple_of(2)).then_some(at)
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
        let wanted = [(1, 0), (7, 0), (3, 1), (9, 2)];
        assert_eq!(found, wanted.map(|(line, rule)| format!("a.rs:{line}: {}", RULES[rule])));
    }
}
