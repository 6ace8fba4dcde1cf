//! Byte tables of `docs/wire`, which must agree with the formats.

use alloc::vec;
use alloc::vec::Vec;

/// Returns the lengths of a page's byte tables: bytes before the first field of variable length.
/// Panics if fields overlap or leave a gap.
pub(crate) fn lengths(page: &str) -> Vec<usize> {
    let tables = page.split("\n| bytes |").skip(1);
    tables
        .map(|table| length(table.lines().skip(2).take_while(|line| line.starts_with('|'))))
        .collect()
}

fn length<'a>(rows: impl Iterator<Item = &'a str>) -> usize {
    let mut next = 0;
    for row in rows {
        let bytes = row.split('|').nth(1).expect("a row has cells").trim();
        let numbers: Vec<usize> = bytes
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect();
        let (Some(first), false) = (numbers.first(), bytes.starts_with("last")) else { break };
        assert_eq!(*first, next, "bytes {bytes} in {row}");
        if bytes.ends_with(['–', '-']) || bytes.ends_with("on") {
            break;
        }
        next = numbers[numbers.len() - 1] + 1;
    }
    next
}

#[test]
fn tables_of_other_crates_and_of_options_have_no_gaps() {
    for (page, want) in [
        (include_str!("../../../../docs/wire/manifest.md"), vec![16, 26]),
        (include_str!("../../../../docs/wire/pgm.md"), vec![2]),
        (include_str!("../../../../docs/wire/sealed.md"), vec![40]),
    ] {
        assert_eq!(lengths(page), want);
    }
}

#[test]
#[should_panic(expected = "bytes 3")]
fn overlapping_fields_are_found() {
    lengths("x\n| bytes | field |\n| --- | --- |\n| 0 to 3 | a |\n| 3 | b |\n");
}
