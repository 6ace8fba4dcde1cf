//! Help, completions and man pages.

use super::*;

const VERBS: &str = "check run bench demo report schemes node pub sub completions man";

#[test]
fn completions_and_man_pages_know_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let text = succeed(&format!("completions {shell}"));
        let missing: Vec<_> = VERBS.split(' ').filter(|verb| !text.contains(verb)).collect();
        assert!(missing.is_empty() && text.contains("seed"), "{shell}: {missing:?}");
    }
    let page = succeed("man");
    let site = site::Site::with("");
    site.succeed("man --out man1");
    for verb in VERBS.split(' ') {
        assert!(page.contains(&format!("faircast\\-{verb}(1)")), "{verb}: {page}");
        let page = site.read(&format!("man1/faircast-{verb}.1"));
        assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{verb}: {page}");
    }
    assert!(site.path("man1/faircast.1").is_file());
}

#[test]
fn every_verb_explains_itself() {
    let help = succeed("--help");
    for verb in VERBS.split(' ') {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb}: {help}");
        let help = succeed(&format!("{verb} --help"));
        assert!(help.starts_with(|c: char| c.is_uppercase()) && help.contains("Usage:"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    assert_eq!(succeed("--version"), format!("faircast {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn schemes_lists_everything_that_a_scenario_may_name() {
    let catalog = faircast_sim::catalog();
    let overview = succeed("schemes");
    let rows = json("schemes --json");
    let protocols = catalog.protocols.iter().map(|stack| (stack.name(), stack.options()));
    let programs = catalog.programs.iter();
    let programs = programs.map(|entry| (entry.name.to_string(), entry.options.to_vec()));
    for (index, (name, options)) in protocols.chain(programs).enumerate() {
        assert!(overview.contains(&format!("\n  {name} ")), "{name}: {overview}");
        assert_eq!(rows[index]["name"], name);
        let details = succeed(&format!("schemes {name}"));
        for (place, option) in options.iter().enumerate() {
            assert!(details.contains(&format!("\n  {} = ", option.name)), "{name}: {details}");
            let row = &rows[index]["options"][place];
            assert_eq!(row["name"], option.name);
            assert!(!row["doc"].as_str().unwrap().is_empty(), "{row}");
        }
        assert!(details.lines().all(|line| line.chars().count() <= 100), "{details}");
    }
    assert_eq!(rows.as_array().unwrap().len(), catalog.protocols.len() + catalog.programs.len());
}
