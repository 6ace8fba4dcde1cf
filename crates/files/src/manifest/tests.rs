//! Tests of the manifest: its encoding, and refused entries, links and bytes.

use proptest::prelude::*;

use super::*;

fn file(path: &str, size: u64) -> Entry {
    Entry::new(path, Kind::file(size), 0o640, Mtime { seconds: -5, nanos: 7 })
}

fn sparse(path: &str, size: u64, holes: &[(u32, u32)]) -> Entry {
    let holes = holes.iter().map(|&(first, groups)| Hole { first, groups }).collect();
    Entry { kind: Kind::File { size, holes }, ..file(path, 0) }
}

fn link(path: &str, target: &str) -> Entry {
    Entry { kind: Kind::Link { target: boxed(target.as_bytes()) }, mode: 0, ..file(path, 0) }
}

fn image(path: &str, size: Option<u64>) -> Entry {
    Entry { kind: Kind::Image { size }, ..file(path, 0) }
}

fn owned(entry: Entry, uid: u32, user: &str) -> Entry {
    let owner = Owner { uid, gid: 100, user: user.into(), group: "users".into() };
    Entry { owner: Some(owner.into()), ..entry }
}

fn with_xattrs(entry: Entry, xattrs: &[(&str, usize)]) -> Entry {
    let xattr =
        |(name, len): &(&str, usize)| Xattr { name: (*name).into(), value: vec![7; *len].into() };
    Entry { xattrs: xattrs.iter().map(xattr).collect(), ..entry }
}

fn directory(path: &str) -> Entry {
    Entry { kind: Kind::Directory, mode: 0o755, ..file(path, 0) }
}

fn forge(entries: Vec<Entry>) -> Vec<u8> {
    let plain = entries.iter().filter(|entry| entry.holes().is_empty());
    let content_bytes = plain.fold(0u64, |sum, e| sum.wrapping_add(e.size()));
    Manifest { name: "n".into(), entries, content_bytes }.encode()
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let manifest =
        Manifest::new("n", vec![file("b/x", 3), file("a", 1 << 40), directory("b"), file("b-", 0)])
            .unwrap();
    let paths: Vec<&BStr> = manifest.entries().iter().map(|e| &*e.path).collect();
    assert_eq!(paths, ["a", "b", "b/x", "b-"]);
    assert_eq!(manifest.content_bytes(), (1 << 40) + 3);
    assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
}

#[test]
fn an_encoding_is_the_one_of_the_documentation() {
    let mtime = Mtime { seconds: 1, nanos: 2 };
    let kind = Kind::File { size: 0x30_0005, holes: [Hole { first: 0, groups: 2 }].into() };
    let file = with_xattrs(Entry::new("f", kind, 0o644, mtime), &[("user.x", 1)]);
    let owner = Owner { uid: 5, gid: 6, user: "u".into(), group: "".into() };
    let entry = Entry { owner: Some(owner.into()), ..file };
    let link = Entry::new("l", Kind::Link { target: boxed(b"f") }, 0, mtime);
    let time = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    let mut want = b"FCM\x03".to_vec();
    want.extend([0, 0, 0, 2, 0, 0, 0, 0, 0, 0x10, 0, 5]);
    want.extend(b"\x04name");
    want.extend([0, 1, 0, 0, 0, 5, 0, 0, 0, 6, 1, b'u', 0]);
    want.extend([0, 7, 1, 0o244]);
    want.extend(time);
    want.extend([0, 0, 0, 0, 0, 0x30, 0, 5, 0, 1, b'f']);
    want.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    want.extend([0, 0]);
    want.extend(b"\x00\x01\x06user.x\x00\x00\x00\x01\x07");
    want.extend([2, 0, 0, 0]);
    want.extend(time);
    want.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b'l', b'f']);
    let manifest = Manifest::new("name", vec![entry, link]).unwrap();
    assert_eq!(manifest.encode(), want);
    assert_eq!(Manifest::decode(&want), Ok(manifest));
    let image = |size| Manifest::new("i", vec![image("i", size)]).unwrap().encode();
    assert_eq!(image(None)[4..16], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(image(None)[20..22], [3, 0]);
    assert_eq!(image(None)[36..44], [255; 8]);
    assert_eq!(image(Some(9))[36..44], [0, 0, 0, 0, 0, 0, 0, 9]);
}

