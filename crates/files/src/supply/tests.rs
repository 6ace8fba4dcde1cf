//! Tests of a supply: scans with links, patterns and holes, hashing, reading, changed files.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::layout::GROUP_BYTES;
use crate::testing::{Object, SYMBOL, assert_fails, digests, noise, put, sparse, touch};

#[test]
fn a_file_arrives_under_its_name_and_a_directory_with_all_that_is_in_it() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    put(&at("x/model.bin"), b"m");
    put(&at("images/b/2.png"), b"22");
    put(&at("images/1.png"), b"1");
    fs::create_dir(at("images/empty")).unwrap();
    fs::hard_link(at("images/1.png"), at("images/hard")).unwrap();
    symlink(at("x/model.bin"), at("link.bin")).unwrap();
    let inside = at("images").join("b/..");
    for paths in [
        [at("x/model.bin"), at("images"), at("link.bin")],
        [at("link.bin"), inside, at("x/../x/model.bin")],
    ] {
        let supply = FilesSupply::scan(&paths).unwrap();
        let names: Vec<_> =
            supply.manifest().entries().iter().map(|e| (e.path.to_string(), e.size())).collect();
        let want = [
            ("images", 0),
            ("images/1.png", 1),
            ("images/b", 0),
            ("images/b/2.png", 2),
            ("images/empty", 0),
            ("images/hard", 0),
            ("link.bin", 1),
            ("model.bin", 1),
        ];
        assert_eq!(names, want.map(|(path, size)| (path.to_string(), size)));
    }
}

fn names(scan: &Scan) -> Vec<String> {
    scan.manifest().entries().iter().map(|entry| entry.path.to_string()).collect()
}

