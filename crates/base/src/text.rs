//! Escaping of untrusted texts for output: names from a network, a file or a trace.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

/// True for characters neither visible nor spaces (Unicode categories Cc, Cf, Zl, Zp).
pub const fn is_format(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the text on one line, with JSON's escapes for [format characters](is_format).
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, &[])
}

/// Returns the text escaped as by [`escaped`], but with its line feeds and tabs.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_but(text, &['\n', '\t'])
}

fn escaped_but<'a>(text: &'a str, keep: &[char]) -> Cow<'a, str> {
    let is_escaped = |c: char| is_format(c) && !keep.contains(&c);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                out.push_str(&format!("\\u{unit:04x}"));
            }),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_format_are_escaped_and_others_stay() {
        for (text, want) in [
            ("plain é 漢字 👍 \\u202e", "plain é 漢字 👍 \\u202e"),
            ("\u{1b}[2J\u{7f}\u{9b}", "\\u001b[2J\\u007f\\u009b"),
            ("a\r\n\tb", "a\\r\\n\\tb"),
            ("exe\u{202e}fdp\u{2066}", "exe\\u202efdp\\u2066"),
            ("\u{2028}\u{2029}\u{85}", "\\u2028\\u2029\\u0085"),
            ("\u{200b}\u{200d}\u{feff}\u{ad}", "\\u200b\\u200d\\ufeff\\u00ad"),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(escaped(text), want);
        }
        assert_eq!(escaped_lines("a\n\tb\r\u{202e}"), "a\n\tb\\r\\u202e");
        assert!(matches!(escaped("plain"), Cow::Borrowed(_)));
    }
}
