//! Fuzz targets `scenario` and `trace_file` for text and files; the corpus test runs them too.

use std::path::Path;

use faircast_scenario::{Overrides, Scenario};
use faircast_sim::catalog;
use faircast_trace::Reader;

pub(crate) fn scenario(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let parsed = Scenario::parse(Path::new("f.toml"), text, &Overrides::default(), &catalog());
    match parsed {
        Ok(scenario) => {
            assert!(scenario.warmup < scenario.duration);
            let nodes = scenario.nodes.len();
            let mut links = scenario.links.iter();
            assert!(links.all(|link| link.from.index().max(link.to.index()) < nodes));
            true
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("f.toml") && message.lines().count() == 1, "{message}");
            false
        }
    }
}

pub(crate) fn trace_file(data: &[u8]) -> u64 {
    let Ok(mut reader) = Reader::new(data, "fuzz") else { return 0 };
    let mut records = 0;
    while let Ok(Some(record)) = reader.next_record() {
        let mut line = Vec::new();
        faircast_trace::write_line(&record, &mut line);
        assert!(line.ends_with(b"\n"));
        records += 1;
    }
    records
}
