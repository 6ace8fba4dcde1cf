//! A table as comma-separated values.

use super::{Cell, Table};

/// The table with its names in the first line.
pub(super) fn csv(table: &Table) -> String {
    let mut out = String::new();
    line(&mut out, table.names().map(quoted));
    for row in &table.rows {
        line(&mut out, row.iter().map(cell));
    }
    out
}

fn line(out: &mut String, cells: impl Iterator<Item = String>) {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&cell);
    }
    out.push('\n');
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Text(text) => quoted(text),
        // The shortest text that is read as the same number.
        Cell::Float(number) => number.to_string(),
        Cell::Whole(number) => number.to_string(),
        Cell::Flag(flag) => flag.to_string(),
    }
}

/// Text in quotes where it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;

    #[test]
    fn what_separates_is_quoted_and_what_is_not_there_is_empty() {
        let want = "name,rate_bps,sent_packets,intact\na,0.1,-1,true\n\"b, \"\"c\"\"\",,1099511627776,\n\
                    ,1000000000000000000000,,false\n\"é\n\",-2,0,true\n";
        assert_eq!(small().csv(), want);
    }
}