#[test]
fn holes_are_no_content() {
    for (size, holes, content) in [
        (0, &[][..], 0),
        (5, &[(0, 1)], 0),
        (5, &[], 5),
        (3 * GROUP_BYTES + 5, &[(0, 1)], 2 * GROUP_BYTES + 5),
        (3 * GROUP_BYTES + 5, &[(3, 1)], 3 * GROUP_BYTES),
        (3 * GROUP_BYTES + 5, &[(0, 1), (2, 2)], GROUP_BYTES),
        (3 * GROUP_BYTES + 5, &[(0, 4)], 0),
        (CONTENT_BYTES_MAX, &[(0, 1 << 26)], 0),
    ] {
        let manifest = Manifest::new("n", vec![sparse("f", size, holes)]).unwrap();
        assert_eq!(manifest.content_bytes(), content, "{size} {holes:?}");
        assert_eq!(manifest.entries()[0].size(), size);
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }
}

#[test]
fn the_name_of_an_object_is_one_that_a_file_could_have() {
    assert_eq!(Manifest::new("photos 2026", vec![]).unwrap().name(), "photos 2026");
    for (name, what) in [
        ("", NameError::Empty),
        ("..", NameError::Dots),
        ("a/b", NameError::Empty),
        ("a\u{1b}[2J", NameError::Format),
        (&*"a".repeat(256), NameError::Long),
    ] {
        let want = ManifestError::ObjectName { name: name.into(), what };
        assert_eq!(Manifest::new(name, vec![]), Err(want));
    }
}

#[test]
fn a_title_with_characters_that_are_not_printed_is_neither_sent_nor_taken() {
    let sound = Manifest::new("abc", vec![]).unwrap().encode();
    for title in ["\u{202e}", "\u{2028}", "\u{2067}", "\u{200b}", "\u{feff}", "\u{9b}b", "\u{1b}[m"]
    {
        let want = ManifestError::ObjectName { name: title.into(), what: NameError::Format };
        assert!(!want.to_string().contains(title));
        assert_eq!(Manifest::new(title, vec![]), Err(want.clone()));
        let place = sound.windows(3).position(|part| part == b"abc").unwrap();
        let mut bytes = sound.clone();
        bytes[place..place + 3].copy_from_slice(title.as_bytes());
        assert_eq!(Manifest::decode(&bytes), Err(want));
    }
}

