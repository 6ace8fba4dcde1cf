//! Random kills and damage of a receiver's state, after which the same tree arrives.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};

use faircast_proto::object::Store as _;
use proptest::prelude::*;

use super::*;
use crate::testing::{chmod, touch, wait};

#[derive(Clone, Debug)]
enum Step {
    /// Arrival of a share of the symbols, in an order drawn from the seed, some twice.
    Give {
        share: u8,
        seed: u64,
        twice: bool,
    },
    Kill,
    Close,
    /// Early verification, then a kill and damage to a file.
    Damage {
        file: u8,
        at: u64,
        what: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..100u8, any::<u64>(), any::<bool>())
            .prop_map(|(share, seed, twice)| Step::Give { share, seed, twice }),
        2 => Just(Step::Kill),
        1 => Just(Step::Close),
        2 => (any::<u8>(), any::<u64>(), 0..4u8)
            .prop_map(|(file, at, what)| Step::Damage { file, at, what }),
    ]
}

fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for i in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(i, (seed >> 33) as usize % (i + 1));
    }
}

fn damage(state: &Path, file: u8, at: u64, what: u8) {
    let Ok(found) = fs::read_dir(state) else { return };
    let mut names: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    if names.is_empty() {
        return;
    }
    let path = &names[usize::from(file) % names.len()];
    let open = fs::File::options().read(true).write(true).open(path).unwrap();
    let len = open.metadata().unwrap().len();
    let at = at % (len + 1);
    match what {
        0 => open.set_len(at).unwrap(),
        1 => {
            open.set_len(at).unwrap();
            open.set_len(len).unwrap();
        }
        2 => open.write_all_at(&vec![0; (len - at).min(5000) as usize], at).unwrap(),
        _ => fs::remove_file(path).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_happens_the_same_tree_arrives_in_the_end(
        files in prop::collection::vec(
            // Letters without names of devices (`con`, `prn`), which are refused.
            ("[ab]/[cd]/[d-m]{1,3}|[s-z]{1,3}", prop_oneof![
                Just(0), 1..5000usize, 1..3_000_000usize, Just(MIB), Just(2 * MIB),
            ], 0..0o1000u32, any::<bool>()),
            1..7,
        ),
        steps in prop::collection::vec(step(), 0..12),
        overwrite in any::<bool>(),
        // As if a second passed or not: a killed store leaves much or nothing.
        journal_at_once in any::<bool>(),
        links in prop::collection::vec("[ab]/([cd]/[d-m]{1,2}|[s-z])", 0..3),
    ) {
        let root = tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        for (i, (path, len, mode, zeros)) in files.iter().enumerate() {
            let mut bytes = noise(i as u64, *len);
            if *zeros {
                let half = bytes.len() / 2;
                bytes[half..].fill(0);
            }
            put(&from.join(path), &bytes);
            if *zeros {
                let file = fs::File::options().write(true).open(from.join(path)).unwrap();
                file.set_len(bytes.len() as u64 / 2).unwrap();
                file.set_len(bytes.len() as u64).unwrap();
                touch(&from.join(path), i as u64);
            }
            chmod(&from.join(path), mode | 0o400);
        }
        for (i, target) in links.iter().enumerate() {
            symlink(target, from.join(format!("link{i}"))).unwrap();
        }
        for directory in ["a", "b/c", "b"] {
            if from.join(directory).exists() {
                touch(&from.join(directory), 77);
            }
        }
        let object = Object::of(&from);
        let options = StoreOptions { overwrite, sync: false, ..StoreOptions::new(&to) };
        let state = state(&to, &object);
        let new = || {
            let mut store = FilesStore::new(options.clone());
            if journal_at_once {
                store = store.journal_at_once();
            }
            let found = object.open(&mut store).unwrap();
            let missing = object.missing(&found);
            (store, missing)
        };
        let (mut store, mut missing) = new();
        for step in steps {
            match step {
                Step::Give { share, seed, twice } => {
                    let count = missing.len() * usize::from(share) / 100;
                    shuffle(&mut missing, seed);
                    let rest = missing.split_off(count);
                    object.give(&mut store, &missing).unwrap();
                    if twice {
                        object.give(&mut store, &missing).unwrap();
                    }
                    missing = rest;
                }
                Step::Kill => {
                    store.kill();
                    (store, missing) = new();
                }
                Step::Close => {
                    drop(store);
                    (store, missing) = new();
                }
                Step::Damage { file, at, what } => {
                    store.kill();
                    damage(&state, file, at, what);
                    (store, missing) = new();
                }
            }
        }
        object.give(&mut store, &missing).unwrap();
        object.verify(&mut store).unwrap();
        prop_assert!(crate::testing::tree(&to.join("from")) == crate::testing::tree(&from));
        prop_assert!(!to.join(".faircast").exists());
        let mut store = FilesStore::new(options.clone());
        let found = object.open(&mut store).unwrap();
        prop_assert_eq!(object.missing(&found), []);
        object.give_digests(&mut store).unwrap();
        let verdict = wait(|| store.verify()).unwrap();
        prop_assert_eq!(verdict, faircast_proto::object::Verdict::Intact);
    }
}
