//! `cargo xtask new-scheme NAME`: the scheme of docs/your-own-scheme.md under another name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::shell;

/// The page whose code becomes the scheme.
const GUIDE: &str = include_str!("../../docs/your-own-scheme.md");

/// Files of a scheme, with NAME for its name.
const PATHS: [&str; 4] = [
    "crates/proto/src/congestion/NAME/mod.rs",
    "crates/proto/src/congestion/NAME/tests.rs",
    "docs/schemes/NAME.md",
    "scenarios/NAME-beside-tcp.toml",
];

/// Returns the texts of the files, for the scheme of the guide.
fn texts() -> [String; 4] {
    let blocks = GUIDE.split("```rust\n").skip(1);
    let code: Vec<&str> = blocks.filter_map(|block| block.split("```").next()).collect();
    let others = [
        include_str!("new_scheme/template/tests.rs"),
        include_str!("new_scheme/template/page.md"),
        include_str!("new_scheme/template/scenario.toml"),
    ];
    let [tests, page, scenario] = others.map(str::to_string);
    [code.join("\n"), tests, page, scenario]
}

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
    if let Some(why) = objection(name, &catalog(root)?) {
        return Err(format!("`{name}` {why}"));
    }
    let place = |path: &str| root.join(path.replace("NAME", name));
    for path in PATHS {
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
    for (text, path) in texts().iter().zip(PATHS) {
        write(path, &renamed(text, name, number))?;
    }
    write(MODULES, &modules)?;
    write(CATALOG_CODE, &code)?;
    format(&written, root)?;
    let written: String = written.iter().map(|path| format!("  {path}\n")).collect();
    Ok(format!(
        "written:\n{written}\nIt works as it is; change it into yours.\n  \
         cargo test -p faircast-proto congestion::{name}\n  \
         cargo test -p faircast-sim --test contract --test memory\n  \
         cargo run --release -- run scenarios/{name}-beside-tcp.toml\n  \
         cargo run --release -- bench matrix --scheme {name}\n\
         docs/your-own-scheme.md explains each part.\n"
    ))
}

pub(crate) fn makes(name: &str, path: &str) -> bool {
    PATHS.iter().any(|place| place.replace("NAME", name) == path)
}

fn objection(name: &str, catalog: &BTreeSet<String>) -> Option<String> {
    let fine = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.len() <= NAME_LEN_MAX;
    // Also the word that a family of them begins with: traces know TCP by it.
    let has_name = |other: &String| other.split('-').next() == Some(name) || other == name;
    Some(match name {
        _ if !fine => format!(
            "is no name for a scheme: a small letter, then small letters and digits, \
             {NAME_LEN_MAX} at most"
        ),
        _ if KEYWORDS.contains(&name) => "cannot be the name of a module".to_string(),
        _ if catalog.iter().any(has_name) => {
            "cannot be the name, since something else has it".to_string()
        }
        _ => return None,
    })
}

/// Names of all protocols and programs: quoted words of sources that list them, and modules.
fn catalog(root: &Path) -> Result<BTreeSet<String>, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = |word: &&str| !word.is_empty() && word.chars().all(fits);
    let modules = read(root, MODULES)?;
    let module = |line: &str| {
        Some(line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?.to_string())
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

const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Prefix of the template's types, which makes their names unique.
const TEMPLATE_TYPE: &str = "Aimd";

fn renamed(text: &str, name: &str, number: u8) -> String {
    text.replace("aimd", name)
        .replace(TEMPLATE_TYPE, &type_name(name))
        .replace("0x40", &format!("{number:#04x}"))
}

fn type_name(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

fn with_module(modules: &str, name: &str) -> String {
    let line = format!("pub mod {name};");
    let mut lines: Vec<&str> = modules.lines().collect();
    let is_module = |text: &str| text.starts_with("pub mod ");
    let at = lines.iter().position(|text| is_module(text) && *text > line.as_str());
    let end = lines.iter().rposition(|text| is_module(text)).map_or(lines.len(), |last| last + 1);
    lines.insert(at.unwrap_or(end), &line);
    lines.join("\n") + "\n"
}

fn with_row(code: &str, name: &str) -> Result<String, String> {
    let row = format!("SchemeEntry::of::<crate::congestion::{name}::{}Scheme>()", type_name(name));
    let start = code.find(ROWS).ok_or(format!("{CATALOG_CODE} has no `{ROWS}`"))?;
    let end = code[start..].find("];").ok_or(format!("the table in {CATALOG_CODE} has no end"))?;
    let (before, after) = code.split_at(start + end);
    let comma = if before.trim_end().ends_with([',', '[']) { "" } else { ", " };
    Ok(format!("{before}{comma}{row}{after}"))
}

fn free_number(schemes: &Path) -> Result<u8, String> {
    let mut used = String::new();
    collect(schemes, &mut used).map_err(|error| format!("{}: {error}", schemes.display()))?;
    let taken = |number: &u8| used.contains(&format!("OPTION: u8 = {number:#04x};"));
    let mut free = NUMBERS.filter(|number| !taken(number));
    free.next().ok_or("all numbers of options are taken".to_string())
}

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
    let config = root.join("rustfmt.toml");
    let config = config.to_string_lossy();
    let mut arguments = vec!["--edition", "2024", "--config-path", &config];
    arguments.extend(sources.iter().filter_map(|path| path.to_str()));
    shell::run("rustfmt", &arguments, &[])
}

#[cfg(test)]
mod tests;