fn warnings(scan: &Scan) -> Vec<String> {
    scan.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_no_file_is_left_out_with_a_warning() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    put(&at("t/a"), b"a");
    put(&at("t/A"), b"a");
    put(&at("t/.faircast/0123456789abcdef/0.part"), b"a");
    symlink("/etc", at("t/link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("t/socket")).unwrap();
    for i in 0..150 {
        symlink("/etc", at(&format!("t/link{i}"))).unwrap();
    }
    let scan = Scan::new(&[at("t")], &ScanOptions::default()).unwrap();
    assert_eq!(names(&scan), ["t", "t/A", "t/a"]);
    let skipped = Skipped { links: 151, special: 2, lacking: 151, ..Skipped::default() };
    assert_eq!((scan.totals().skipped, skipped.total()), (skipped, 153));
    let warnings = warnings(&scan);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    for (warning, want) in warnings.iter().zip([
        &["151 symbolic links are not sent", "/t/link", " and 141 more; --links follow"][..],
        &["a socket is not sent", "/t/socket"],
        &["a folder is not sent", "/t/.faircast"],
        &["t/A and t/a differ in case alone"],
    ]) {
        assert!(want.iter().all(|want| warning.contains(want)), "{warning}");
    }
}

fn hub(root: &Path) {
    put(&root.join("hub/blobs/0abc"), b"weights");
    put(&root.join("hub/blobs/1def"), b"settings");
    fs::create_dir_all(root.join("hub/snapshots/main/sub")).unwrap();
    symlink("../../blobs/0abc", root.join("hub/snapshots/main/model.bin")).unwrap();
    symlink("../../../blobs/1def", root.join("hub/snapshots/main/sub/config.json")).unwrap();
    symlink("main", root.join("hub/snapshots/latest")).unwrap();
}

#[test]
fn links_that_lead_to_what_is_sent_are_kept() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    hub(root.path());
    symlink("nothing/yet", at("hub/dangling")).unwrap();
    symlink(at("hub/blobs"), at("hub/absolute")).unwrap();
    symlink("../other", at("hub/outside")).unwrap();
    symlink("snapshots/latest/../../blobs", at("hub/back")).unwrap();
    symlink("../../etc", at("hub/snapshots/etc")).unwrap();
    let scan = Scan::new(&[at("hub")], &ScanOptions::default()).unwrap();
    let links: Vec<_> = scan
        .manifest()
        .entries()
        .iter()
        .filter_map(|entry| Some((entry.path.to_string(), entry.link_target()?.to_string())))
        .collect();
    let want = [
        ("hub/dangling", "nothing/yet"),
        ("hub/snapshots/latest", "main"),
        ("hub/snapshots/main/model.bin", "../../blobs/0abc"),
        ("hub/snapshots/main/sub/config.json", "../../../blobs/1def"),
    ];
    assert_eq!(links, want.map(|(path, text)| (path.to_string(), text.to_string())));
    let totals = scan.totals();
    assert_eq!((totals.files, totals.links, totals.bytes), (2, 4, 15));
    assert_eq!(totals.skipped, Skipped { links: 4, lacking: 4, ..Skipped::default() });
    put(&at("other/x"), b"x");
    let scan = Scan::new(&[at("hub"), at("other")], &ScanOptions::default()).unwrap();
    assert_eq!(scan.manifest().find("hub/outside").unwrap().link_target(), Some("../other".into()));
}

#[test]
fn links_are_followed_where_that_is_asked_for() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    hub(root.path());
    symlink("nothing", at("hub/snapshots/main/dangling")).unwrap();
    symlink("..", at("hub/snapshots/main/sub/up")).unwrap();
    symlink("self", at("hub/snapshots/main/self")).unwrap();
    let options = ScanOptions { links: Links::Follow, ..ScanOptions::default() };
    let scan = Scan::new(&[at("hub/snapshots/main")], &options).unwrap();
    assert_eq!(names(&scan), ["main", "main/model.bin", "main/sub", "main/sub/config.json"]);
    assert_eq!((scan.totals().bytes, scan.totals().skipped.links), (15, 3));
    let warnings = warnings(&scan);
    assert!(warnings[0].starts_with("2 symbolic links are not sent"), "{warnings:?}");
    assert!(warnings[1].starts_with("a symbolic link is not followed: back to"), "{warnings:?}");
    let object = Object::read(&mut FilesSupply::new(scan).unwrap());
    assert_eq!(object.content(), b"weightssettings");
    // A directory may occur twice, which is no loop.
    let scan = Scan::new(&[at("hub")], &options).unwrap();
    assert_eq!(scan.manifest().find("hub/snapshots/latest/model.bin").unwrap().size(), 7);
}

#[test]
fn nothing_to_send_is_an_error_that_says_why() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    hub(root.path());
    let error = |path: &str, options: &ScanOptions| {
        Scan::new(&[at(path)], options).unwrap_err().to_string()
    };
    let alone = error("hub/snapshots/main", &ScanOptions::default());
    assert!(alone.contains("nothing to send: there is no file in "), "{alone}");
    assert!(alone.contains("2 symbolic links are not sent"), "{alone}");
    assert!(alone.contains("--links follow sends what they lead to"), "{alone}");
    let skip = ScanOptions { links: Links::Skip, ..ScanOptions::default() };
    assert!(error("hub/snapshots/main", &skip).contains("2 symbolic links are not sent: "));
    let excluded = ScanOptions { exclude: vec!["*".into()], ..ScanOptions::default() };
    assert!(error("hub", &excluded).contains("one is excluded: "));
    fs::create_dir(at("empty")).unwrap();
    assert!(error("empty", &ScanOptions::default()).contains("an empty directory is not sent"));
    let links = Scan::new(&[at("hub/snapshots")], &ScanOptions::default()).unwrap();
    assert_eq!((links.totals().files, links.totals().links), (0, 1));
}

