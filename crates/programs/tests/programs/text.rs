//! Programs from WebAssembly text.

/// Returns a program with these functions; other functions are those of a policy without waits.
pub(crate) fn with(functions: &[(&str, &str)]) -> Vec<u8> {
    with_more(functions, "")
}

pub(crate) fn with_more(functions: &[(&str, &str)], more: &str) -> Vec<u8> {
    let usual = [
        ("faircast_policy_1", "(param i32)"),
        ("credit", "(result i32) i32.const 0"),
        ("accepts", "(param i32 i32) (result i32) i32.const 1"),
        ("discards", "(param i32) (result i32) i32.const 0"),
        ("interval_ms", "(result i32) i32.const 0"),
        ("drops", "(result i32) i32.const 1"),
    ];
    let mut text =
        "(module (import \"faircast\" \"forwarded\" (func $forwarded (param i32) (result i64)))\n\
                    (memory (export \"memory\") 1)\n"
            .to_string();
    for (name, usual) in usual {
        let given = functions.iter().find(|(given, _)| *given == name);
        let body = given.map_or(usual, |(_, body)| body);
        text += &format!("(func (export \"{name}\") {body})\n");
    }
    wat::parse_str(text + more + ")").expect("the text is a module")
}

pub(crate) fn functions(count: usize, body: &str) -> Vec<u8> {
    with_more(&[], &format!("(func {body})").repeat(count))
}

pub(crate) fn table(targets: usize) -> String {
    format!("(block i32.const 0 br_table {})", "0 ".repeat(targets))
}

pub(crate) fn nested(kind: &str, count: usize, inner: &str) -> String {
    format!("{}{inner} {}", format!("{kind} ").repeat(count), "end ".repeat(count))
}
