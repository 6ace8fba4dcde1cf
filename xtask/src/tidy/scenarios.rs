//! Rules for scenario files.

use std::path::Path;

use super::TextFile;

pub(super) fn questions(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let scenarios = files
        .iter()
        .filter(|file| file.path.starts_with(Path::new("scenarios")) && file.has_extension("toml"));
    for file in scenarios {
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

#[cfg(test)]
mod tests {
    use super::super::text_file;
    use super::*;

    #[test]
    fn scenarios_must_ask_and_explain() {
        let good = text_file("scenarios/a.toml", "# Why.\ntitle = \"Is it fair?\"\n[[link]]\n");
        let mute = text_file("scenarios/b/c.toml", "title = \"Fairness\"\n[[link]]\n");
        let broken = text_file("scenarios/d.toml", "title =\n");
        let suite = text_file("scenarios/suite.toml", "seeds = 10\n");
        assert_eq!(questions(&[good, suite]), Vec::<String>::new());
        assert_eq!(questions(&[mute]).len(), 2);
        assert!(questions(&[broken])[0].starts_with("scenarios/d.toml:1: not TOML"));
    }
}