#[test]
fn hostile_entries_are_refused() {
    let name = |path: &str, what| ManifestError::Name { path: path.into(), what };
    let lacks = |path: &str| ManifestError::NoDirectory(path.into());
    let late = Mtime { seconds: 0, nanos: NANOS_MAX + 1 };
    let beyond = CONTENT_BYTES_MAX + 1;
    let table = [
        (vec![file("../x", 1)], name("../x", NameError::Dots)),
        (vec![file("/x", 1)], name("/x", NameError::Empty)),
        (vec![file("a", 1), file("a", 1)], ManifestError::Twice("a".into())),
        (vec![directory("a"), file("a", 1)], ManifestError::Twice("a".into())),
        (vec![file("a", 1), file("a/b", 1)], lacks("a/b")),
        (vec![file("a/b", 1)], lacks("a/b")),
        (vec![directory("a"), directory("a/b"), file("a/c/d", 1)], lacks("a/c/d")),
        (vec![directory("a"), file("b", 1), file("a/c", 1)], ManifestError::Order("a/c".into())),
        (vec![file("b", 1), file("a", 1)], ManifestError::Order("a".into())),
        (vec![Entry { mode: 0o4755, ..file("a", 1) }], ManifestError::Mode("a".into())),
        (vec![Entry { mtime: late, ..file("a", 1) }], ManifestError::Time("a".into())),
        (vec![file("a", beyond)], ManifestError::Content(beyond)),
        (vec![file("a", CONTENT_BYTES_MAX), file("b", 1)], ManifestError::Content(beyond)),
        (vec![file("a", u64::MAX), file("b", 2)], ManifestError::Sum),
        (vec![link("a", "b"), file("a/b", 1)], lacks("a/b")),
        (vec![directory("d"), link("d/l", "../d"), file("d/l/x", 1)], lacks("d/l/x")),
        (vec![Entry { mode: 0o777, ..link("a", "a") }], ManifestError::Mode("a".into())),
        (
            vec![Entry { kind: Kind::Image { size: None }, ..file("a", 1) }],
            ManifestError::Image("a".into()),
        ),
        (vec![image("n", Some(1)), file("z", 1)], ManifestError::Image("n".into())),
        (vec![owned(file("a", 1), 1, "a\nb")], ManifestError::Owner("a".into())),
        (vec![with_xattrs(link("a", "a"), &[("user.b", 1)])], ManifestError::Xattr("a".into())),
    ];
    let holes = [
        (5, &[(0, 0)][..]),
        (5, &[(0, 2)]),
        (5, &[(1, 1)]),
        (5, &[(1, u32::MAX)]),
        (0, &[(0, 1)]),
        (9 << 20, &[(0, 1), (1, 1)]),
        (9 << 20, &[(5, 1), (1, 1)]),
    ];
    let hole = || ManifestError::Hole("a".into());
    let holes = holes.map(|(size, holes)| (vec![sparse("a", size, holes)], hole()));
    let xattrs = [
        &[("user.", 1)][..],
        &[("security.capability", 1)],
        &[("trusted.x", 1)],
        &[("user.b", 1), ("user.a", 1)],
        &[("user.b", 1), ("user.b", 1)],
        &[("user.b", 64 << 10)],
    ];
    let xattr = || ManifestError::Xattr("a".into());
    let xattrs = xattrs.map(|xattrs| (vec![with_xattrs(file("a", 1), xattrs)], xattr()));
    for (entries, want) in table.into_iter().chain(holes).chain(xattrs) {
        let case = format!("{want:?}");
        assert_eq!(Manifest::decode(&forge(entries)), Err(want), "{case}");
    }
}

#[test]
fn hostile_bytes_are_refused() {
    let good = forge(vec![owned(file("a", 1), 1, "x")]);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    // Offset of the entry: the head has 16 bytes, the name 2, the owner 17 with their number.
    let entry = 16 + 2 + 2 + 8 + 2 + 6;
    let table = [
        (Vec::new(), ManifestError::Magic),
        (with(0, b"x"), ManifestError::Magic),
        (with(3, &[1]), ManifestError::Version(1)),
        (with(3, &[4]), ManifestError::Version(4)),
        (with(4, &u32::MAX.to_be_bytes()), ManifestError::Entries(u32::MAX.into())),
        (with(4, &ENTRIES_MAX.to_be_bytes()), ManifestError::Short),
        (with(4, &0u32.to_be_bytes()), ManifestError::Trailing(29)),
        (with(15, &[2]), ManifestError::Sum),
        (with(18, &[0, 0]), ManifestError::Short),
        (with(18, &[255, 255]), ManifestError::Short),
        (with(entry, &[5]), ManifestError::Kind("a".into())),
        (with(entry, &[4]), ManifestError::Short),
        (with(entry + 1, &[8]), ManifestError::Kind("a".into())),
        (with(entry, &[1]), ManifestError::DirectorySize("a".into())),
        (with(entry, &[2]), ManifestError::Short),
        (with(entry + 24, &[255, 255]), ManifestError::Short),
        (with(17, &[0xff]), ManifestError::NotUtf8("\\xff".into())),
        (with(entry + 27, &[0, 1]), ManifestError::Owner("a".into())),
        (with(entry + 1, &[0]), ManifestError::Trailing(2)),
        (good[..good.len() - 1].to_vec(), ManifestError::Short),
        (vec![0; MANIFEST_BYTES_MAX as usize + 1], ManifestError::Bytes(MANIFEST_BYTES_MAX + 1)),
    ];
    for (bytes, want) in table {
        assert_eq!(Manifest::decode(&bytes), Err(want.clone()), "{want:?}");
    }
    let advice = |version| ManifestError::Version(version).to_string();
    assert!(advice(1).contains("a newer faircast at the sender"), "{}", advice(1));
    assert!(advice(4).contains("a newer faircast here"), "{}", advice(4));
    let unused = [&good[..16], b"\x01n\0\x01", &[0; 10], &good[entry..entry + 27]].concat();
    let unused = [&unused[..31], &[0], &unused[32..]].concat();
    assert_eq!(Manifest::decode(&unused), Err(ManifestError::Owner("".into())));
    let twice = [&good[..16], b"\x01n\0\x02", &[0; 20], &good[entry..]].concat();
    assert_eq!(Manifest::decode(&twice), Err(ManifestError::Owner("".into())));
}

