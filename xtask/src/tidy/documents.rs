//! Rules for sources and documents.

use std::path::Path;

use super::TextFile;
use crate::{COMMANDS, guide, new_scheme, shell};

/// Requires that every `src:` begins with a key of docs/references.md, such as "- `RFC 3208`: …".
pub(super) fn sources(files: &[TextFile]) -> Vec<String> {
    let page = files.iter().find(|file| file.path == Path::new("docs/references.md"));
    let keys: Vec<&str> = page.map_or(Vec::new(), |page| {
        page.lines()
            .filter_map(|(_, line)| line.strip_prefix("- `")?.split_once('`').map(|(key, _)| key))
            .collect()
    });
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        for (number, line) in file.lines() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            let Some((_, source)) = comment.split_once(MARK) else { continue };
            let names = |key: &str| {
                let rest = source.strip_prefix(key);
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
            };
            if !keys.iter().any(|key| names(key)) {
                let source: String = source.chars().take(40).collect();
                let what = format!("source \"{source}\" is no key of docs/references.md");
                complaints.push(file.complaint(number, what));
            }
        }
    }
    complaints
}

pub(super) fn schemes(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| {
        file.path.parent() == Some(Path::new("docs/schemes")) && file.has_extension("md")
    }) {
        let headings: Vec<String> = file
            .lines()
            .filter(|(_, line)| line.starts_with("##"))
            .map(|(_, line)| line.to_lowercase())
            .collect();
        for wanted in SCHEME_HEADINGS {
            let word = wanted.to_lowercase();
            if !headings.iter().any(|heading| heading.contains(&word)) {
                complaints.push(file.complaint(1, format!("has no heading \"## {wanted}\"")));
            }
        }
    }
    complaints
}

pub(super) fn links(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        let folder = file.path.parent().unwrap_or(Path::new(""));
        for (number, line) in file.lines() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let target = target.split('#').next().unwrap_or_default();
                let elsewhere = target.is_empty() || target.contains(':') || target.contains(' ');
                if !elsewhere && !shell::root().join(folder).join(target).exists() {
                    let what = format!("link to {target}, which does not exist");
                    complaints.push(file.complaint(number, what));
                }
            }
        }
    }
    complaints
}

pub(super) fn commands(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        for (number, line) in file.lines() {
            let task = line.split("cargo xtask ").nth(1).map(|rest| {
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or("")
            });
            // `COMMAND` and the like are placeholders.
            if let Some(task) = task.filter(|task| task.starts_with(|c: char| c.is_lowercase()))
                && !COMMANDS.iter().any(|(name, _)| *name == task)
            {
                complaints.push(file.complaint(number, format!("no task xtask {task}")));
            }
            for word in line.split(|c: char| c.is_whitespace() || "`\"'(),;".contains(c)) {
                let named = word.starts_with("scenarios/") && word.ends_with(".toml");
                let made = new_scheme::makes(guide::NAME, word);
                if named && !made && !word.contains('*') && !shell::root().join(word).exists() {
                    complaints.push(file.complaint(number, format!("no file {word}")));
                }
            }
        }
    }
    complaints
}

const MARK: &str = concat!("src", ": ");
const SCHEME_HEADINGS: &[&str] = &[
    "Idea",
    "State",
    "Constants",
    "Deviations",
    "Scope and Limitations",
    "Validation",
    "References",
];

#[cfg(test)]
mod tests {
    use super::super::text_file;
    use super::*;

    #[test]
    fn sources_must_be_listed() {
        let page =
            text_file("docs/references.md", "- `RFC 3208`: PGM.\n- `ns-2.35`: the simulator.\n");
        let good = format!("/// PGM ({MARK}RFC 3208 s9).\nlet x = 1; // {MARK}ns-2.35: why\n");
        let bad = format!("// {MARK}RFC 32081\n// {MARK}memory");
        let files = [page, text_file("a.rs", &good), text_file("b.rs", &bad)];
        let complaints = sources(&files);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[1].starts_with("b.rs:2: source \"memory\" is no key"), "{complaints:?}");
    }

    #[test]
    fn pages_of_schemes_need_all_headings() {
        let full: String = SCHEME_HEADINGS.iter().map(|name| format!("## {name}\n")).collect();
        let short = full.replace("## Validation\n", "");
        let page = |name: &str, text| text_file(&format!("docs/schemes/{name}.md"), text);
        assert_eq!(schemes(&[page("a", &full)]), Vec::<String>::new());
        assert_eq!(
            schemes(&[page("b", &short)]),
            ["docs/schemes/b.md:1: has no heading \"## Validation\""]
        );
    }

    #[test]
    fn links_and_commands_must_lead_somewhere() {
        let text = "[a](Cargo.toml) [b](nowhere.md) [c](https://x.y) [d](#here)\n\
            cargo xtask test, cargo xtask tset, cargo xtask COMMAND\n\
            cargo xtask tset\nfaircast run `scenarios/none.toml` scenarios/*.toml\n";
        let file = [text_file("README.md", text)];
        assert_eq!(links(&file), ["README.md:1: link to nowhere.md, which does not exist"]);
        assert_eq!(
            commands(&file),
            ["README.md:3: no task xtask tset", "README.md:4: no file scenarios/none.toml"]
        );
    }
}
