//! `cargo xtask new-scheme NAME`: the scheme of docs/your-own-scheme.md under another name, with
//! its folder of tests, its line in the catalog, its page and a scenario.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::shell;

/// A file of the template: its text, and where it goes, with NAME for the scheme's.
const TEMPLATE: &[(&str, &str)] = &[
    (include_str!("new_scheme/template/mod.rs"), "crates/proto/src/congestion/NAME/mod.rs"),
    (include_str!("new_scheme/template/tests.rs"), "crates/proto/src/congestion/NAME/tests.rs"),
    (include_str!("new_scheme/template/page.md"), "docs/schemes/NAME.md"),
    (include_str!("new_scheme/template/scenario.toml"), "scenarios/NAME-beside-tcp.toml"),
];

const MODULES: &str = "crates/proto/src/congestion/mod.rs";
const CATALOG_CODE: &str = "crates/proto/src/catalog.rs";
/// The catalog's table, to whose end the row goes.
const ROWS: &str = "pub const SCHEMES: &[SchemeEntry] =";
/// Numbers of options that are free for schemes that are being made.
const NUMBERS: std::ops::Range<u8> = 0x40..0x7f;
const NAME_LEN_MAX: usize = 16;
/// Where the names of all protocols and programs are, which no scheme may have too.
const CATALOG: &[&str] = &["crates/sim/src/builtin.rs", CATALOG_CODE];

/// Makes the scheme in the repository at `root`. Returns what was written, for people.
pub(crate) fn make(root: &Path, name: &str) -> Result<String, String> {
    check(name, &catalog(root)?)?;
    let place = |path: &str| root.join(path.replace("NAME", name));
    for (_, path) in TEMPLATE {
        if place(path).exists() {
            return Err(format!("{} is there already", path.replace("NAME", name)));
        }
    }
    let modules = read(root, MODULES)?;
    let code = read(root, CATALOG_CODE)?;
    let (modules, code) = (with_module(&modules, name), with_row(&code, name)?);
    let number = free_number(&root.join("crates/proto/src/congestion"))?;
    let mut written = Vec::new();
    let mut write = |path: &str, text: &str| {
        let path = path.replace("NAME", name);
        let full = root.join(&path);
        let folder = full.parent().expect("a file lies in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&full, text))
            .map_err(|error| format!("{path} cannot be written: {error}"))?;
        written.push(path);
        Ok::<(), String>(())
    };
    for (text, path) in TEMPLATE {
        write(path, &renamed(text, name, number))?;
    }
    write(MODULES, &modules)?;
    write(CATALOG_CODE, &code)?;
    format(&written, root)?;
    let mut words = String::from("written:\n");
    written.iter().for_each(|path| words.push_str(&format!("  {path}\n")));
    words.push_str(&format!(
        "\nIt works as it is; change it into yours.\n  \
         cargo test -p faircast-proto congestion::{name}\n  \
         cargo test -p faircast-sim --test contract --test memory\n  \
         cargo run --release -- run scenarios/{name}-beside-tcp.toml\n  \
         cargo run --release -- bench matrix --scheme {name}\n\
         docs/your-own-scheme.md explains each part.\n"
    ));
    Ok(words)
}

/// Whether making a scheme of this name makes this file.
pub(crate) fn makes(name: &str, path: &str) -> bool {
    TEMPLATE.iter().any(|(_, place)| place.replace("NAME", name) == path)
}

/// Whether a scheme can be called so, where the names of `catalog` are others'.
fn check(name: &str, catalog: &BTreeSet<String>) -> Result<(), String> {
    let Some(why) = objection(name, catalog) else { return Ok(()) };
    let others = [format!("{name}cc"), format!("my{name}"), format!("{name}2")];
    let other = others.iter().find(|other| objection(other, catalog).is_none());
    let advice = other.map(|other| format!("; `{other}` could be")).unwrap_or_default();
    Err(format!("`{name}` {why}{advice}"))
}

/// Why a scheme cannot be called so.
fn objection(name: &str, catalog: &BTreeSet<String>) -> Option<String> {
    let fine = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.len() <= NAME_LEN_MAX;
    if !fine {
        return Some(format!(
            "is no name for a scheme: a small letter, then small letters and digits, \
             {NAME_LEN_MAX} at most"
        ));
    }
    if KEYWORDS.contains(&name) {
        return Some("cannot be the name of a module".to_string());
    }
    // Also the word that a family of them begins with: traces know TCP by it.
    if catalog.iter().any(|other| other.split('-').next() == Some(name) || other == name) {
        return Some("cannot be the name, since something else has it".to_string());
    }
    None
}

/// The names of all protocols and programs: every quoted word of the sources that list them, and
/// the modules beside them.
fn catalog(root: &Path) -> Result<BTreeSet<String>, String> {
    let is_name = |word: &&str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !word.is_empty() && word.chars().all(fits)
    };
    let modules = read(root, MODULES)?;
    let module = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_string())
    };
    let mut names: BTreeSet<String> = modules.lines().filter_map(module).collect();
    for path in CATALOG {
        let text = read(root, path)?;
        // What comes after the list itself are tests.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        names.extend(code.split('"').skip(1).step_by(2).filter(is_name).map(String::from));
    }
    Ok(names)
}

