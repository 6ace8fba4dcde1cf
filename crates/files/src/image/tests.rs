//! Tests of images and single files into files in place and into commands.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::time::{Duration, Instant};

use faircast_proto::object::{Announcement, ObjectResult, Part, Store, Supply, Verdict};

use super::*;
use crate::manifest::{Kind, Manifest};
use crate::supply::{FilesSupply, PipeSupply};
use crate::testing::{Object, SYMBOL, digests, entry, noise, put, sparse, wait};

const SIZE: usize = (3 << 20) + 12_345;

struct Place {
    folder: tempfile::TempDir,
    object: Object,
}

impl Place {
    fn new(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("disk.img"), bytes);
        let object = Object::of(&folder.path().join("disk.img"));
        Self { folder, object }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn device(&self) -> DeviceStore {
        let journal = Some(self.at("journal"));
        DeviceStore::new(DeviceOptions {
            journal,
            ..DeviceOptions::new(self.at("out"), "disk.img")
        })
    }

    fn command(&self, command: &str) -> CommandStore {
        let out = self.at("out");
        let command = command.replace("OUT", out.to_str().unwrap());
        CommandStore::new(CommandOptions { command, object: "disk.img".into() })
    }

    fn pipe(&self, content: u64) -> (Vec<u8>, Announcement) {
        let supply = PipeSupply::new(std::io::empty(), "disk.img", self.folder.path()).unwrap();
        let manifest = supply.handle().manifest().encode();
        let announcement = Announcement {
            lens: [manifest.len() as u64, content, 0],
            growing: true,
            symbol_bytes: 1400,
            object: supply.object(),
            digests: None,
        };
        (manifest, announcement)
    }

    fn is_intact(&self) -> bool {
        fs::read(self.at("out")).unwrap() == fs::read(self.at("disk.img")).unwrap()
    }
}

fn shuffled(object: &Object) -> Vec<std::ops::Range<u64>> {
    let mut symbols = object.missing(&[]);
    symbols.chunks_mut(1700).for_each(<[_]>::reverse);
    symbols
}

#[test]
fn a_file_in_place_has_every_byte_in_whatever_order_they_come() {
    for bytes in [noise(1, SIZE), noise(2, 1 << 20), noise(3, 777), Vec::new()] {
        let place = Place::new(&bytes);
        fs::write(place.at("out"), noise(9, SIZE + 5000)).unwrap();
        let mut store = place.device();
        assert_eq!(place.object.open(&mut store), Ok(Vec::new()));
        place.object.give(&mut store, &shuffled(&place.object)).unwrap();
        assert_eq!(place.object.verify(&mut store), Ok(0));
        assert!(place.is_intact() && !place.at("journal").exists(), "{} bytes", bytes.len());
        assert_eq!(store.handle().counts().files_done, 1);
    }
}

#[test]
fn a_file_in_place_is_refused_what_its_disk_has_no_room_for() {
    let place = Place::new(b"x");
    let (manifest, announcement) = place.pipe(1 << 45);
    let mut store = place.device();
    store.begin(&announcement).unwrap();
    store.write(Part::Manifest, 0, &manifest, 0).unwrap();
    let error = wait(|| store.open()).unwrap_err();
    assert!(error.reason.contains("/out: is to get 35184372088832 bytes, and there is room for "));
}

