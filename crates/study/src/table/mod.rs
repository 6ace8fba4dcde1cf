//! Tables with a type for each column, as CSV and as Parquet.

mod parquet;

use faircast_report::csv_field;
use serde_json::Value;

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// Floating-point numbers.
    Float,
    /// Integers.
    Whole,
    /// Booleans.
    Flag,
}

/// Rows with named columns. Missing values are null.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<(String, ColumnType)>,
    rows: Vec<Vec<Value>>,
}

/// Row of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableRow<'a> {
    columns: &'a [(String, ColumnType)],
    cells: &'a [Value],
}

impl<'a> TableRow<'a> {
    /// Returns the value in the column of this name; `None` without such a column.
    pub fn get(&self, column: &str) -> Option<&'a Value> {
        let place = self.columns.iter().position(|(name, _)| name == column)?;
        Some(&self.cells[place])
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
    pub fn new(columns: Vec<(String, ColumnType)>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// The row has another number of values than the table has columns, or a value of another type.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "a value for each column");
        for (cell, (name, kind)) in row.iter().zip(&self.columns) {
            assert!(kind.has(cell), "{name} is {kind:?}: {cell:?}");
        }
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

    /// Returns the names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the table as comma-separated values (RFC 4180), with a header line; nulls are empty.
    pub fn csv(&self) -> String {
        let mut text = self.names().map(csv_field).collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let fields = row.iter().zip(&self.columns).map(|(cell, (_, kind))| kind.csv(cell));
            text += &(fields.collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    /// Returns the table as an Apache Parquet file.
    pub fn parquet(&self) -> Vec<u8> {
        parquet::parquet(self)
    }

    /// Returns the table as one JSON object for each row.
    pub fn json(&self) -> Value {
        let row = |row: &Vec<Value>| {
            let names = self.columns.iter().map(|(name, _)| name.clone());
            Value::Object(names.zip(row.iter().cloned()).collect())
        };
        self.rows.iter().map(row).collect()
    }
}

impl ColumnType {
    fn has(self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::String(_) => self == Self::Text,
            Value::Number(_) => [Self::Float, Self::Whole].contains(&self),
            Value::Bool(_) => self == Self::Flag,
            Value::Array(_) | Value::Object(_) => false,
        }
    }

    fn csv(self, value: &Value) -> String {
        match (self, value) {
            (_, Value::Null) => String::new(),
            (_, Value::String(text)) => csv_field(text),
            // Rust prints the shortest text that is parsed to the same number.
            (Self::Float, number) => number.as_f64().unwrap_or_default().to_string(),
            (_, value) => value.to_string(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn small() -> Table {
        let columns = [
            ("name", ColumnType::Text),
            ("rate_bps", ColumnType::Float),
            ("sent_packets", ColumnType::Whole),
            ("intact", ColumnType::Flag),
        ];
        let mut table = Table::new(columns.map(|(name, kind)| (name.to_string(), kind)).to_vec());
        let text = |text: &str| Value::from(text);
        table.push(vec![text("a"), Value::from(0.1), Value::from(-1), Value::from(true)]);
        table.push(vec![text("b, \"c\""), Value::Null, Value::from(1_i64 << 40), Value::Null]);
        table.push(vec![Value::Null, Value::from(1e21), Value::Null, Value::from(false)]);
        table.push(vec![text("é\n"), Value::from(-2.0), Value::from(0), Value::from(true)]);
        table
    }

    #[test]
    #[should_panic(expected = "rate_bps is Float")]
    fn a_value_of_another_kind_is_refused() {
        let mut table = Table::new(vec![("rate_bps".to_string(), ColumnType::Float)]);
        table.push(vec![Value::from("1")]);
    }

    #[test]
    fn what_separates_is_quoted_and_what_is_not_there_is_empty() {
        let want = "name,rate_bps,sent_packets,intact\na,0.1,-1,true\n\"b, \"\"c\"\"\",,1099511627776,\n\
                    ,1000000000000000000000,,false\n\"é\n\",-2,0,true\n";
        assert_eq!(small().csv(), want);
        let mut table = Table::new(vec![("=name".to_string(), ColumnType::Text)]);
        for text in ["=1+1", "+a", "-a", "@a", "\t=1", "\r=1", "\u{202e}\u{2028}\u{85}"] {
            table.push(vec![Value::from(text)]);
        }
        let want = "\"'=name\"\n\"'=1+1\"\n\"'+a\"\n\"'-a\"\n\"'@a\"\n\"'\t=1\"\n\\r=1\n\\u202e\\u2028\\u0085\n";
        assert_eq!(table.csv(), want);
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