#[test]
fn links_that_could_lead_elsewhere_are_refused() {
    let tree = |target: &str| {
        vec![
            directory("d"),
            directory("d/blobs"),
            file("d/blobs/x", 1),
            directory("d/snap"),
            link("d/snap/l", target),
            link("d/snap/up", ".."),
            directory("e"),
        ]
    };
    for (target, want) in [
        ("../blobs/x", None),
        ("../blobs/none yet/y", None),
        (".", None),
        ("..", None),
        ("./../../e", None),
        ("../../d/blobs/", None),
        ("up", None),
        ("up/blobs/x", None),
        ("l", None),
        ("", Some(NameError::TargetLength)),
        (&*"a/".repeat(2048), Some(NameError::TargetLength)),
        ("/etc/passwd", Some(NameError::Absolute)),
        ("../..", Some(NameError::Outside)),
        ("../../..", Some(NameError::Outside)),
        ("../../../etc/passwd", Some(NameError::Outside)),
        ("../../other/x", Some(NameError::Outside)),
        ("../../d/../../x", Some(NameError::Outside)),
        // Through another link, to a directory elsewhere: outside of DIR.
        ("up/../..", Some(NameError::Back)),
        ("../snap/up/../../x", Some(NameError::Back)),
        ("nothing/../../../..", Some(NameError::Back)),
        ("../blobs/x/..", Some(NameError::Back)),
        ("a\0b", Some(NameError::Nul)),
        ("../blobs/.faircast/x", Some(NameError::State)),
    ] {
        let want = want.map(|what| ManifestError::Link { path: "d/snap/l".into(), what });
        assert_eq!(Manifest::decode(&forge(tree(target))).err(), want, "{target}");
    }
}

#[test]
fn names_that_differ_in_case_are_told_and_no_error() {
    let manifest = Manifest::new("n", vec![file("Ä", 1), file("ä", 1), file("b", 1)]).unwrap();
    assert_eq!(manifest.case_collisions(10), [("Ä".into(), "ä".into())]);
    assert_eq!(manifest.case_collisions(0), []);
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-c.]{1,2}|\\PC{1,6}", 1..4).prop_map(|parts| parts.join("/"))
}

fn kind() -> impl Strategy<Value = Kind> {
    let holes = prop::collection::vec((0..6u32, 1..3u32), 0..3);
    prop_oneof![
        (any::<u32>(), holes).prop_map(|(size, holes)| {
            let holes = holes.into_iter().map(|(first, groups)| Hole { first, groups });
            Kind::File { size: size.into(), holes: holes.collect() }
        }),
        Just(Kind::Directory),
        "[abc./]{1,8}".prop_map(|target| Kind::Link { target: boxed(target.as_bytes()) }),
        any::<Option<u32>>().prop_map(|size| Kind::Image { size: size.map(u64::from) }),
    ]
}

