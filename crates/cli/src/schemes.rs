//! `faircast schemes`: what a scenario may name.

use std::fmt::Write as _;

use faircast_proto::options::{OptionKind, OptionSpec};
use faircast_scenario::Catalog;

use crate::args::SchemesArgs;
use crate::error::{Failure, print};

/// Prints protocols and router programs with their options.
pub(crate) fn schemes(args: &SchemesArgs) -> Result<(), Failure> {
    let Catalog { protocols, programs } = faircast_sim::catalog();
    let all = protocols
        .iter()
        .map(|entry| ("protocol", entry.name, entry.options))
        .chain(programs.iter().map(|entry| ("program", entry.name, entry.options)));
    let chosen: Vec<_> = all
        .filter(|(_, name, _)| args.name.as_deref().is_none_or(|wanted| wanted == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = protocols.iter().map(|entry| entry.name).collect();
        let wanted = args.name.as_deref().unwrap_or_default();
        return Err(Failure::Usage(format!(
            "no protocol or program is called \"{wanted}\"; there are {}",
            names.join(", ")
        )));
    }
    if args.json {
        let rows: Vec<_> =
            chosen.iter().map(|(kind, name, options)| json(kind, name, options)).collect();
        let text = serde_json::to_string_pretty(&rows).expect("plain values serialise");
        return print(&format!("{text}\n"));
    }
    let mut text = String::new();
    for (kind, name, options) in chosen {
        let _ = writeln!(text, "{name} ({kind})");
        if args.name.is_none() {
            let names: Vec<_> = options.iter().map(|option| option.name).collect();
            let _ = writeln!(text, "  options: {}\n", names.join(", "));
            continue;
        }
        for option in options {
            let (name, default, allowed) = (option.name, option.default, allowed(option.kind));
            let _ = writeln!(text, "\n  {name} = {default}\n      {allowed}\n      {}", option.doc);
        }
    }
    if args.name.is_none() {
        text.push_str("faircast schemes NAME tells what the options of one do.\n");
    }
    print(&text)
}

/// The values that an option takes, in words.
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
    }
}

fn json(kind: &str, name: &str, options: &[OptionSpec]) -> serde_json::Value {
    let options: Vec<_> = options
        .iter()
        .map(|option| {
            serde_json::json!({
                "name": option.name, "default": option.default,
                "allowed": allowed(option.kind), "doc": option.doc,
            })
        })
        .collect();
    serde_json::json!({ "kind": kind, "name": name, "options": options })
}
