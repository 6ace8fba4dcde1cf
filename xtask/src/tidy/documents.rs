//! Rules for sources, documents and scenario files.

use std::path::Path;

use super::{TextFile, lines};
use crate::{COMMANDS, guide, new_scheme, shell};

/// Requires that every `src:` begins with a key of docs/references.md, such as "- `RFC 3208`: …".
pub(super) fn sources(files: &[TextFile]) -> Vec<String> {
    let references = lines(files, "md").filter(|(file, ..)| file.path == Path::new(REFERENCES));
    let key = |line: &'_ str| Some(line.strip_prefix("- `")?.split_once('`')?.0.to_string());
    let keys: Vec<String> = references.filter_map(|(.., line)| key(line)).collect();
    let mut complaints = Vec::new();
    for (file, number, line) in lines(files, "rs") {
        let Some((_, comment)) = line.split_once("//") else { continue };
        let Some((_, source)) = comment.split_once(MARK) else { continue };
        let names = |key: &String| {
            let rest = source.strip_prefix(key);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        if !keys.iter().any(names) {
            let source: String = source.chars().take(40).collect();
            let what = format!("source \"{source}\" is no key of {REFERENCES}");
            complaints.push(file.complaint(number, what));
        }
    }
    complaints
}

pub(super) fn schemes(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let folder = Some(Path::new("docs/schemes"));
    let is_page = |file: &&TextFile| file.path.parent() == folder && file.has_extension("md");
    for file in files.iter().filter(is_page) {
        let headings = file.lines().filter(|(_, line)| line.starts_with("##"));
        let headings: Vec<String> = headings.map(|(_, line)| line.to_lowercase()).collect();
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
    for (file, number, line) in lines(files, "md") {
        let folder = file.path.parent().unwrap_or(Path::new(""));
        for target in line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let elsewhere = target.is_empty() || target.contains([':', ' ']);
            if !elsewhere && !shell::root().join(folder).join(target).exists() {
                let what = format!("link to {target}, which does not exist");
                complaints.push(file.complaint(number, what));
            }
        }
    }
    complaints
}

pub(super) fn commands(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (file, number, line) in lines(files, "md") {
        let task = line
            .split("cargo xtask ")
            .nth(1)
            .and_then(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next());
        // `COMMAND` and the like are placeholders.
        if let Some(task) = task.filter(|task| task.starts_with(char::is_lowercase))
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
    complaints
}

pub(super) fn scenarios(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_scenario =
        |file: &&TextFile| file.path.starts_with("scenarios") && file.has_extension("toml");
    for file in files.iter().filter(is_scenario) {
        let table = match toml::de::DeTable::parse(&file.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                complaints.push(file.complaint(1, format!("not TOML: {}", error.message())));
                continue;
            }
        };
        if !table.contains_key("link") {
            continue;
        }
        let title = table.get("title").and_then(|title| title.get_ref().as_str());
        if !title.is_some_and(|title| title.ends_with('?')) {
            complaints.push(file.complaint(1, "has no title that ends in a question mark"));
        }
        if !file.lines().any(|(_, line)| line.trim_start().starts_with('#')) {
            complaints.push(file.complaint(1, "has no comment that explains it"));
        }
    }
    complaints
}

const REFERENCES: &str = "docs/references.md";
const MARK: &str = concat!("src", ": ");
const SCHEME_HEADINGS: [&str; 7] = [
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

    #[test]
    fn scenarios_must_ask_and_explain() {
        let good = text_file("scenarios/a.toml", "# Why.\ntitle = \"Is it fair?\"\n[[link]]\n");
        let mute = text_file("scenarios/b/c.toml", "title = \"Fairness\"\n[[link]]\n");
        let broken = text_file("scenarios/d.toml", "title =\n");
        let suite = text_file("scenarios/suite.toml", "seeds = 10\n");
        assert_eq!(scenarios(&[good, suite]), Vec::<String>::new());
        assert_eq!(scenarios(&[mute]).len(), 2);
        assert!(scenarios(&[broken])[0].starts_with("scenarios/d.toml:1: not TOML"));
    }
}
