//! Axis of a sweep: a setting with its values.

use faircast_base::{Bitrate, Bytes, Duration, Quantity};
use serde_json::Value;

/// Setting of the scenario with its values in the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Path of the setting, in the syntax of `--set`: `flow.mcc.options.acker_bias`.
    pub key: String,
    /// Values as written.
    pub values: Vec<String>,
}

impl Axis {
    /// Parses `KEY=VALUE,VALUE`. A comma within brackets, braces or quotes is a part of its value.
    ///
    /// # Errors
    /// There is no value, a value is empty or repeated, or the key is the seed's.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |problem: &str| Err(format!("--set {text}: {problem}"));
        let Some((key, values)) = text.split_once('=') else {
            return wrong("has no \"=\"; expected KEY=VALUE,VALUE such as duration='60 s,120 s'");
        };
        Self::checked(text, key.trim(), split(values))
    }

    /// Makes an axis of the texts of values.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn new(key: &str, values: impl IntoIterator<Item = impl ToString>) -> Result<Self, String> {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        Self::checked(&format!("{key}={}", values.join(",")), key, values)
    }

    fn checked(text: &str, key: &str, values: Vec<String>) -> Result<Self, String> {
        let wrong = |problem: &str| Err(format!("--set {text}: {problem}"));
        if key == "seed" {
            return wrong("seeds are given by --seeds");
        }
        for (index, value) in values.iter().enumerate() {
            if value.is_empty() {
                return wrong("has an empty value; expected values with single commas between");
            }
            if values[..index].contains(value) {
                return wrong(&format!("has the value {value} twice"));
            }
        }
        Ok(Self { key: key.to_string(), values })
    }

    /// Returns the values as a column: name with the unit, and cells of one type.
    pub fn column(&self) -> (String, Vec<Value>) {
        let unquoted = self.values.iter().map(|value| {
            let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
            within('"').or_else(|| within('\'')).unwrap_or(value)
        });
        let texts: Vec<&str> = unquoted.collect();
        type Read = fn(&str) -> Option<Value>;
        // Name suffix and parser. The first entry that parses all values is used.
        let readings: [(&str, Read); 7] = [
            ("", |text| text.parse::<i64>().ok().map(Value::from)),
            ("", |text| text.parse().ok().filter(|it: &f64| it.is_finite()).map(Value::from)),
            ("", |text| text.parse::<bool>().ok().map(Value::from)),
            ("_s", |text| Some(Duration::parse(text).ok()?.as_secs_f64().into())),
            ("_bps", |text| Some(Bitrate::parse(text).ok()?.bits_per_s().into())),
            ("_bytes", |text| Some(Bytes::parse(text).ok()?.count().into())),
            ("", |text| Some(text.into())),
        ];
        let all = |read: Read| texts.iter().map(|text| read(text)).collect::<Option<Vec<_>>>();
        let mut readings = readings.into_iter();
        let read = readings.find_map(|(unit, read)| Some((unit, all(read)?)));
        let (unit, cells) = read.expect("the last parser takes any text");
        (format!("{}{unit}", self.key), cells)
    }

    /// Returns the values as numbers for a plot, if they are rising numbers or quantities.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let (_, cells) = self.column();
        let numbers: Option<Vec<f64>> = cells.iter().map(Value::as_f64).collect();
        numbers.filter(|numbers| numbers.is_sorted_by(|a, b| a < b))
    }
}

/// Splits at commas outside of brackets, braces and quotes.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quote) = (vec![String::new()], 0u32, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            (None, _) => {}
        }
        parts.last_mut().expect("there is always one").push(c);
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_between_commas_that_are_not_within_something() {
        for (text, key, values) in [
            ("a=1", "a", &["1"][..]),
            ("a.b = 0.5, 0.6,0.7", "a.b", &["0.5", "0.6", "0.7"]),
            ("to=[\"x\",\"y\"],[\"x\"]", "to", &["[\"x\",\"y\"]", "[\"x\"]"]),
            (
                "start={ uniform = [\"0 s\", \"5 s\"] },1 s",
                "start",
                &["{ uniform = [\"0 s\", \"5 s\"] }", "1 s"],
            ),
            ("title=\"a, b\",'c,d'", "title", &["\"a, b\"", "'c,d'"]),
            ("x=a=b,c", "x", &["a=b", "c"]),
        ] {
            let axis = Axis::parse(text).unwrap();
            assert_eq!(
                (axis.key.as_str(), axis.values),
                (key, values.iter().map(|v| v.to_string()).collect())
            );
        }
        for (text, want) in [
            ("a", "has no \"=\""),
            ("a=", "empty value"),
            ("a=1,,2", "empty value"),
            ("a=1,2,1", "has the value 1 twice"),
            ("seed=1,2", "--seeds"),
        ] {
            let error = Axis::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("--set {text}: ")) && error.contains(want),
                "{error}"
            );
        }
    }

    #[test]
    fn columns_have_the_kind_of_their_values_and_the_unit_in_their_name() {
        for (text, name, cells) in [
            ("k=1,2", "k", [Value::from(1), Value::from(2)]),
            ("k=1,2.5", "k", [Value::from(1.0), Value::from(2.5)]),
            ("k=true,false", "k", [Value::from(true), Value::from(false)]),
            ("k=1 s,50 ms", "k_s", [Value::from(1.0), Value::from(0.05)]),
            ("k=\"500 kbit/s\",1 Mbit/s", "k_bps", [500_000, 1_000_000].map(Value::from)),
            ("k=1400 B,1 kB", "k_bytes", [1400, 1000].map(Value::from)),
            ("k=1 s,forever", "k", ["1 s", "forever"].map(Value::from)),
            ("k=\"draft\",paper", "k", ["draft", "paper"].map(Value::from)),
        ] {
            let want = (name.to_string(), cells.to_vec());
            assert_eq!(Axis::parse(text).unwrap().column(), want, "{text}");
        }
        assert_eq!(Axis::parse("k=1 s,2 s").unwrap().numbers(), Some(vec![1.0, 2.0]));
        assert_eq!(Axis::parse("k=2 s,1 s").unwrap().numbers(), None, "a line would go back");
        assert_eq!(Axis::parse("k=a,b").unwrap().numbers(), None);
    }
}