#[test]
fn a_run_that_was_cut_off_goes_on_where_its_journal_says() {
    let place = Place::new(&noise(1, SIZE));
    let symbols = place.object.missing(&[]);
    let mut store = place.device();
    place.object.open(&mut store).unwrap();
    let half = 2_400_000 / SYMBOL as usize;
    place.object.give(&mut store, &symbols[..half]).unwrap();
    drop(store);
    let mut store = place.device();
    let found = place.object.open(&mut store).unwrap();
    assert_eq!(found, Vec::from_iter(Some(0..2 << 20)), "two groups of 1 MiB were whole");
    let elsewhere = DeviceOptions::new(place.at("elsewhere"), "disk.img");
    let journal = Some(place.at("journal"));
    for (options, want) in [
        (DeviceOptions { journal, ..elsewhere }, "journal of another faircast"),
        (DeviceOptions::new(place.at("out"), "disk.img"), "being written by another faircast"),
    ] {
        let error = place.object.open(&mut DeviceStore::new(options)).unwrap_err();
        assert!(error.reason.contains(want), "{error}");
    }
    // Bytes lost on the disk are found, and requested again.
    let out = fs::OpenOptions::new().write(true).open(place.at("out")).unwrap();
    out.write_all_at(b"lost", 5000).unwrap();
    place.object.give(&mut store, &place.object.missing(&found)).unwrap();
    assert_eq!(place.object.verify(&mut store), Ok(1));
    assert!(place.is_intact());
    assert_eq!(store.handle().counts().bytes_damaged, 1 << 20);
    // A journal of another object is ignored; any other file is refused.
    let other = Place::new(&noise(2, SIZE));
    fs::copy(place.at("disk.img"), other.at("journal")).unwrap();
    let error = other.object.open(&mut other.device()).unwrap_err();
    assert!(error.reason.contains("something else than a journal"), "{error}");
}

#[test]
fn parity_can_read_back_whatever_has_come() {
    let place = Place::new(&noise(1, SIZE));
    let content = place.object.content().to_vec();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(place.device()), Box::new(place.command("cat > OUT"))];
    for mut store in stores {
        place.object.open(store.as_mut()).unwrap();
        let symbols = place.object.missing(&[]);
        for (i, some) in symbols.chunks(300).enumerate() {
            place.object.give(store.as_mut(), some).unwrap();
            let end = some.last().unwrap().end;
            let start = end.saturating_sub(64 * SYMBOL);
            let mut out = Vec::new();
            let len = (end - start) as u32;
            store.read(Part::Content, start, len, &mut out).unwrap();
            assert!(out == content[start as usize..end as usize], "{i}");
        }
    }
}

#[test]
fn holes_of_a_file_are_zeros_wherever_it_goes() {
    let place = Place::new(b"");
    sparse(&place.at("disk.img"), 6 << 20, &[((2 << 20) + 17, 1000)]);
    let object = Object::of(&place.at("disk.img"));
    let place = Place { object, ..place };
    fs::write(place.at("out"), noise(9, 7 << 20)).unwrap();
    let mut store = place.device();
    assert_eq!(place.object.receive(&mut store), Ok(0));
    assert!(place.is_intact());
    fs::remove_file(place.at("out")).unwrap();
    assert_eq!(place.object.receive(&mut place.command("cat > OUT")), Ok(0));
    assert!(place.is_intact());
}

#[test]
fn nothing_is_touched_for_another_object_or_a_tree() {
    let place = Place::new(&noise(1, 5000));
    fs::write(place.at("out"), b"precious").unwrap();
    let other = DeviceOptions::new(place.at("out"), "other.img");
    let error = place.object.open(&mut DeviceStore::new(other)).unwrap_err();
    assert_eq!(error.reason, "this is the object `disk.img`, and only `other.img` is taken");
    let command = "touch OUT.begun".replace("OUT", place.at("out").to_str().unwrap());
    let other = CommandOptions { command, object: "other.img".into() };
    place.object.open(&mut CommandStore::new(other)).unwrap_err();
    put(&place.at("tree/a"), b"a");
    let tree = Object::of(&place.at("tree"));
    let options = DeviceOptions::new(place.at("out"), "tree");
    let error = tree.open(&mut DeviceStore::new(options)).unwrap_err();
    assert!(error.reason.contains("receive it into a folder"), "{error}");
    assert_eq!(fs::read(place.at("out")).unwrap(), b"precious");
    assert!(!place.at("out.begun").exists());
}

