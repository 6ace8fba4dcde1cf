//! Numbers and lines in a form for people.

use std::path::Path;

use faircast::{Seat, shown_path};
use faircast_base::Duration;
use serde_json::{Value, json};

pub(crate) fn bytes(count: u64) -> String {
    scaled(count as f64, &["B", "kB", "MB", "GB", "TB"])
}

pub(crate) fn rate(bits_per_s: f64) -> String {
    scaled(bits_per_s, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m}:{s:02} min"),
        (h, m, _) if h < 100 => format!("{h}:{m:02} h"),
        (h, ..) => format!("{} days", h / 24),
    }
}

pub(crate) fn count(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a path for JSON: unchanged if it is UTF-8, else with `\\xff` for other bytes.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_str().map_or_else(|| shown_path(path), ToString::to_string)
}

/// Wraps words after a head, indented by its length. Only a single long word exceeds `columns`.
pub(crate) fn wrapped(head: &str, words: &str, columns: usize) -> String {
    let indent = head.chars().count();
    let mut text = head.to_string();
    let mut column = indent;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > columns {
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        }
        if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

pub(crate) fn seat_json(seat: &Seat) -> Value {
    let Seat { head, level, members, repairs } = seat;
    json!({ "head": head, "level": level, "members": members, "repairs": repairs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (count, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (99_960, "100 kB"),
            (999_600, "1.0 MB"),
            (12_345_678_900, "12.3 GB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(bytes(count), want);
        }
        assert_eq!(rate(94_123_456.0), "94.1 Mbit/s");
        assert_eq!(percent(0.0123), "1.2 %");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([0_u64, 1, 2].map(|n| count(n, "file")), ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn times_are_as_exact_as_they_are_short() {
        for (ms, want) in [
            (0, "0.0 s"),
            (1234, "1.2 s"),
            (59_400, "59 s"),
            (61_000, "1:01 min"),
            (3_725_000, "1:02 h"),
            (1_000_000_000, "11 days"),
        ] {
            assert_eq!(time(Duration::from_millis(ms)), want);
        }
    }
}
