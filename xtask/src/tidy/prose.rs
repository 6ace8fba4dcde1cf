//! Ratchet for prose: rejects more comments against HACKING.md than `xtask/prose.txt` records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use super::TextFile;
use crate::shell;

const RECORD: &str = "xtask/prose.txt";

const STARTS: &[&str] = &[
    "What", "Who", "Whom", "Whose", "Whoever", "Whatever", "How", "Those", "That of", "The same",
    "Of", "So", "Such", "Nothing", "Nobody", "Somebody", "It", "They",
];

const PHRASES: &[&str] = &["for how long", "after how long", "so many", "so long"];

const COLUMNS_MAX: usize = 100;

/// Violations in a file: first words in [`STARTS`], phrases, long lines.
type Counts = [usize; 3];

const RULES: [&str; 3] = [
    "a doc comment begins with a question word or a pronoun",
    "a phrase names neither limit nor unit",
    "a comment line has more than 100 columns",
];

pub(super) fn ratchet(files: &[TextFile]) -> Vec<String> {
    let record = files.iter().find(|file| file.path.as_os_str() == RECORD);
    let record = read(record.map_or("", |file| &file.text));
    let mut complaints = Vec::new();
    let mut fell = Vec::new();
    let counted = count(files);
    let paths = counted.keys().chain(record.keys().filter(|path| !counted.contains_key(*path)));
    for path in paths {
        let found =
            counted.get(path).map_or([&[][..]; 3], |it| [0, 1, 2].map(|rule| &it[rule][..]));
        let before = record.get(path).copied().unwrap_or_default();
        for ((lines, before), rule) in found.iter().zip(before).zip(RULES) {
            if lines.len() > before {
                let lines: Vec<String> = lines.iter().take(8).map(usize::to_string).collect();
                let lines = lines.join(", ");
                complaints.push(format!("{path}: {rule}: lines {lines}; {before} are allowed"));
            }
        }
        if found.iter().zip(before).any(|(lines, before)| lines.len() < before) {
            fell.push(path.as_str());
        }
    }
    if complaints.is_empty() && !fell.is_empty() {
        let files = fell.join(", ");
        complaints
            .push(format!("{RECORD}: counts fell in {files}; `cargo xtask prose` records that"));
    }
    complaints
}

pub(super) fn total(files: &[TextFile]) -> String {
    let all = count(files);
    format!("{} comments to reword", all.values().flatten().map(Vec::len).sum::<usize>())
}

/// Writes the record anew; fails if the counts of a crate have risen.
pub(crate) fn renew() -> Result<String, String> {
    let files = super::files()?;
    let path = shell::root().join(RECORD);
    let before = by_crate(&read(&fs::read_to_string(&path).unwrap_or_default()));
    let counted = count(&files);
    let counts: BTreeMap<String, Counts> = counted
        .iter()
        .map(|(path, lines)| (path.clone(), [0, 1, 2].map(|rule| lines[rule].len())))
        .collect();
    let now = by_crate(&counts);
    for (name, counts) in now.iter().filter(|_| !before.is_empty()) {
        let before = before.get(name).copied().unwrap_or_default();
        if counts.iter().zip(before).any(|(now, before)| *now > before) {
            return Err(format!("{name}: {counts:?} comments to reword, {before:?} before"));
        }
    }
    let mut text = String::new();
    for (path, [starts, phrases, long]) in &counts {
        let _ = writeln!(text, "{path} {starts} {phrases} {long}");
    }
    fs::write(&path, text).map_err(|error| format!("{RECORD}: {error}"))?;
    let words = now.iter().map(|(name, [starts, phrases, long])| {
        format!("  {name:14} {starts:5} first words {phrases:4} phrases {long:5} long lines\n")
    });
    Ok(words.collect())
}

fn count(files: &[TextFile]) -> BTreeMap<String, [Vec<usize>; 3]> {
    let code = files.iter().filter(|file| file.has_extension("rs"));
    let counted = code.map(|file| (file.path.display().to_string(), lines(file)));
    counted.filter(|(_, lines)| lines.iter().any(|lines| !lines.is_empty())).collect()
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

fn read(record: &str) -> BTreeMap<String, Counts> {
    let entry = |line: &str| {
        let mut words = line.rsplitn(4, ' ');
        let mut number = || words.next()?.parse().ok();
        let (long, phrases, starts) = (number()?, number()?, number()?);
        Some((words.next()?.to_string(), [starts, phrases, long]))
    };
    record.lines().filter_map(entry).collect()
}

fn by_crate(files: &BTreeMap<String, Counts>) -> BTreeMap<String, Counts> {
    let mut crates = BTreeMap::new();
    for (path, counts) in files {
        let name = path.strip_prefix("crates/").unwrap_or(path).split('/').next();
        let sum: &mut Counts = crates.entry(name.unwrap_or_default().to_string()).or_default();
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    crates
}

#[cfg(test)]
mod tests {
    use super::super::text_file;
    use super::*;

    #[test]
    fn comments_are_counted_by_rule_and_no_count_may_rise() {
        let code = "/// Who sends.\n/// It waits.\nfn a() {} // so many of them\n\n/// Sender.\n///\n\
                    /// What follows.\nlet url = \"http://so many\";\n";
        let long = format!("// {}\n", "x".repeat(98));
        let with = |record: &str| {
            let files = [
                text_file("crates/a/src/b.rs", &(code.to_string() + &long)),
                text_file(RECORD, record),
            ];
            ratchet(&files)
        };
        let [starts, phrases, lines] = lines(&text_file("b.rs", &(code.to_string() + &long)));
        assert_eq!((starts, phrases, lines), (vec![1, 7], vec![3], vec![9]));
        assert_eq!(with("crates/a/src/b.rs 2 1 1\n"), [""; 0]);
        assert!(with("")[0].contains("lines 1, 7; 0 are allowed"), "{:?}", with(""));
        assert_eq!(with("crates/a/src/b.rs 2 0 1\n").len(), 1);
        assert!(with("crates/a/src/b.rs 3 1 1\n")[0].contains("counts fell"));
        assert!(
            with("crates/a/src/b.rs 2 1 1\ncrates/a/src/gone.rs 1 0 0\n")[0].contains("gone.rs")
        );
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = "crates/a/src/a file.rs 3 0 12\nnonsense\n";
        assert_eq!(read(record), [("crates/a/src/a file.rs".to_string(), [3, 0, 12])].into());
        let counts =
            [("crates/a/x.rs".into(), [1, 2, 3]), ("crates/a/y.rs".into(), [1, 0, 0])].into();
        assert_eq!(by_crate(&counts), [("a".to_string(), [2, 2, 3])].into());
    }
}
