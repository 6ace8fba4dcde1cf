//! Peak memory of both ends, in a process of its own, so that no other test is measured.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};

use faircast_files::{FilesStore, FilesSupply, StoreOptions};
use faircast_proto::object::{Announcement, Part, Store, Supply, Verdict};

use self::object::{SYMBOL, digests, wait};

#[path = "../src/testing/object.rs"]
#[allow(dead_code, reason = "this needs a part of it")]
mod object;

const CONTENT: u64 = 400 << 20;

fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux has it");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") << 10
}

/// Every 9th symbol arrives at the end, so that each group is evicted and completed from disk.
#[test]
fn both_ends_together_stay_within_the_memory_that_they_promise() {
    let place = tempfile::tempdir().expect("a place");
    let from = place.path().join("from");
    let mut xof = blake3::Hasher::new().finalize_xof();
    let mut out = BufWriter::new(File::create(&from).expect("made"));
    let mut piece = vec![0; 1 << 16];
    for _ in 0..CONTENT >> 16 {
        xof.fill(&mut piece);
        out.write_all(&piece).expect("written");
    }
    out.into_inner().expect("written");
    let before = peak();

    let mut supply = FilesSupply::scan(&[&from]).expect("scanned");
    let lens = Part::ALL.map(|part| supply.len(part));
    let announcement = Announcement {
        lens,
        growing: false,
        symbol_bytes: 1400,
        object: supply.object(),
        digests: None,
    };
    let to = place.path().join("to");
    let mut store = FilesStore::new(StoreOptions { sync: false, ..StoreOptions::new(&to) });
    store.begin(&announcement).expect("announced");
    let mut symbol = Vec::new();
    let mut give = |supply: &mut FilesSupply, store: &mut FilesStore, part, offset, len: u64| {
        symbol.clear();
        let len = u32::try_from(len).expect("small");
        assert_eq!(supply.read(part, offset, len, &mut symbol), Ok(0));
        store.write(part, offset, &symbol, 0).expect("taken");
    };
    give(&mut supply, &mut store, Part::Manifest, 0, lens[0]);
    assert_eq!(wait(|| store.open()), Ok(Vec::new()));
    for late in [false, true] {
        for (i, offset) in (0..CONTENT).step_by(SYMBOL as usize).enumerate() {
            if (i % 9 == 4) == late {
                supply.expect(offset);
                let len = SYMBOL.min(CONTENT - offset);
                give(&mut supply, &mut store, Part::Content, offset, len);
            }
        }
    }
    let digests = digests(&mut supply);
    store.begin(&Announcement { digests: Some(digests), ..announcement }).expect("the same");
    give(&mut supply, &mut store, Part::Digests, 0, lens[2]);
    assert_eq!(wait(|| store.verify()), Ok(Verdict::Intact));
    let grown = peak() - before;
    assert!(grown < (32 + 48) << 20, "{} MiB", grown >> 20);
    assert!(grown > 12 << 20, "{} MiB", grown >> 20);

    let hash = |path| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path).expect("there")).expect("read");
        hasher.finalize()
    };
    assert_eq!(hash(&from), hash(&to.join("from")));
}
