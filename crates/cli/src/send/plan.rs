//! Plan of a transfer: included and excluded files, for people and for programs.

use std::fmt::Write as _;
use std::path::PathBuf;

use faircast::{Error, FilesError, PIPE_NAME, PipeSupply, Scan, ScanTotals, Skipped, shown};
use serde_json::{Value, json};

use crate::args::SendArgs;
use crate::error::{Failure, Result};
use crate::live::words::{bytes, count};
use crate::live::{self, Output};

pub(super) fn show(args: &SendArgs) -> Result {
    let failed = |error: FilesError| live::failure(Error::from(error), false);
    let mut output = Output::new(&args.watch);
    let (totals, name) = if is_pipe(args) {
        let name = args.files.name.as_deref().unwrap_or(PIPE_NAME);
        PipeSupply::new(std::io::empty(), name, &spool(args)).map_err(failed)?;
        (ScanTotals { files: 1, ..ScanTotals::default() }, name.to_string())
    } else {
        let scan = Scan::new(&args.paths, &args.files.scan()?).map_err(failed)?;
        for warning in scan.warnings() {
            output.warn(&warning.to_string())?;
        }
        (scan.totals(), scan.manifest().name().to_string())
    };
    let to = match place(args) {
        to if to.is_empty() => String::new(),
        to => format!(", to {to}"),
    };
    let mut text = format!("{}, as `{}`{to}\n", what(args, &totals), shown(name.as_bytes()));
    text.push_str(&skipped_text(&totals.skipped));
    text.push_str("nothing was sent (--dry-run)\n");
    let mut json = json(args, &totals);
    json["name"] = json!(name);
    json["directories"] = json!(totals.directories);
    json["skipped"] = skipped_json(&totals.skipped);
    output.result("plan", &text, &json)?;
    if totals.skipped.lacking == 0 { Ok(()) } else { Err(Failure::AlreadyTold) }
}

pub(super) fn is_pipe(args: &SendArgs) -> bool {
    args.paths.iter().any(|path| path.as_os_str() == "-")
}

pub(super) fn spool(args: &SendArgs) -> PathBuf {
    args.files.spool.clone().unwrap_or_else(std::env::temp_dir)
}

pub(super) fn place(args: &SendArgs) -> String {
    let group = args.group.map(|group| group.to_string()).or_else(|| args.via.meeting.clone());
    group.into_iter().chain(args.to.clone()).collect::<Vec<_>>().join(", ")
}

pub(super) fn what(args: &SendArgs, totals: &ScanTotals) -> String {
    if is_pipe(args) {
        return "what comes from standard input".to_string();
    }
    let mut text = count(totals.files, "file");
    if totals.links > 0 {
        let _ = write!(text, ", {}", count(totals.links, "link"));
    }
    if totals.hard_links > 0 {
        let _ = write!(text, ", {}", count(totals.hard_links, "hard link"));
    }
    let _ = write!(text, ", {}", bytes(totals.bytes));
    if totals.hole_bytes > 0 {
        let _ = write!(text, " (and {} of holes, which are not sent)", bytes(totals.hole_bytes));
    }
    text
}

pub(super) fn json(args: &SendArgs, totals: &ScanTotals) -> Value {
    json!({
        "to": place(args),
        "files": totals.files,
        "links": totals.links,
        "hard_links": totals.hard_links,
        "bytes": totals.bytes,
        "bytes_holes": totals.hole_bytes,
        "growing": is_pipe(args),
    })
}

pub(super) fn skipped_text(skipped: &Skipped) -> String {
    let parts = [
        (skipped.links, count(skipped.links, "symbolic link")),
        (skipped.special, format!("{} that are no files", skipped.special)),
        (skipped.names, count(skipped.names, "path") + " that cannot be sent"),
        (skipped.excluded, format!("{} excluded", skipped.excluded)),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
    match parts.collect::<Vec<_>>().join(", ") {
        parts if parts.is_empty() => String::new(),
        parts if skipped.lacking > 0 => format!(
            "left out: {parts}; exit status 1, for {} of them that {} not asked to be left out\n",
            skipped.lacking,
            if skipped.lacking == 1 { "was" } else { "were" }
        ),
        parts => format!("left out: {parts}\n"),
    }
}

pub(super) fn skipped_json(skipped: &Skipped) -> Value {
    json!({
        "links": skipped.links, "special": skipped.special, "names": skipped.names,
        "excluded": skipped.excluded, "lacking": skipped.lacking,
    })
}