prop_compose! {
    fn entry()(
        path in path(),
        kind in kind(),
        uid in any::<Option<u8>>(),
        xattrs in prop::collection::vec(("user\\.[ab]{1,2}|system\\.posix_acl_access", 0..9usize), 0..3),
    ) -> Entry {
        let mode = if matches!(kind, Kind::Link { .. }) { 0 } else { 0o600 };
        let xattrs: Vec<(&str, usize)> = xattrs.iter().map(|(name, len)| (&**name, *len)).collect();
        let entry = with_xattrs(Entry { kind, mode, ..file(&path, 0) }, &xattrs);
        match uid {
            Some(uid) => owned(entry, uid.into(), "u"),
            None => entry,
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_read_as_it_was_written(
        entries in prop::collection::vec(entry(), 0..12),
    ) {
        let mut taken = Vec::new();
        for entry in entries {
            taken.push(entry);
            match Manifest::new("n", taken.clone()) {
                Ok(manifest) => prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest)),
                Err(_) => drop(taken.pop()),
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Manifest::decode(&bytes);
        let mut headed = b"FCM\x03\0\0\0\x02".to_vec();
        headed.extend(&bytes);
        let _ = Manifest::decode(&headed);
        headed.truncate(8);
        headed.extend(b"\0\0\0\0\0\0\0\0\x01n\0\0");
        headed.extend(bytes);
        let _ = Manifest::decode(&headed);
    }

    #[test]
    fn a_changed_manifest_is_refused_or_safe(
        flips in prop::collection::vec((0usize..400, any::<u8>()), 1..4),
    ) {
        let entries = vec![
            owned(directory("d"), 1, "a"),
            link("d/l", "../e"),
            with_xattrs(owned(file("d/x", 9), 2, "b"), &[("user.a", 3), ("user.b", 0)]),
            file("d/yy", 1),
            sparse("e", 9 << 20, &[(0, 2), (5, 4)]),
        ];
        let mut bytes = Manifest::new("n", entries).unwrap().encode();
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(manifest) = Manifest::decode(&bytes) {
            for entry in manifest.entries() {
                prop_assert_eq!(name::check_path(&entry.path), Ok(()));
                let sum = entry.content_bytes() + entry.hole_bytes();
                prop_assert_eq!(sum, entry.size());
            }
            prop_assert_eq!(manifest.encode(), bytes);
        }
    }

    #[test]
    fn no_chain_of_links_leads_out(
        entries in prop::collection::vec(
            ("[ab](/[ab]){0,2}", prop_oneof![
                Just(None),
                "((\\.\\./|\\./){0,4}|[ab]/)([ab]|\\.\\.)(/([ab]|\\.\\.)){0,3}".prop_map(Some),
            ]),
            1..12,
        ),
    ) {
        let mut taken = Vec::new();
        for (path, target) in entries {
            taken.push(match &target {
                Some(target) => link(&path, target),
                None => directory(&path),
            });
            if Manifest::new("n", taken.clone()).is_err() {
                taken.pop();
            }
        }
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().canonicalize().unwrap().join("dir");
        std::fs::create_dir(&dir).unwrap();
        for entry in Manifest::new("n", taken).unwrap().entries() {
            let at = dir.join(entry.local_path());
            match entry.link_target() {
                Some(target) => std::os::unix::fs::symlink(name::local_path(target), at).unwrap(),
                None => std::fs::create_dir(at).unwrap(),
            }
        }
        let mut open = vec![dir.clone()];
        while let Some(at) = open.pop() {
            for found in std::fs::read_dir(&at).unwrap() {
                let path = found.unwrap().path();
                if let Ok(leads) = path.canonicalize() {
                    prop_assert!(leads.starts_with(&dir) && leads != dir, "{path:?} to {leads:?}");
                }
                if path.symlink_metadata().unwrap().is_dir() {
                    open.push(path);
                }
            }
        }
    }
}
