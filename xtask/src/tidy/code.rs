//! Rules for code.

use super::{TextFile, lines};
use crate::deps::PURE;
use crate::shell;
use crate::workspace::Crate;

/// Limits the length of source files, without their tests, whose tables of cases may be long.
pub(super) fn lengths(files: &[TextFile]) -> Vec<String> {
    let is_source = |file: &&TextFile| ["rs", "py", "js"].iter().any(|e| file.has_extension(e));
    let is_test = |file: &&TextFile| file.is_below("tests") || file.path.ends_with("tests.rs");
    let source = files.iter().filter(is_source).filter(|file| !is_test(file));
    let counted = source.map(|file| (file, file.text.lines().count()));
    let long = counted.filter(|(_, count)| *count > LINES_MAX);
    long.map(|(file, count)| {
        file.complaint(count, format!("{count} lines; allowed: {LINES_MAX}; split the file"))
    })
    .collect()
}

pub(super) fn leftovers(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        for (number, line) in file.lines() {
            let words = LEFTOVERS.iter().filter(|word| has_word(line, word));
            let complaint = |word| file.complaint(number, format!("left over: {word}"));
            complaints.extend(words.map(complaint));
        }
    }
    complaints
}

/// Requires `no_std` of the pure crates, which proves them pure; the simulator has a list of names.
pub(super) fn pure_crates(files: &[TextFile], crates: &[Crate]) -> Vec<String> {
    let mut complaints = Vec::new();
    let find = |path: &str| files.iter().find(|file| file.path.as_os_str() == path);
    for found in crates.iter().filter(|found| PURE.contains(&found.name.as_str())) {
        let folder = format!("crates/{}/src/", found.name);
        if let Some(file) = find(&format!("{folder}lib.rs"))
            && !file.lines().any(|(_, line)| line.trim() == "#![no_std]")
        {
            complaints.push(file.complaint(1, "must say #![no_std]: the crate is pure"));
        }
        let own = files.iter().filter(|file| file.path.starts_with(&folder));
        complaints.extend(own.flat_map(names_std));
    }
    let rules = "crates/sim/clippy.toml";
    let banned = ["std::time::Instant", "std::collections::HashMap", "std::net::UdpSocket"];
    let lists = |file: &TextFile| banned.iter().all(|path| file.text.contains(path));
    if crates.iter().any(|found| found.name == "sim") && !find(rules).is_some_and(lists) {
        complaints.push(format!("{rules}:1: must disallow clocks, hash maps and sockets"));
    }
    complaints
}

/// `no_std` removes the standard library from the prelude, but a crate can still name it.
fn names_std(file: &TextFile) -> Vec<String> {
    let before = [""].into_iter().chain(file.text.lines().map(str::trim));
    let lines = file.lines().zip(before);
    let named = lines.filter(|((_, line), before)| {
        line.contains("extern crate std") && *before != "#[cfg(test)]"
    });
    let what = "a pure crate names std in its tests alone";
    named.map(|((number, _), _)| file.complaint(number, what)).collect()
}

pub(super) fn addresses(files: &[TextFile]) -> Vec<String> {
    let protocols =
        lines(files, "rs").filter(|(file, ..)| file.path.starts_with("crates/proto/src"));
    let named =
        protocols.filter(|(.., line)| line.contains("SocketAddr") || line.contains("IpAddr"));
    named.map(|(file, line, _)| file.complaint(line, "a network address in a protocol")).collect()
}

pub(super) fn lints(files: &[TextFile], crates: &[Crate]) -> Vec<String> {
    let manifests = crates.iter().filter_map(|found| {
        let path = found.manifest.strip_prefix(shell::root()).unwrap_or(&found.manifest);
        files.iter().find(|file| file.path == path)
    });
    let lacking = manifests.filter(|file| !file.text.contains("[lints]\nworkspace = true"));
    lacking.map(|file| file.complaint(1, "must have [lints] workspace = true")).collect()
}

const UNSAFE: &[&str] = &["crates/relay-sdk/src/program.rs", "crates/relay-sdk/src/lib.rs"];

