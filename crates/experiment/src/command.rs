//! Command lines with places for values.

/// Words of a line with spaces between them, in which `value` gives what `{name}` stands for. A
/// word that is nothing but a name becomes all words of its value.
pub(crate) fn words(line: &str, value: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let mut parts = word.split('{');
        let mut text = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let (name, rest) = part.split_once('}').expect("every name ends");
            let mut values = value(name);
            if text.is_empty() && rest.is_empty() {
                words.append(&mut values);
            }
            text += &(values.concat() + rest);
        }
        words.extend(Some(text).filter(|text| !text.is_empty()));
    }
    words
}