#[test]
fn a_command_gets_all_in_order_and_its_exit_status_decides() {
    let place = Place::new(&noise(1, SIZE));
    let mut store = place.command("cat > OUT");
    place.object.open(&mut store).unwrap();
    place.object.give(&mut store, &shuffled(&place.object)).unwrap();
    assert_eq!(place.object.verify(&mut store), Ok(0));
    assert!(place.is_intact());
    for (command, want) in [
        ("cat > OUT; exit 3", "failed: exit status: 3"),
        ("head -c 100 > OUT", "before it had taken everything"),
        ("no-such-command-at-all", "exit status: 127"),
    ] {
        let mut store = place.command(command);
        let outcome = place.object.open(&mut store).and_then(|_| {
            place.object.give(&mut store, &place.object.missing(&[]))?;
            place.object.verify(&mut store)
        });
        let reason = outcome.unwrap_err().reason;
        assert!(reason.contains(want), "{reason}");
        assert!(reason.contains(command.split(' ').next().unwrap()), "{reason}");
    }
}

#[test]
fn a_slow_command_holds_no_more_than_a_window_of_memory_and_is_killed_in_the_middle() {
    let place = Place::new(&noise(1, 500_000));
    let mut store = place.command("touch OUT.begun; sleep 1000; touch OUT.done");
    place.object.open(&mut store).unwrap();
    assert_eq!(store.window_end(), Ok(32 << 20));
    let started = Instant::now();
    drop(store);
    assert!(started.elapsed() < Duration::from_secs(30), "it waits for the command");
    // The killed command must not take the end of input for the end of content.
    let mut store = place.command("cat > OUT; touch OUT.done");
    place.object.fill(&mut store).unwrap();
    drop(store);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!place.at("out.done").exists());
}

#[test]
fn a_command_that_was_given_damage_is_killed_before_its_input_ends() {
    let place = Place::new(&noise(1, 100_000));
    let mut store = place.command("cat > OUT; touch OUT.done");
    place.object.open(&mut store).unwrap();
    let mut symbols = place.object.missing(&[]);
    let wrong = symbols.pop().unwrap();
    place.object.give(&mut store, &symbols).unwrap();
    store.write(Part::Content, wrong.start, &[], (wrong.end - wrong.start) as u32).unwrap();
    let reason = place.object.verify(&mut store).unwrap_err().reason;
    assert!(reason.contains("is damaged within 1 MiB from byte 0 on"), "{reason}");
    assert!(!place.at("out.done").exists());
}

fn pour(bytes: &[u8], store: &mut dyn Store, steps: u64) -> ObjectResult<Verdict> {
    let folder = std::env::temp_dir();
    let pipe = std::io::Cursor::new(bytes.to_vec());
    let mut supply = PipeSupply::new(pipe, "pipe", &folder).unwrap();
    let digests = digests(&mut supply);
    let lens = Part::ALL.map(|part| Supply::len(&supply, part));
    let all = Announcement {
        lens,
        growing: false,
        symbol_bytes: 1400,
        object: supply.object(),
        digests: Some(digests),
    };
    let block = 64 * SYMBOL;
    let at = |blocks: u64| {
        let content = (blocks * block).min(lens[1] / block * block);
        Announcement { lens: [lens[0], content, 0], growing: true, digests: None, ..all }
    };
    let mut give = |store: &mut dyn Store, part: Part, from: u64, to: u64| -> ObjectResult {
        let mut offset = from;
        while offset < to {
            let len = SYMBOL.min(to - offset);
            let mut symbol = Vec::new();
            supply.read(part, offset, len as u32, &mut symbol).unwrap();
            store.write(part, offset, &symbol, 0)?;
            offset += len;
        }
        Ok(())
    };
    store.begin(&at(0))?;
    give(store, Part::Manifest, 0, lens[0])?;
    wait(|| store.open())?;
    let (mut blocks, mut given) = (0, 0);
    while (blocks + steps) * block <= lens[1] {
        blocks += steps;
        store.grow(&at(blocks))?;
        give(store, Part::Content, given, blocks * block)?;
        given = blocks * block;
    }
    store.grow(&all)?;
    give(store, Part::Content, given, lens[1])?;
    give(store, Part::Digests, 0, lens[2])?;
    wait(|| store.verify())
}

