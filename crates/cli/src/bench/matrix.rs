//! Results of the comparison of schemes: tables, pages, and the document.

use std::path::Path;

use faircast_experiment::{Results, listing};
use faircast_report::matrix_page;
use faircast_study::matrix::{Columns, Comparison};
use faircast_study::{Error, Study};

use super::choice::read_page;
use super::document;
use crate::args::BenchArgs;

pub(super) fn load(args: &BenchArgs, study: &Study<'_>) -> Result<Comparison, Error> {
    let columns = Columns {
        cases: args.cases.clone(),
        only: args.only.clone(),
        schemes: args.scheme.clone(),
        options: args.options.clone(),
        quick: args.quick,
    };
    Comparison::load(&columns, &study.catalog)
}

pub(super) fn list(comparison: &Comparison) -> String {
    let rows = comparison.questions().map(|of| (of.group, of.id, of.question));
    listing(comparison.name(), comparison.title(), rows)
}

pub(super) fn run(
    comparison: &Comparison,
    args: &BenchArgs,
    study: &Study<'_>,
) -> Result<Results, Error> {
    // A scheme measured alone replaces its column in an existing page.
    let is_plain = args.cases.is_none()
        && args.only.is_none()
        && args.seeds.is_none()
        && args.options.is_empty()
        && !args.quick;
    let mut kept = None;
    if let Some(page) = &args.docs
        && let Some(text) = read_page(page, document::heading())?
    {
        if !is_plain {
            return Err(at(page, "has the whole matrix; name a new file for a part of it"));
        }
        if args.scheme.is_some() {
            kept = Some(document::tables(&text).map_err(|problem| at(page, &problem))?);
        }
    }
    let runs = args.out.as_ref().map(|out| out.join("runs"));
    let matrix = comparison.run(study, args.seeds, runs)?;
    let json = matrix.to_json() + "\n";
    let page = format!("{}.html", matrix.name);
    let mut files = Vec::new();
    if args.out.is_some() {
        files.push((format!("{}.json", matrix.name), json.clone()));
        files.push((page.clone(), matrix_page(&matrix)));
    }
    let whole = is_plain && (args.scheme.is_none() || kept.is_some());
    let document = args.docs.as_ref().map(|_| match &kept {
        Some(kept) => document::document(&document::with_others(&matrix, kept)?, whole),
        None => document::document(&matrix, whole),
    });
    Ok(Results {
        table: matrix.table(),
        json,
        files,
        page: Some(page),
        document: document.transpose().map_err(Error::Work)?,
        holds: true,
        ..Results::default()
    })
}

fn at(page: &Path, problem: &str) -> Error {
    Error::Usage(format!("--docs {}: {problem}", page.display()))
}
