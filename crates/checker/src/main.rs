//! Program `faircast-check`: reads traces, prints violations, exits with 0, 1 or 2.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use faircast_checker::{Rule, Trace, check};

/// Checks traces of group communication against the rules of extended virtual synchrony.
///
/// Exit status: 0 without violations, 1 with violations, 2 if arguments or files cannot be used.
#[derive(Parser)]
struct Arguments {
    /// Traces of one run (JSON lines), or directories with traces that are called *.jsonl
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Rules to report; default: all. Example: --rules R1,R5
    #[arg(long, value_delimiter = ',')]
    rules: Vec<Rule>,
    /// Print violations as lines of JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("faircast-check: {error}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let mut sources = Vec::new();
    for path in &arguments.paths {
        let named = |error| io::Error::other(format!("{}: {error}", path.display()));
        let mut files = vec![path.clone()];
        if path.is_dir() {
            files = fs::read_dir(path).map_err(named)?.flatten().map(|it| it.path()).collect();
            files.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
            files.sort();
        }
        for path in files {
            let file = File::open(&path).map_err(named)?;
            sources.push((path.display().to_string(), BufReader::new(file)));
        }
    }
    let trace = Trace::read(sources)?;
    let [lives, deliveries, quiet] = trace.counts();
    if lives == 0 {
        return Err(io::Error::other("no process in these files; give traces of JSON lines"));
    }
    let mut found = check(&trace);
    found.retain(|it| arguments.rules.is_empty() || arguments.rules.contains(&it.rule));
    let mut out = io::stdout().lock();
    for violation in &found {
        let json = arguments.json.then(|| serde_json::to_string(violation)).transpose()?;
        writeln!(out, "{}", json.unwrap_or_else(|| violation.to_string()))?;
    }
    let count = found.len();
    eprintln!("{lives} incarnations, {quiet} quiet, {deliveries} deliveries, {count} violations");
    Ok(ExitCode::from(u8::from(!found.is_empty())))
}