/// Words of the language that consist of what a name may.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Prefix of the template's types, which makes their names unique.
const TEMPLATE_TYPE: &str = "Aimd";

/// The template under another name, with another number of its option.
fn renamed(text: &str, name: &str, number: u8) -> String {
    text.replace("aimd", name)
        .replace(TEMPLATE_TYPE, &type_name(name))
        .replace("0x40", &hex(number))
}

fn type_name(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

fn hex(number: u8) -> String {
    format!("{number:#04x}")
}

/// With the module in its place by name.
fn with_module(modules: &str, name: &str) -> String {
    let line = format!("pub mod {name};");
    let mut lines: Vec<&str> = modules.lines().collect();
    let is_module = |text: &str| text.starts_with("pub mod ");
    let at = lines.iter().position(|text| is_module(text) && *text > line.as_str());
    let end = lines.iter().rposition(|text| is_module(text)).map_or(lines.len(), |last| last + 1);
    lines.insert(at.unwrap_or(end), &line);
    lines.join("\n") + "\n"
}

/// With a row at the end of the table.
fn with_row(code: &str, name: &str) -> Result<String, String> {
    let row = format!("SchemeEntry::of::<crate::congestion::{name}::{}Scheme>()", type_name(name));
    let start = code.find(ROWS).ok_or(format!("{CATALOG_CODE} has no `{ROWS}`"))?;
    let end = code[start..].find("];").ok_or(format!("the table in {CATALOG_CODE} has no end"))?;
    let (before, after) = code.split_at(start + end);
    let comma = if before.trim_end().ends_with([',', '[']) { "" } else { ", " };
    Ok(format!("{before}{comma}{row}{after}"))
}

/// The first number that no scheme's option has.
fn free_number(schemes: &Path) -> Result<u8, String> {
    let mut used = String::new();
    collect(schemes, &mut used).map_err(|error| format!("{}: {error}", schemes.display()))?;
    let taken = |number: &u8| used.contains(&format!("OPTION: u8 = {};", hex(*number)));
    let mut free = NUMBERS.filter(|number| !taken(number));
    free.next().ok_or("all numbers of options are taken".to_string())
}

/// The text of all sources below a folder.
fn collect(folder: &Path, text: &mut String) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, text)?,
            false => text.push_str(&fs::read_to_string(&path)?),
        }
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

fn format(written: &[String], root: &Path) -> Result<(), String> {
    let sources = written.iter().filter(|path| path.ends_with(".rs"));
    let sources: Vec<PathBuf> = sources.map(|path| root.join(path)).collect();
    let mut arguments = vec!["--edition", "2024"];
    let config = root.join("rustfmt.toml");
    let config = config.to_string_lossy();
    arguments.extend(["--config-path", &config]);
    arguments.extend(sources.iter().filter_map(|path| path.to_str()));
    shell::run("rustfmt", &arguments, &[])
}

#[cfg(test)]
mod tests;
