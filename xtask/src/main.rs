//! All checks of the repository in one command: `cargo xtask test`.

mod deps;
mod fuzz;
mod guide;
mod new_scheme;
mod packages;
mod readme;
mod shell;
mod steps;
mod tidy;
mod workspace;

use std::process::ExitCode;

pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("test", "install what is missing, then run every check and all tests"),
    ("tidy", "check what no compiler checks: file lengths, sources, headings, scenario titles"),
    ("fmt", "format all code"),
    ("new-scheme", "NAME: make a small scheme that works, to be changed into one's own"),
    ("guide", "follow docs/your-own-scheme.md in a copy of the repository"),
    (
        "fuzz",
        "TARGET [--minutes 60]: fuzz with AFL++, guided by coverage; renews fuzz/corpus/TARGET",
    ),
    ("help", "print this"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((command, options)) = words.split_first() else {
        eprint!("{}", help());
        return ExitCode::from(2);
    };
    match (*command, options) {
        ("test", options) => match steps::Options::parse(options) {
            Ok(options) => steps::test(options),
            Err(message) => wrong(&message),
        },
        ("tidy" | "guide", []) => steps::only(command),
        ("fmt", []) => match shell::run("cargo", &["fmt", "--all"], &[]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => wrong(&message),
        },
        ("fuzz", options) => match fuzz::Options::parse(options) {
            Some(options) => fuzz::fuzz(&options),
            None => wrong(fuzz::USAGE),
        },
        ("new-scheme", [name]) => match new_scheme::make(shell::root(), name) {
            Ok(words) => {
                print!("{words}");
                ExitCode::SUCCESS
            }
            Err(message) => {
                eprintln!("{message}");
                ExitCode::FAILURE
            }
        },
        ("new-scheme", _) => wrong("new-scheme needs the name of the scheme, and nothing else"),
        ("help" | "--help" | "-h", _) => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        _ => wrong(&format!("unknown: {}", words.join(" "))),
    }
}

fn help() -> String {
    let mut text = "usage: cargo xtask COMMAND\n\n".to_string();
    for (name, what) in COMMANDS {
        text.push_str(&format!("  {name:10} {what}\n"));
    }
    text.push_str("\noptions of test:\n");
    for (name, what) in steps::OPTIONS {
        text.push_str(&format!("  {name:18} {what}\n"));
    }
    text.push_str("\nexit status: 0 all is well, 1 a check failed, 2 wrong arguments\n");
    text
}

fn wrong(message: &str) -> ExitCode {
    eprint!("{message}\n\n{}", help());
    ExitCode::from(2)
}
