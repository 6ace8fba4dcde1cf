//! Results of the comparison of schemes: tables, pages, and the document.

mod document;

use std::path::Path;

use faircast_report::matrix_page;
use faircast_study::matrix::{Columns, Comparison};
use faircast_study::{Error, Study};

use crate::request::{Request, Results, listing, read_page};

pub(crate) fn load(request: &Request, study: &Study<'_>) -> Result<Comparison, Error> {
    let columns = Columns {
        cases: request.cases.clone(),
        only: request.only.clone(),
        schemes: request.scheme.clone(),
        options: request.options.clone(),
        quick: request.quick,
    };
    Comparison::load(&columns, &study.catalog)
}

pub(crate) fn list(comparison: &Comparison) -> String {
    let rows = comparison.questions().map(|of| (of.group, of.id, of.question));
    listing(comparison.name(), comparison.title(), rows)
}

pub(crate) fn run(
    comparison: &Comparison,
    request: &Request,
    study: &Study<'_>,
) -> Result<Results, Error> {
    // A scheme measured alone replaces its column in an existing page.
    let is_plain = request.cases.is_none()
        && request.only.is_none()
        && request.seeds.is_none()
        && request.options.is_empty()
        && !request.quick;
    let mut kept = None;
    if let Some(page) = &request.document
        && let Some(text) = read_page(page, document::heading())?
    {
        if !is_plain {
            return Err(at(page, "has the whole matrix; name a new file for a part of it"));
        }
        if request.scheme.is_some() {
            kept = Some(document::tables(&text).map_err(|problem| at(page, &problem))?);
        }
    }
    let runs = request.out.as_ref().map(|out| out.join("runs"));
    let matrix = comparison.run(study, request.seeds, runs)?;
    let json = matrix.to_json() + "\n";
    let page = format!("{}.html", matrix.name);
    let mut files = Vec::new();
    if request.out.is_some() {
        files.push((format!("{}.json", matrix.name), json.clone()));
        files.push((page.clone(), matrix_page(&matrix)));
    }
    let whole = is_plain && (request.scheme.is_none() || kept.is_some());
    let document = request.document.as_ref().map(|_| match &kept {
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
