//! Snapshots of wire formats in `formats.txt`. A line changes only with its format.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const GOLDEN: &str = include_str!("formats.txt");

pub(crate) struct Snapshot {
    format: &'static str,
    lines: String,
}

impl Snapshot {
    pub(crate) fn new(format: &'static str) -> Self {
        Self { format, lines: String::new() }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.lines += &format!("{} {digits}\n", self.format);
    }

    pub(crate) fn check(self) {
        let start = format!("{} ", self.format);
        let golden: Vec<&str> = GOLDEN.lines().filter(|line| line.starts_with(&start)).collect();
        let lines: Vec<&str> = self.lines.lines().collect();
        assert!(lines == golden, "differs from tests/formats.txt; now it is\n{}", self.lines);
    }
}

pub(crate) fn check(format: &'static str, packets: impl IntoIterator<Item = Vec<u8>>) {
    let mut snapshot = Snapshot::new(format);
    packets.into_iter().for_each(|packet| snapshot.add(&packet));
    snapshot.check();
}