#[test]
fn patterns_exclude_what_they_exclude_in_git() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    for path in
        ["t/a.o", "t/keep.o", "t/src/a.c", "t/src/a.o", "t/target/x", "t/src/target/y", "u/a"]
    {
        put(&at(path), b"x");
    }
    symlink("a.c", at("t/src/link.o")).unwrap();
    for (patterns, left, excluded) in [
        (&["*.o"][..], &["t/src/a.c", "t/src/target/y", "t/target/x", "u/a"][..], 4),
        (&["*.o", "!keep.o"], &["t/keep.o", "t/src/a.c", "t/src/target/y", "t/target/x", "u/a"], 3),
        (&["target/", "*.o"], &["t/src/a.c", "u/a"], 6),
        (&["/t/target", "*.o"], &["t/src/a.c", "t/src/target/y", "u/a"], 5),
        (&["t/**/a.*"], &["t/keep.o", "t/src/link.o", "t/src/target/y", "t/target/x", "u/a"], 3),
        (&["/t"], &["u/a"], 1),
        (
            &["# no pattern", "", "u"],
            &[
                "t/a.o",
                "t/keep.o",
                "t/src/a.c",
                "t/src/a.o",
                "t/src/link.o",
                "t/src/target/y",
                "t/target/x",
            ],
            1,
        ),
    ] {
        let exclude = patterns.iter().map(ToString::to_string).collect();
        let options = ScanOptions { exclude, ..ScanOptions::default() };
        let scan = Scan::new(&[at("t"), at("u")], &options).unwrap();
        let files: Vec<String> = scan
            .manifest()
            .entries()
            .iter()
            .filter(|entry| !entry.is_directory())
            .map(|entry| entry.path.to_string())
            .collect();
        assert_eq!(files, left, "{patterns:?}");
        assert_eq!(scan.totals().skipped.excluded, excluded, "{patterns:?}");
        assert_eq!(scan.warnings(), []);
    }
    let options = ScanOptions { exclude: vec!["[z-a]".into()], ..ScanOptions::default() };
    let error = Scan::new(&[at("t")], &options).unwrap_err().to_string();
    assert!(error.contains("the pattern \"[z-a]\" cannot be used"), "{error}");
}

#[test]
fn holes_are_not_read_and_hash_to_what_they_are() {
    let root = tempdir().unwrap();
    let writes = [(0, 5), (20 * GROUP_BYTES + 5, 3 << 20)];
    sparse(&root.path().join("t/disk"), 50 * GROUP_BYTES + 9, &writes);
    put(&root.path().join("t/z"), &noise(1, 5000));
    let mut supply = FilesSupply::scan(&[root.path().join("t")]).unwrap();
    let handle = supply.handle();
    digests(&mut supply);
    let hashes = handle.file_hashes().unwrap().unwrap();
    for (FileHash { path, hash }, name) in hashes.iter().zip(["t/disk", "t/z"]) {
        assert_eq!(**path, *name);
        let bytes = fs::read(root.path().join(name)).unwrap();
        assert_eq!(*hash, Some(*blake3::hash(&bytes).as_bytes()), "{name}");
    }
    let content = 5 * GROUP_BYTES + 5000;
    let counts = handle.counts();
    assert_eq!((counts.bytes, counts.bytes_hashed, counts.bytes_read), (content, content, content));
    let object = Object::read(&mut supply);
    assert_eq!((object.parts[1].len() as u64, object.parts[2].len()), (content, 6 * 32));
}

#[test]
fn what_cannot_be_sent_is_refused_by_its_name() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    put(&at("a/same"), b"a");
    put(&at("b/same"), b"b");
    put(&at("a/.faircast/x"), b"b");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let table = [
        (vec![], "no path was given"),
        (vec![at("none")], "/none: cannot be read"),
        (vec![at("a/.faircast")], "`.faircast`, which receivers use themselves"),
        (vec![at("a/same"), at("b/same")], "would both arrive as `same`"),
        (vec![at("socket")], "neither a file nor a directory"),
        (vec!["/".into()], "has no name"),
    ];
    for (paths, want) in table {
        assert_fails(FilesSupply::scan(&paths), want);
    }
}

