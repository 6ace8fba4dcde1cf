//! `faircast schemes`: lists the names that a scenario may use.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use faircast_proto::options::{OptionKind, OptionSpec};
use faircast_scenario::Catalog;
use serde_json::{Value, json};

use crate::args::SchemesArgs;
use crate::error::{Failure, Result, print};
use crate::live::words::wrapped;

struct Entry {
    kind: &'static str,
    name: String,
    about: String,
    options: Vec<OptionSpec>,
}

pub(crate) fn schemes(args: &SchemesArgs) -> Result {
    let all = entries(&faircast_sim::catalog());
    let chosen: Vec<&Entry> = match &args.name {
        None => all.iter().collect(),
        // A protocol and the router program for it may share one name.
        Some(wanted) => all.iter().filter(|entry| entry.name == *wanted).collect(),
    };
    if chosen.is_empty() {
        let names: BTreeSet<_> = all.iter().map(|entry| &*entry.name).collect();
        return Err(Failure::Usage(format!(
            "no protocol or router program is called \"{}\"; there are {}",
            args.name.as_deref().unwrap_or_default(),
            names.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    if args.json {
        let rows: Vec<_> = chosen.iter().map(|entry| row(entry)).collect();
        let text = serde_json::to_string_pretty(&rows).expect("plain values serialise");
        return print(&format!("{text}\n"));
    }
    print(&match args.name {
        Some(_) => chosen.into_iter().map(details).collect::<Vec<_>>().join("\n"),
        None => overview(&chosen),
    })
}

fn entries(catalog: &Catalog) -> Vec<Entry> {
    let protocols = catalog.protocols.iter().map(|stack| Entry {
        kind: "protocol",
        name: stack.name(),
        about: stack.about(),
        options: stack.options(),
    });
    let programs = catalog.programs.iter().map(|program| Entry {
        kind: "router program",
        name: program.name.to_string(),
        about: program.about.to_string(),
        options: program.options.to_vec(),
    });
    protocols.chain(programs).collect()
}

fn overview(entries: &[&Entry]) -> String {
    let mut text = String::new();
    let mut kind = "";
    for entry in entries {
        if entry.kind != kind {
            let space = if kind.is_empty() { "" } else { "\n" };
            kind = entry.kind;
            let _ = writeln!(text, "{space}{kind}s");
        }
        let count = entry.options.len();
        let _ = writeln!(text, "  {:<12} {:<74} {count:>2} options", entry.name, entry.about);
    }
    text.push_str("\n`faircast schemes NAME` tells what the options of one do.\n");
    text
}

fn details(entry: &Entry) -> String {
    let mut text = format!("{} ({}): {}\n", entry.name, entry.kind, entry.about);
    for option in &entry.options {
        let (name, default, allowed) = (option.name, option.default, allowed(option.kind));
        let _ = writeln!(text, "\n  {name} = {default}");
        text.push_str(&wrapped("      ", option.doc, 96));
        text.push_str(&wrapped("      ", &format!("Allowed: {allowed}."), 96));
    }
    let Some(OptionSpec { name, .. }) = entry.options.first() else {
        text.push_str("\nIt has no options.\n");
        return text;
    };
    let of = match entry.kind {
        "protocol" => format!("run FILE --set flow.NAME.options.{name}"),
        _ => format!("run FILE --set node.NAME.options.{name}"),
    };
    let _ = writeln!(text, "\nIn a scenario: options = {{ ... }}, or\n`faircast {of}=...`.");
    text
}

fn allowed(kind: OptionKind) -> String {
    match kind {
        OptionKind::Bool => "true or false".to_string(),
        OptionKind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        OptionKind::Float { min, max } => format!("a number from {min} to {max}"),
        OptionKind::Duration { min_ns, max_ns } => {
            let bound = faircast_base::Duration::from_nanos;
            format!("a duration from {} to {}", bound(min_ns), bound(max_ns))
        }
        OptionKind::Rate { min_bits_per_s, max_bits_per_s } => {
            let bound = faircast_base::Bitrate::from_bits_per_s;
            format!("a rate from {} to {}", bound(min_bits_per_s), bound(max_bits_per_s))
        }
        OptionKind::Choice(words) => format!("one of {}", words.join(", ")),
        OptionKind::File { max_bytes } => format!("a file of 1 to {max_bytes} bytes"),
    }
}

fn row(entry: &Entry) -> Value {
    let option = |option: &OptionSpec| {
        let OptionSpec { name, kind, default, doc } = option;
        json!({ "name": name, "default": default, "allowed": allowed(*kind), "doc": doc })
    };
    let options: Vec<Value> = entry.options.iter().map(option).collect();
    let Entry { kind, name, about, .. } = entry;
    json!({ "kind": kind, "name": name, "about": about, "options": options })
}