#[test]
fn what_grows_gets_into_files_and_commands() {
    let place = Place::new(b"");
    let whole_blocks = 64 * SYMBOL as usize * 3;
    for len in [0, 1, whole_blocks, 1 << 20, (1 << 20) + 1, SIZE] {
        let bytes = noise(4, len);
        for steps in [1, 7, 1000] {
            let mut device = DeviceStore::new(DeviceOptions::new(place.at("out"), "pipe"));
            assert_eq!(pour(&bytes, &mut device, steps), Ok(Verdict::Intact), "{len} {steps}");
            assert!(fs::read(place.at("out")).unwrap() == bytes, "{len} bytes, {steps} blocks");
            let command = format!("cat > {}", place.at("copy").display());
            let options = CommandOptions { command, object: "pipe".into() };
            let verdict = pour(&bytes, &mut CommandStore::new(options), steps);
            assert_eq!(verdict, Ok(Verdict::Intact), "{len} {steps}");
            assert!(fs::read(place.at("copy")).unwrap() == bytes, "{len} bytes, {steps} blocks");
        }
    }
}

#[test]
fn what_grows_while_it_is_opened_is_counted() {
    let place = Place::new(b"x");
    let (manifest, announcement) = place.pipe(0);
    let lens = [manifest.len() as u64, 64 * SYMBOL, 0];
    let mut store = place.device();
    store.begin(&announcement).unwrap();
    store.write(Part::Manifest, 0, &manifest, 0).unwrap();
    let opened = store.open().unwrap();
    store.grow(&Announcement { lens, ..announcement }).unwrap();
    if opened == Poll::Pending {
        wait(|| store.open()).unwrap();
    }
    assert_eq!(store.handle().counts().bytes, 64 * SYMBOL);
}

#[test]
fn an_absurd_sender_is_refused() {
    let place = Place::new(&noise(1, 5000));
    let right = place.object.announcement;
    for (case, lens) in [
        ("too much content", [right.lens[0], u64::MAX, 32]),
        ("too many digests", [right.lens[0], 5000, 3200]),
        ("no whole digests", [right.lens[0], 5000, 31]),
        ("a huge manifest", [1 << 40, 5000, 32]),
        ("other content than its manifest says", [right.lens[0], 4999, 32]),
    ] {
        let object =
            Object { announcement: Announcement { lens, ..right }, ..Place::new(b"").object };
        let mut store = place.device();
        let outcome = store.begin(&object.announcement).and_then(|()| {
            store.write(Part::Manifest, 0, &place.object.parts[0], 0)?;
            wait(|| store.open())
        });
        assert!(outcome.unwrap_err().reason.contains("sender is at fault"), "{case}");
    }
    let mut store = place.device();
    place.object.open(&mut store).unwrap();
    let error = store.write(Part::Content, 4999, &[1, 2], 0).unwrap_err();
    assert!(error.reason.contains("beyond the end"), "{error}");
}

#[test]
fn what_a_device_has_is_a_file_in_a_folder() {
    let place = Place::new(&noise(1, SIZE));
    let entry = entry("disk", Kind::Image { size: Some(SIZE as u64) }, 0o600);
    let manifest = Manifest::new("disk", vec![entry]).unwrap().encode();
    let object = *blake3::hash(&manifest).as_bytes();
    let [_, content, digests] = place.object.parts.clone();
    let hash = place.object.announcement.digests;
    let image = Object::new([manifest, content, digests], object, hash);
    let options = crate::StoreOptions::new(place.at("in"));
    assert_eq!(image.receive(&mut crate::FilesStore::new(options)), Ok(0));
    assert!(fs::read(place.at("in/disk")).unwrap() == fs::read(place.at("disk.img")).unwrap());
}

#[test]
fn a_pipe_cannot_be_put_into_a_folder_and_a_device_is_sent_alone() {
    let place = Place::new(b"x");
    let mut supply =
        PipeSupply::new(std::io::empty(), "pipe", Path::new(&std::env::temp_dir())).unwrap();
    let object = Object::read(&mut supply);
    let options = crate::StoreOptions::new(place.at("in"));
    let error = object.open(&mut crate::FilesStore::new(options)).unwrap_err();
    assert!(error.reason.contains("--to-device FILE or --to-command"), "{error}");
    let error = FilesSupply::scan(&["/dev/null"]);
    assert!(error.unwrap_err().to_string().contains("neither a file nor a directory"));
}
