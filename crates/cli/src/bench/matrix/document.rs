//! `--docs`: the matrix as a page of the documentation.

use faircast_report::Matrix;

/// What a person wrote about the numbers, with a place for them.
const TEMPLATE: &str = include_str!("comparison.md.in");

/// The page: what the template says, the cases, and the tables.
pub(super) fn document(matrix: &Matrix) -> String {
    let mut cases = String::from("| case | question |\n| --- | --- |\n");
    for case in &matrix.cases {
        let note = case.note.as_ref().map_or_else(String::new, |note| format!(" {note}"));
        cases.push_str(&format!("| `{}` | {}{note} |\n", case.id, case.question));
    }
    TEMPLATE
        .replace("{cases}", cases.trim_end())
        .replace("{seeds}", &matrix.seeds())
        .replace("{tables}", matrix.markdown().trim_end())
}
