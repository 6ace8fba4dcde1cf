//! Formatting of numbers and names, and tables of text.

use faircast_base::{escaped, escaped_lines};

pub(crate) const COLUMNS_MAX: usize = 100;

/// Stands for a missing value.
pub(crate) const DASH: &str = "–";

pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| DASH.into())
}

pub(crate) fn rate(bits_per_s: f64) -> String {
    let (scale, unit) = match bits_per_s {
        b if b >= 999.95e6 => (1e9, "Gbit/s"),
        b if b >= 999.95e3 => (1e6, "Mbit/s"),
        b if b >= 999.95 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    format!("{} {unit}", significant(bits_per_s / scale))
}

/// Formats a number below 10 000 with four significant digits, without an exponent.
pub(crate) fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        0.0 => 0,
        v if v >= 0.001 => 3,
        _ => 6,
    };
    format!("{value:.digits$}")
}

pub(crate) fn mean_packets(packets: f64) -> String {
    if packets > 0.0 && packets < 0.0005 { "<0.001".into() } else { significant(packets) }
}

pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        p if p.abs() < 0.1 => format!("{p:.3} %"),
        p => format!("{p:.1} %"),
    }
}

pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s.fract() == 0.0 && s < 1e6 => format!("{s} s"),
        s if s >= 100.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.1} ms", s * 1e3),
    }
}

/// Table of text: the first `left` columns are left-aligned, the others right-aligned.
pub(crate) struct Table {
    left: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(left: usize, head: &[&str]) -> Self {
        Self { left, rows: vec![head.iter().map(ToString::to_string).collect()] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row.iter().map(|cell| escaped(cell).into_owned()).collect());
    }

    /// Appends the table. Names in the left columns are shortened until it fits.
    pub(crate) fn write(&self, out: &mut String) {
        const GAP: &str = "  ";
        let columns = self.rows[0].len();
        let mut widths: Vec<usize> = (0..columns)
            .map(|c| self.rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0))
            .collect();
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * (columns - 1);
        while total(&widths) > COLUMNS_MAX {
            // The widest name is shortened first; names below 8 characters are useless.
            match widths[..self.left].iter_mut().filter(|w| **w > 8).max() {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                let cell = shorten(cell, width);
                match column < self.left {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                }
            });
            out.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            out.push('\n');
        }
    }
}

/// Returns the text with its first letter in upper case.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Returns the text in lines of at most [`COLUMNS_MAX`] characters, each with its end.
pub(crate) fn wrapped(text: &str) -> String {
    wrap(text, COLUMNS_MAX).join("\n") + "\n"
}

/// Breaks the text into lines of at most `width` characters, between words if possible.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shorten(word, width);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Formats a CSV field (RFC 4180). A text that looks like a formula gets an apostrophe in front.
pub fn csv_field(field: &str) -> String {
    let field = escaped_lines(field);
    let is_formula = field.starts_with(FORMULA) && field.parse::<f64>().is_err();
    match (is_formula, field.contains([',', '"', '\n', '\r'])) {
        (true, _) => format!("\"'{}\"", field.replace('"', "\"\"")),
        (false, true) => format!("\"{}\"", field.replace('"', "\"\"")),
        (false, false) => field.into_owned(),
    }
}

/// Characters with which formulas of spreadsheets begin (src: owasp-csv).
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// Returns the minimum, median and maximum of the values; `None` without values.
pub fn spread(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() {
        0 => return None,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    };
    Some([sorted[0], median, sorted[sorted.len() - 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (value, want) in [
            (0.0, "0 bit/s"),
            (999.0, "999.0 bit/s"),
            (241_000.0, "241.0 kbit/s"),
            (999_960.0, "1.000 Mbit/s"),
            (12_345_678.0, "12.35 Mbit/s"),
            (2.5e12, "2500 Gbit/s"),
        ] {
            assert_eq!(rate(value), want);
        }
        for (value, want) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), want);
        }
        for (value, want) in [(0.0, "0"), (0.000_001, "<0.001"), (11.234, "11.23")] {
            assert_eq!(mean_packets(value), want);
        }
        for (value, want) in
            [(0.0, "0 %"), (0.9716, "97.2 %"), (0.000_12, "0.012 %"), (1.0, "100.0 %")]
        {
            assert_eq!(percent(value), want);
        }
        for (value, want) in [
            (300.0, "300 s"),
            (12.3456, "12.35 s"),
            (0.8, "800 ms"),
            (0.05, "50.0 ms"),
            (0.0, "0 s"),
        ] {
            assert_eq!(seconds(value), want);
        }
    }

    #[test]
    fn fields_of_tables_are_no_formulas_and_names_move_no_cursor() {
        for (field, want) in [
            ("flow", "flow"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("=1+1", "\"'=1+1\""),
            ("+cmd|' /C calc'!A0", "\"'+cmd|' /C calc'!A0\""),
            ("@SUM(1,\"2\")", "\"'@SUM(1,\"\"2\"\")\""),
            ("-x", "\"'-x\""),
            ("\t=1", "\"'\t=1\""),
            ("＝1", "\"'＝1\""),
            ("-1.5", "-1.5"),
            ("+3e9", "+3e9"),
            ("x=1", "x=1"),
            ("\u{202e}x\u{1b}", "\\u202ex\\u001b"),
        ] {
            assert_eq!(csv_field(field), want, "{field:?}");
        }
        let mut table = Table::new(1, &["Name", "Number"]);
        table.push(vec!["\u{1b}[2J\n\u{202e}".into(), "1".into()]);
        let mut text = String::new();
        table.write(&mut text);
        assert_eq!(text, "Name               Number\n\\u001b[2J\\n\\u202e       1\n");
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(spread([].into_iter()), None);
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), Some([1.0, 2.0, 3.0]));
        assert_eq!(spread([4.0, 1.0].into_iter()), Some([1.0, 2.5, 4.0]));
    }

    #[test]
    fn long_names_give_way_to_numbers() {
        let mut table = Table::new(2, &["Name", "Other", "Number"]);
        table.push(vec!["é".repeat(90), "o".repeat(30), "12345".into()]);
        let mut text = String::new();
        table.write(&mut text);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{text}");
        assert!(text.contains('…') && text.contains("12345"), "{text}");
    }

    #[test]
    fn words_wrap_at_the_width() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("eeeeeeeee f", 4), ["eee…", "f"]);
    }
}
