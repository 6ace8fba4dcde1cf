//! Allowed dependencies between our crates, as in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::Crate;

/// Allowed direct and indirect dependencies. A crate without an entry is rejected.
const MAY_USE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("link", &["base"]),
    ("relay-sdk", &[]),
    ("checker", &[]),
    ("proto", &["base", "relay-sdk"]),
    ("programs", &["proto", "relay-sdk"]),
    ("overlay", &["base", "proto"]),
    ("trace", &["base"]),
    ("scenario", &["base", "link", "overlay", "proto"]),
    ("sim", &["base", "hop", "link", "overlay", "programs", "proto", "trace", "scenario"]),
    ("report", &["base", "trace"]),
    ("seal", &["base"]),
    ("files", &["base", "proto"]),
    ("hop", &["base", "overlay", "proto"]),
    ("net", &["base", "hop", "proto", "trace"]),
    ("node", &["hop", "net", "overlay", "seal"]),
    ("faircast", &["hop", "net", "node", "files", "programs", "seal"]),
    ("lab", &["net", "sim"]),
    ("study", &["report", "sim"]),
    ("experiment", &["checker", "faircast", "lab", "node", "overlay", "seal", "study"]),
    ("cli", &["experiment", "faircast"]),
    ("xtask", &[]),
];

/// Crates without access to the outside: `no_std`, and built for a platform without a system.
pub(crate) const PURE: &[&str] = &["base", "link", "relay-sdk", "proto", "overlay"];

/// Crates built for that platform: the pure ones, `sim`, which is pure by lints, and `study`, which
/// reads and writes files but knows no operating system.
pub(crate) const PORTABLE: &[&str] =
    &["base", "link", "relay-sdk", "proto", "overlay", "sim", "study"];

pub(crate) fn check(crates: &[Crate]) -> Result<String, String> {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut edges = 0;
    for found in crates {
        if !table.contains_key(found.name.as_str()) {
            wrong.push(format!("{}: not in the table of xtask/src/deps.rs", found.name));
            continue;
        }
        let allowed = closure(&found.name, &table);
        edges += found.uses.len();
        for used in found.uses.iter().filter(|used| !allowed.contains(used.as_str())) {
            let allowed = Vec::from_iter(allowed.iter().copied()).join(", ");
            wrong.push(format!("{} uses {used}; allowed: {allowed}", found.name));
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    Ok(format!("{} crates, {edges} edges, all allowed", crates.len()))
}

fn closure<'t>(name: &str, table: &BTreeMap<&'t str, &'t [&'t str]>) -> BTreeSet<&'t str> {
    let mut all = BTreeSet::new();
    let mut open: Vec<&str> = table.get(name).copied().unwrap_or_default().to_vec();
    while let Some(next) = open.pop() {
        if all.insert(next) {
            open.extend(table.get(next).copied().unwrap_or_default());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn using(name: &str, uses: &[&str]) -> Crate {
        let uses = uses.iter().map(|used| used.to_string()).collect();
        let (name, package) = (name.to_string(), format!("faircast-{name}"));
        Crate { name, package, manifest: "".into(), uses, tests: Vec::new() }
    }

    #[test]
    fn edges_go_one_way_only() {
        assert!(check(&[using("sim", &["base", "link", "scenario"])]).is_ok());
        assert!(check(&[using("cli", &["scenario", "report", "base"])]).is_ok());
        for (name, used) in
            [("base", "link"), ("report", "sim"), ("proto", "link"), ("link", "proto")]
        {
            let error = check(&[using(name, &[used])]).unwrap_err();
            assert!(error.starts_with(&format!("{name} uses {used}")), "{error}");
        }
        assert!(check(&[using("novel", &[])]).unwrap_err().contains("not in the table"));
    }

    #[test]
    fn the_table_has_no_circle() {
        let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
        for (name, _) in MAY_USE {
            assert!(!closure(name, &table).contains(name), "{name} uses itself");
        }
    }
}
