//! What is sent and what is left out, in words and for programs.

use std::fmt::Write as _;

use faircast::{Error, Scan, ScanTotals, Skipped};
use serde_json::{Value, json};

use crate::args::SendArgs;
use crate::error::Failure;
use crate::live::words::{bytes, count};
use crate::live::{self, Output};

/// Says what would be sent.
pub(super) fn show(args: &SendArgs) -> Result<(), Failure> {
    let scan = Scan::new(&args.paths, &args.files.scan()?);
    let scan = scan.map_err(|error| live::failure(Error::from(error), false))?;
    let mut output = Output::new(&args.watch);
    for warning in scan.warnings() {
        output.warn(&warning.to_string())?;
    }
    let (totals, name) = (scan.totals(), scan.manifest().name());
    let mut text = format!("{}, as `{name}`\n", what(&totals));
    text.push_str(&skipped_text(&totals.skipped));
    text.push_str("nothing was sent (--dry-run)\n");
    let mut json = json(&totals, "");
    json["name"] = json!(name);
    json["directories"] = json!(totals.directories);
    json["skipped"] = skipped_json(&totals.skipped);
    output.result("plan", &text, json)
}

/// Files, links, bytes and holes.
pub(super) fn what(totals: &ScanTotals) -> String {
    let mut text = count(totals.files, "file");
    if totals.links > 0 {
        let _ = write!(text, ", {}", count(totals.links, "link"));
    }
    let _ = write!(text, ", {}", bytes(totals.bytes));
    if totals.hole_bytes > 0 {
        let _ = write!(text, " (and {} of holes, which are not sent)", bytes(totals.hole_bytes));
    }
    text
}

pub(super) fn json(totals: &ScanTotals, to: &str) -> Value {
    json!({
        "to": to,
        "files": totals.files,
        "links": totals.links,
        "bytes": totals.bytes,
        "bytes_holes": totals.hole_bytes,
    })
}

/// What was left out, in a line; nothing where nothing was.
pub(super) fn skipped_text(skipped: &Skipped) -> String {
    let parts = [
        (skipped.links, count(skipped.links, "symbolic link")),
        (skipped.special, format!("{} that are no files", skipped.special)),
        (skipped.names, count(skipped.names, "name") + " that cannot be sent"),
        (skipped.excluded, format!("{} excluded", skipped.excluded)),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
    match parts.collect::<Vec<_>>().join(", ") {
        parts if parts.is_empty() => String::new(),
        parts => format!("left out: {parts}\n"),
    }
}

pub(super) fn skipped_json(skipped: &Skipped) -> Value {
    json!({
        "links": skipped.links, "special": skipped.special, "names": skipped.names,
        "excluded": skipped.excluded,
    })
}