#[test]
fn the_same_tree_gives_the_same_object_and_the_hashes_that_b3sum_prints() {
    let (one, two) = (tempdir().unwrap(), tempdir().unwrap());
    let sizes = [0, 1, 1024, GROUP_BYTES as usize, GROUP_BYTES as usize + 1, 3_500_000];
    for (root, order) in [(&one, [0, 1, 2, 3, 4, 5]), (&two, [5, 3, 1, 0, 2, 4])] {
        for i in order {
            put(&root.path().join(format!("t/{i}")), &noise(i as u64, sizes[i]));
        }
        touch(&root.path().join("t"), 5);
    }
    let [a, b] = [&one, &two].map(|root| {
        let mut supply = FilesSupply::scan(&[root.path().join("t")]).unwrap();
        let handle = supply.handle();
        let digests = digests(&mut supply);
        let counts = handle.counts();
        assert_eq!(counts.bytes_hashed, counts.bytes);
        (supply.object(), digests, handle.file_hashes().unwrap().unwrap())
    });
    assert_eq!(a, b);
    for (i, FileHash { path, hash }) in a.2.iter().enumerate() {
        assert_eq!(**path, *format!("t/{i}"));
        assert_eq!(*hash, Some(*blake3::hash(&noise(i as u64, sizes[i])).as_bytes()), "{path}");
    }
}

#[test]
fn content_is_read_once_where_it_is_sent_in_order() {
    let root = tempdir().unwrap();
    let bytes = noise(1, 40 << 20);
    put(&root.path().join("f"), &bytes);
    let mut supply = FilesSupply::scan(&[root.path().join("f")]).unwrap();
    let handle = supply.handle();
    let mut out = Vec::new();
    for offset in (0..bytes.len() as u64).step_by(SYMBOL as usize) {
        if offset % GROUP_BYTES < SYMBOL {
            supply.expect(offset);
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        let len = SYMBOL.min(bytes.len() as u64 - offset) as u32;
        supply.read(Part::Content, offset, len, &mut out).unwrap();
    }
    assert!(out == bytes);
    digests(&mut supply);
    let counts = handle.counts();
    // Chunks hashed before the first read are read twice.
    assert!(counts.bytes_read <= counts.bytes * 3 / 2, "{counts:?}");
}

#[test]
fn hashing_goes_on_where_nothing_is_sent() {
    let root = tempdir().unwrap();
    put(&root.path().join("f"), &noise(1, 30 << 20));
    let mut supply = FilesSupply::scan(&[root.path().join("f")]).unwrap();
    supply.expect(29 << 20);
    let known = digests(&mut supply);
    assert!(supply.handle().counts().bytes_read <= 60 << 20);
    let mut out = Vec::new();
    supply.read(Part::Digests, 0, 30 * 32, &mut out).unwrap();
    assert_eq!(*blake3::hash(&out).as_bytes(), known);
}

#[test]
fn a_sweep_that_jumps_without_a_word_is_read_ahead_of_again() {
    let root = tempdir().unwrap();
    let bytes = noise(1, 60 << 20);
    put(&root.path().join("f"), &bytes);
    let mut supply = FilesSupply::scan(&[root.path().join("f")]).unwrap();
    digests(&mut supply);
    let mut out = Vec::new();
    for start in [40u64 << 20, 20 << 20] {
        let known = |supply: &FilesSupply| supply.shared.peek((start >> 20) as u32 + 2).0.is_some();
        assert!(!known(&supply));
        for i in 0..300 {
            out.clear();
            supply.read(Part::Content, start + i * SYMBOL, SYMBOL as u32, &mut out).unwrap();
            assert!(out == bytes[(start + i * SYMBOL) as usize..][..SYMBOL as usize]);
            supply.read(Part::Content, i * 7919 % 1000 * 1400, 1400, &mut out).unwrap();
        }
        let ready = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            known(&supply)
        });
        assert!(ready, "{start}");
    }
}

