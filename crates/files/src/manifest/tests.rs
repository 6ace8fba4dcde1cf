use proptest::prelude::*;

use super::*;
use crate::name::NameError;

fn file(path: &str, size: u64) -> Entry {
    let mtime = Mtime { seconds: -5, nanos: 7 };
    Entry { path: path.into(), kind: Kind::File { size }, mode: 0o640, mtime }
}

fn directory(path: &str) -> Entry {
    Entry { kind: Kind::Directory, mode: 0o755, ..file(path, 0) }
}

/// Writes entries without any check, as somebody hostile would.
fn forge(entries: Vec<Entry>) -> Vec<u8> {
    let content_bytes = entries.iter().fold(0u64, |sum, e| sum.wrapping_add(e.size()));
    Manifest { entries, content_bytes }.encode()
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let manifest =
        Manifest::new(vec![file("b/x", 3), file("a", 1 << 40), directory("b"), file("b-", 0)])
            .unwrap();
    let paths: Vec<&str> = manifest.entries().iter().map(|e| &*e.path).collect();
    assert_eq!(paths, ["a", "b", "b/x", "b-"]);
    assert_eq!(manifest.content_bytes(), (1 << 40) + 3);
    assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
}

#[test]
fn an_encoding_is_the_one_of_the_documentation() {
    let mtime = Mtime { seconds: 1, nanos: 2 };
    let entry = Entry { path: "f".into(), kind: Kind::File { size: 5 }, mode: 0o644, mtime };
    let mut want = b"FCM\x01".to_vec();
    want.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    want.extend([0, 1, 0o244, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
    want.extend([0, 1, b'f']);
    assert_eq!(Manifest::new(vec![entry]).unwrap().encode(), want);
}

#[test]
fn hostile_entries_are_refused() {
    let name = |path: &str, what| ManifestError::Name { path: path.into(), what };
    let late = Mtime { seconds: 0, nanos: NANOS_MAX + 1 };
    let table = [
        (vec![file("../x", 1)], name("../x", NameError::Dots)),
        (vec![file("/x", 1)], name("/x", NameError::Empty)),
        (vec![file("a", 1), file("a", 1)], ManifestError::Twice("a".into())),
        (vec![directory("a"), file("a", 1)], ManifestError::Twice("a".into())),
        (vec![file("a", 1), file("a/b", 1)], ManifestError::NoDirectory("a/b".into())),
        (vec![file("a/b", 1)], ManifestError::NoDirectory("a/b".into())),
        (
            vec![directory("a"), directory("a/b"), file("a/c/d", 1)],
            ManifestError::NoDirectory("a/c/d".into()),
        ),
        (vec![directory("a"), file("b", 1), file("a/c", 1)], ManifestError::Order("a/c".into())),
        (vec![file("b", 1), file("a", 1)], ManifestError::Order("a".into())),
        (vec![Entry { mode: 0o4755, ..file("a", 1) }], ManifestError::Mode("a".into())),
        (vec![Entry { mtime: late, ..file("a", 1) }], ManifestError::Time("a".into())),
        (vec![file("a", CONTENT_BYTES_MAX + 1)], ManifestError::Content(CONTENT_BYTES_MAX + 1)),
        (
            vec![file("a", CONTENT_BYTES_MAX), file("b", 1)],
            ManifestError::Content(CONTENT_BYTES_MAX + 1),
        ),
        (vec![file("a", u64::MAX), file("b", 2)], ManifestError::Sum),
    ];
    for (entries, want) in table {
        let case = format!("{want:?}");
        assert_eq!(Manifest::decode(&forge(entries)), Err(want), "{case}");
    }
}

#[test]
fn hostile_bytes_are_refused() {
    let good = forge(vec![file("a", 1)]);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    let table = [
        (Vec::new(), ManifestError::Version),
        (with(3, &[2]), ManifestError::Version),
        (with(4, &u32::MAX.to_be_bytes()), ManifestError::Entries(u32::MAX.into())),
        (with(4, &ENTRIES_MAX.to_be_bytes()), ManifestError::Short),
        (with(4, &0u32.to_be_bytes()), ManifestError::Trailing(26)),
        (with(15, &[2]), ManifestError::Sum),
        (with(16, &[2]), ManifestError::Kind("a".into())),
        (with(16, &[1]), ManifestError::DirectorySize("a".into())),
        (with(39, &[255, 255]), ManifestError::Short),
        (with(41, &[0xff]), ManifestError::NotUtf8("\\xff".into())),
        (good[..good.len() - 1].to_vec(), ManifestError::Short),
        (vec![0; MANIFEST_BYTES_MAX as usize + 1], ManifestError::Bytes(MANIFEST_BYTES_MAX + 1)),
    ];
    for (bytes, want) in table {
        assert_eq!(Manifest::decode(&bytes), Err(want.clone()), "{want:?}");
    }
}

#[test]
fn names_that_differ_in_case_are_told_and_no_error() {
    let manifest = Manifest::new(vec![file("Ä", 1), file("ä", 1), file("b", 1)]).unwrap();
    assert_eq!(manifest.case_collisions(10), [("Ä", "ä")]);
    assert_eq!(manifest.case_collisions(0), []);
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-c.]{1,2}|\\PC{1,6}", 1..4).prop_map(|parts| parts.join("/"))
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_read_as_it_was_written(
        paths in prop::collection::vec((path(), any::<bool>(), any::<u32>()), 0..12),
    ) {
        let entries = paths.iter().map(|(path, dir, size)| match dir {
            true => directory(path),
            false => file(path, (*size).into()),
        });
        if let Ok(manifest) = Manifest::new(entries.collect()) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Manifest::decode(&bytes);
        let mut headed = MAGIC.to_vec();
        headed.extend([0, 0, 0, 2]);
        headed.extend(bytes);
        let _ = Manifest::decode(&headed);
    }

    #[test]
    fn a_changed_manifest_is_refused_or_safe(
        flips in prop::collection::vec((0usize..200, any::<u8>()), 1..4),
    ) {
        let entries = vec![directory("d"), file("d/x", 9), file("d/yy", 1), file("e", 4)];
        let mut bytes = forge(entries);
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(manifest) = Manifest::decode(&bytes) {
            for entry in manifest.entries() {
                prop_assert_eq!(name::check_path(&entry.path), Ok(()));
            }
            // One object has one encoding.
            prop_assert_eq!(manifest.encode(), bytes);
        }
    }
}
