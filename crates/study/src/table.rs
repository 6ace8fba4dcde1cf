//! Tables of results, as CSV and JSON.

use faircast_report::csv_field;
use serde_json::Value;

/// Rows with named columns. Missing values are null.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

/// Row of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableRow<'a> {
    columns: &'a [String],
    cells: &'a [Value],
}

impl<'a> TableRow<'a> {
    /// Returns the value in the column of this name; `None` without such a column.
    pub fn get(&self, column: &str) -> Option<&'a Value> {
        let index = self.columns.iter().position(|name| name == column)?;
        Some(&self.cells[index])
    }

    /// Returns the number in the column of this name; `None` for nulls and other types.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.get(column)?.as_f64()
    }

    /// Returns the text in the column of this name; `None` for nulls and other types.
    pub fn text(&self, column: &str) -> Option<&'a str> {
        self.get(column)?.as_str()
    }
}

impl Table {
    /// Returns a table without rows.
    pub fn new(columns: Vec<String>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// The row has another number of values than the table has columns.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "a value for each column");
        self.rows.push(row);
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows in their order.
    pub fn rows(&self) -> impl Iterator<Item = TableRow<'_>> {
        self.rows.iter().map(|cells| TableRow { columns: &self.columns, cells })
    }

    /// Returns the table as comma-separated values (RFC 4180), with a header line; nulls are empty.
    pub fn csv(&self) -> String {
        let line = |fields: Vec<String>| fields.join(",") + "\n";
        let head = line(self.columns.iter().map(|name| csv_field(name)).collect());
        let rows = self.rows.iter().map(|row| line(row.iter().map(csv_cell).collect()));
        head + &rows.collect::<String>()
    }

    /// Returns the table as one JSON object for each row.
    pub fn json(&self) -> Value {
        let row = |row: &Vec<Value>| {
            Value::Object(self.columns.iter().cloned().zip(row.iter().cloned()).collect())
        };
        self.rows.iter().map(row).collect()
    }
}

fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => csv_field(text),
        // Rust prints the shortest text that is parsed to the same number.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Table {
        let columns = ["name", "rate_bps", "sent_packets", "intact"];
        let mut table = Table::new(columns.map(String::from).to_vec());
        let text = |text: &str| Value::from(text);
        table.push(vec![text("a"), Value::from(0.1), Value::from(-1), Value::from(true)]);
        table.push(vec![text("b, \"c\""), Value::Null, Value::from(1_i64 << 40), Value::Null]);
        table.push(vec![Value::Null, Value::from(1e21), Value::Null, Value::from(false)]);
        table.push(vec![text("é\n"), Value::from(-2.0), Value::from(0), Value::from(true)]);
        table
    }

    #[test]
    fn separators_are_quoted_and_nulls_are_empty() {
        let want = "name,rate_bps,sent_packets,intact\na,0.1,-1,true\n\"b, \"\"c\"\"\",,1099511627776,\n\
                    ,1000000000000000000000,,false\n\"é\n\",-2,0,true\n";
        assert_eq!(small().csv(), want);
        let mut table = Table::new(vec!["=name".to_string()]);
        table.push(vec![Value::from("\u{202e}\t=1")]);
        assert_eq!(table.csv(), "\"'=name\"\n\\u202e\t=1\n");
    }

    #[test]
    fn rows_are_objects_in_json() {
        let json = small().json();
        assert_eq!(json[1]["name"], "b, \"c\"");
        assert_eq!(json[1]["rate_bps"], Value::Null);
        assert_eq!(json[1]["sent_packets"], 1_i64 << 40);
        assert_eq!(json[3]["intact"], true);
    }
}