#[test]
fn a_file_that_changes_is_an_error_that_names_it() {
    type Change = fn(&Path);
    let table: [(&str, Change); 5] = [
        ("grown", |path| fs::write(path, vec![1; 5 << 20]).unwrap()),
        ("cut off", |path| fs::File::options().write(true).open(path).unwrap().set_len(9).unwrap()),
        ("written to", |path| {
            use std::os::unix::fs::FileExt as _;
            fs::File::options().write(true).open(path).unwrap().write_all_at(b"x", 3).unwrap();
        }),
        ("replaced", |path| {
            let other = path.with_extension("new");
            put(&other, &noise(2, 4 << 20));
            fs::rename(other, path).unwrap();
        }),
        ("removed", |path| fs::remove_file(path).unwrap()),
    ];
    for (case, change) in table {
        let root = tempdir().unwrap();
        let path = root.path().join("t/file");
        put(&path, &noise(1, 4 << 20));
        for i in 0..40 {
            put(&root.path().join(format!("t/a{i}")), &noise(i, 1 << 20));
        }
        let mut supply = FilesSupply::scan(&[root.path().join("t")]).unwrap();
        change(&path);
        let mut error = None;
        let mut out = Vec::new();
        let len = Supply::len(&supply, Part::Content);
        for offset in (0..len).step_by(1 << 16) {
            let piece = (len - offset).min(1 << 16) as u32;
            if let Err(found) = supply.read(Part::Content, offset, piece, &mut out) {
                error = Some(found.reason);
                break;
            }
        }
        let error = error.unwrap_or_else(|| panic!("{case}: nothing noticed"));
        assert!(error.contains("/t/file: "), "{case}: {error}");
        assert!(!supply.is_repeatable(), "{case}: nobody can send the same again");
        for _ in 0..1000 {
            if supply.digests().is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(supply.digests().is_err(), "{case}");
    }
}

#[test]
fn thousands_of_files_need_few_handles_and_one_opening_each() {
    let root = tempdir().unwrap();
    for i in 0..3000 {
        put(&root.path().join(format!("t/{}/{i}", i % 10)), &noise(i, i as usize % 50));
    }
    let mut supply = FilesSupply::scan(&[root.path().join("t")]).unwrap();
    let shared = supply.shared.clone();
    digests(&mut supply);
    let object = Object::read(&mut supply);
    assert_eq!(object.content().len(), (0..3000).map(|i| i % 50).sum::<usize>());
    // All fits into memory, so each file is opened once.
    let opened = shared.handles.lock().opened;
    assert!(opened <= 3000, "{opened}");
}

#[test]
fn nothing_and_empty_files_have_no_digests() {
    let root = tempdir().unwrap();
    put(&root.path().join("t/empty"), b"");
    let object = Object::of(&root.path().join("t"));
    assert_eq!(object.parts[1], []);
    assert_eq!(object.announcement.digests, Some(*blake3::hash(&[]).as_bytes()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_range_is_read_as_it_is_in_the_files(
        sizes in prop::collection::vec(prop_oneof![0..3000usize, 900_000..2_500_000usize], 1..8),
        reads in prop::collection::vec((any::<u64>(), 0..70_000u32, any::<bool>()), 1..60),
    ) {
        let root = tempdir().unwrap();
        let mut all = Vec::new();
        for (i, size) in sizes.iter().enumerate() {
            let bytes = noise(i as u64, *size);
            put(&root.path().join(format!("t/{i}")), &bytes);
            all.extend(bytes);
        }
        let mut supply = FilesSupply::scan(&[root.path().join("t")]).unwrap();
        for (offset, len, expect) in reads {
            let offset = offset % (all.len() as u64 + 1);
            let len = (all.len() as u64 - offset).min(len.into()) as u32;
            if expect {
                supply.expect(offset);
            }
            let mut out = vec![1, 2, 3];
            prop_assert_eq!(supply.read(Part::Content, offset, len, &mut out), Ok(0));
            prop_assert!(out[3..] == all[offset as usize..][..len as usize]);
        }
    }
}

#[test]
fn names_are_sent_as_they_are_and_what_is_left_out_is_told() {
    use std::os::unix::ffi::OsStrExt as _;
    let root = tempdir().unwrap();
    let tree = root.path().join("t\\x2d");
    let names: [&[u8]; 5] = [b"line\nbreak", b"dev\\x2dsda", b"con", b"no\xffutf8", b"c:"];
    for name in names {
        put(&tree.join(std::ffi::OsStr::from_bytes(name)), b"x");
    }
    let scan = Scan::new(&[&tree], &ScanOptions::default()).unwrap();
    assert_eq!(scan.totals().files, 5);
    assert_eq!((scan.manifest().name(), scan.totals().skipped), ("t\\x2d", Skipped::default()));
    for name in names {
        let path = [b"t\\x2d/", name].concat();
        assert!(scan.manifest().find(&path).is_some(), "{name:?}");
    }
    let decoded = Manifest::decode(&scan.manifest().encode());
    assert_eq!(decoded.as_ref(), Ok(scan.manifest()));
    put(&tree.join(".faircast"), b"x");
    put(&tree.join(["d"; crate::name::DEPTH_MAX].join("/")).join("f"), b"x");
    let scan = Scan::new(&[&tree], &ScanOptions::default()).unwrap();
    let skipped = scan.totals().skipped;
    assert_eq!((skipped.names, skipped.lacking, scan.totals().files), (2, 2, 5));
    let warning = scan.warnings()[0].to_string();
    assert!(warning.starts_with("2 names are not sent"), "{warning}");
    let shown = Warning::Skipped {
        why: Skip::BadName,
        count: 1,
        examples: vec![tree.join("line\nbreak\u{1b}[2J\u{202e}")],
    };
    let shown = shown.to_string();
    assert!(!shown.contains(faircast_base::is_format), "{shown}");
    let odd = root.path().join("a\u{202e}fdp.exe\u{2028}\u{2066}\u{85}");
    put(&odd, b"x");
    let scan = Scan::new(&[&odd], &ScanOptions::default()).unwrap();
    assert_eq!(scan.manifest().name(), "a\u{fffd}fdp.exe\u{fffd}\u{fffd}\u{fffd}");
    assert!(scan.manifest().find("a\u{202e}fdp.exe\u{2028}\u{2066}\u{85}".as_bytes()).is_some());
}

#[test]
fn further_names_of_a_file_are_hard_links_and_special_bits_are_told() {
    let root = tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    put(&at("t/b"), &noise(1, 3 << 20));
    std::fs::hard_link(at("t/b"), at("t/z")).unwrap();
    std::fs::create_dir(at("t/a")).unwrap();
    std::fs::hard_link(at("t/b"), at("t/a/first")).unwrap();
    put(&at("t/own"), b"own");
    std::fs::hard_link(at("t/own"), at("elsewhere")).unwrap();
    crate::testing::chmod(&at("t/own"), 0o4755);
    let scan = Scan::new(&[at("t")], &ScanOptions::default()).unwrap();
    let totals = scan.totals();
    assert_eq!((totals.files, totals.hard_links, totals.bytes), (2, 2, (3 << 20) + 3));
    for (path, to) in [("t/b", Some("t/a/first")), ("t/z", Some("t/a/first")), ("t/own", None)] {
        let entry = scan.manifest().find(path).unwrap();
        assert_eq!(entry.hard_link_to(), to.map(bstr::BStr::new), "{path}");
    }
    let decoded = Manifest::decode(&scan.manifest().encode());
    assert_eq!(decoded.as_ref(), Ok(scan.manifest()));
    let warnings = warnings(&scan);
    assert!(warnings[0].contains("set-user-ID") && warnings[0].contains("t/own"), "{warnings:?}");
}