pub(super) fn unsafety(files: &[TextFile]) -> Vec<String> {
    let allows = concat!("(unsafe", "_code");
    let is_allowed = |file: &TextFile| UNSAFE.iter().any(|it| file.path.ends_with(it));
    let lines =
        lines(files, "rs").filter(|(file, _, line)| line.contains(allows) && !is_allowed(file));
    let what = "programs and their hosts alone may do that";
    lines.map(|(file, number, _)| file.complaint(number, what)).collect()
}

fn has_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(inner) && !line[at + word.len()..].starts_with(inner))
}

const LINES_MAX: usize = 1000;
/// Written in two halves, so that this file passes its own check.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("unimple", "mented!"),
    concat!("to", "do!"),
];

#[cfg(test)]
mod tests {
    use super::super::text_file;
    use super::*;

    #[test]
    fn long_files_are_complained_of_unless_they_are_tests() {
        let long = "x\n".repeat(1001);
        let files = ["a/src/b.rs", "a/tests/b.rs", "a/src/tests.rs", "a/src/b.txt"];
        let files: Vec<TextFile> = files.iter().map(|path| text_file(path, &long)).collect();
        let complaints = lengths(&files);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].starts_with("a/src/b.rs:1001: 1001 lines"), "{complaints:?}");
    }

    #[test]
    fn leftover_words_are_found_as_words_only() {
        let word = LEFTOVERS[0];
        let text = format!("ok\n// {word}: later\n{word}S\nA_{word}\n");
        assert_eq!(leftovers(&[text_file("a.rs", &text)]), [format!("a.rs:2: left over: {word}")]);
        assert_eq!(leftovers(&[text_file("a.rs", &format!("{}()", LEFTOVERS[4]))]).len(), 1);
    }

    #[test]
    fn protocols_name_no_address() {
        let found = |path| addresses(&[text_file(path, "use core::net::SocketAddr;")]).len();
        assert_eq!((found("crates/proto/src/a.rs"), found("crates/net/src/a.rs")), (1, 0));
    }

    #[test]
    fn unsafe_code_is_allowed_where_programs_meet_their_hosts() {
        let text = concat!("#[allow(unsafe", "_code, reason = \"speed\")]\n");
        let files = ["crates/net/src/lib.rs", UNSAFE[0]].map(|path| text_file(path, text));
        assert_eq!(unsafety(&files).len(), 1);
    }

    #[test]
    fn a_pure_crate_must_say_so() {
        let crates = ["base", "sim", "cli"].map(|name| {
            let manifest = shell::root().join(format!("crates/{name}/Cargo.toml"));
            let (name, uses, tests) = (name.to_string(), Vec::new(), Vec::new());
            Crate { package: format!("faircast-{name}"), name, manifest, uses, tests }
        });
        let impure = [
            text_file("crates/base/src/lib.rs", "//! Docs.\n"),
            text_file("crates/cli/src/lib.rs", "//! Docs.\n"),
            text_file("crates/cli/Cargo.toml", "[package]\n"),
        ];
        assert_eq!(pure_crates(&impure, &crates).len(), 2);
        let sneaky = text_file(
            "crates/base/src/lib.rs",
            "#![no_std]\n#[cfg(test)]\nextern crate std;\npub extern crate std as system;\n",
        );
        let complaints = pure_crates(&[sneaky], &crates);
        assert!(complaints[0].starts_with("crates/base/src/lib.rs:4:"), "{complaints:?}");
        assert_eq!(lints(&impure, &crates).len(), 1);
        let pure = [
            text_file("crates/base/src/lib.rs", "//! Docs.\n#![no_std]\n"),
            text_file(
                "crates/sim/clippy.toml",
                "std::time::Instant std::collections::HashMap std::net::UdpSocket",
            ),
            text_file("crates/cli/Cargo.toml", "[lints]\nworkspace = true\n"),
        ];
        assert_eq!(pure_crates(&pure, &crates), Vec::<String>::new());
        assert_eq!(lints(&pure, &crates), Vec::<String>::new());
    }
}
