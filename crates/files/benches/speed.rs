//! How fast files are read, written and compared: `cargo bench -p faircast-files`. `FILES_DIR`
//! says where; the default is the directory for temporary files.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use divan::Bencher;
use divan::counter::BytesCount;
use faircast_files::{FilesStore, FilesSupply, StoreOptions};
use faircast_proto::object::{Announcement, Part, Store, StoreProgress, Supply, Verdict};
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// Of a packet.
const SYMBOL: u64 = 1408;
const CONTENT: u64 = 256 << 20;

fn place() -> TempDir {
    let dir = std::env::var_os("FILES_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(dir).expect("a place for benchmarks")
}

struct Object {
    place: TempDir,
    announcement: Announcement,
    parts: [Vec<u8>; 3],
}

impl Object {
    /// `CONTENT` bytes in files of this size.
    fn new(size: u64) -> Self {
        let place = place();
        let from = place.path().join("from");
        fs::create_dir(&from).expect("made");
        let mut xof = blake3::Hasher::new().finalize_xof();
        let mut bytes = vec![0; usize::try_from(size).expect("fits")];
        for file in 0..CONTENT / size {
            xof.fill(&mut bytes);
            fs::write(from.join(file.to_string()), &bytes).expect("written");
        }
        let mut supply = FilesSupply::scan(&[from]).expect("scanned");
        let digests = Some(digests(&mut supply));
        let lens = Part::ALL.map(|part| supply.len(part));
        let parts = Part::ALL.map(|part| {
            let mut out = Vec::new();
            let len = supply.len(part);
            for offset in (0..len).step_by(1 << 20) {
                let piece = (len - offset).min(1 << 20);
                supply.read(part, offset, piece as u32, &mut out).expect("read");
            }
            out
        });
        let object = supply.object();
        let announcement =
            Announcement { lens, growing: false, symbol_bytes: 1408, object, digests };
        Self { place, announcement, parts }
    }

    fn opened(&self) -> FilesStore {
        let to = tempfile::tempdir_in(self.place.path()).expect("made").keep();
        let options = StoreOptions { sync: false, keep_partial: false, ..StoreOptions::new(to) };
        let mut store = FilesStore::new(options);
        store.announce(&self.announcement).expect("announced");
        store.write(Part::Manifest, 0, &self.parts[0], 0).expect("taken");
        wait(|| match store.open().expect("opened") {
            StoreProgress::Done(_) => Some(()),
            StoreProgress::Pending => None,
        });
        store.write(Part::Digests, 0, &self.parts[2], 0).expect("taken");
        store
    }

    fn symbols(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let len = self.announcement.lens[1];
        (0..len).step_by(SYMBOL as usize).map(move |start| start..(start + SYMBOL).min(len))
    }

    fn give(&self, store: &mut FilesStore, symbol: &Range<u64>) {
        let bytes = &self.parts[1][symbol.start as usize..symbol.end as usize];
        store.write(Part::Content, symbol.start, bytes, 0).expect("taken");
    }
}

fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    loop {
        match ask() {
            Some(answer) => return answer,
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

fn digests(supply: &mut FilesSupply) -> [u8; 32] {
    wait(|| supply.digests().expect("hashed"))
}

fn verify(store: &mut FilesStore) {
    let verdict = wait(|| match store.verify().expect("compared") {
        StoreProgress::Done(verdict) => Some(verdict),
        StoreProgress::Pending => None,
    });
    assert_eq!(verdict, Verdict::Intact);
}

/// Bytes of a file: large ones, and those of a source tree.
const SIZES: [u64; 2] = [128 << 20, 8 << 10];

/// What the system itself takes to write as many bytes: the scale for the others.
#[divan::bench(sample_count = 5)]
fn bare_write(bencher: Bencher<'_, '_>) {
    let place = place();
    let bytes = vec![1; 1 << 20];
    let new = || tempfile::tempfile_in(place.path()).expect("made");
    bencher.counter(BytesCount::new(CONTENT)).with_inputs(new).bench_local_values(|mut file| {
        (0..CONTENT >> 20).for_each(|_| file.write_all(&bytes).expect("written"));
        file
    });
}

/// What it takes to hash as many bytes that are in memory.
#[divan::bench(sample_count = 5)]
fn bare_hash(bencher: Bencher<'_, '_>) {
    let bytes = vec![1; 1 << 20];
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        for _ in 0..CONTENT >> 20 {
            divan::black_box(blake3::hash(&bytes));
        }
    });
}

/// Hashing alone.
#[divan::bench(args = SIZES, sample_count = 5)]
fn supply_hash(bencher: Bencher<'_, '_>, size: u64) {
    let object = Object::new(size);
    let from = object.place.path().join("from");
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        digests(&mut FilesSupply::scan(std::slice::from_ref(&from)).expect("scanned"))
    });
}

/// Reading in order as fast as it goes, and hashing.
#[divan::bench(args = SIZES, sample_count = 5)]
fn supply_read(bencher: Bencher<'_, '_>, size: u64) {
    let object = Object::new(size);
    let from = object.place.path().join("from");
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        let mut supply = FilesSupply::scan(std::slice::from_ref(&from)).expect("scanned");
        let mut out = Vec::with_capacity(2000);
        for symbol in object.symbols() {
            out.clear();
            supply.expect(symbol.start);
            let len = (symbol.end - symbol.start) as u32;
            supply.read(Part::Content, symbol.start, len, &mut out).expect("read");
        }
        digests(&mut supply)
    });
}

/// Receiving in order, until all is compared and in its place.
#[divan::bench(args = SIZES, sample_count = 5)]
fn store_in_order(bencher: Bencher<'_, '_>, size: u64) {
    let object = Object::new(size);
    bencher.counter(BytesCount::new(CONTENT)).with_inputs(|| object.opened()).bench_local_values(
        |mut store| {
            object.symbols().for_each(|symbol| object.give(&mut store, &symbol));
            verify(&mut store);
            store
        },
    );
}

/// The same, one of 50 symbols coming 20 000 later: the repair of losses.
#[divan::bench(args = SIZES, sample_count = 5)]
fn store_with_losses(bencher: Bencher<'_, '_>, size: u64) {
    let object = Object::new(size);
    bencher.counter(BytesCount::new(CONTENT)).with_inputs(|| object.opened()).bench_local_values(
        |mut store| {
            let mut late = std::collections::VecDeque::new();
            for (i, symbol) in object.symbols().enumerate() {
                match i % 50 {
                    7 => late.push_back((i, symbol)),
                    _ => object.give(&mut store, &symbol),
                }
                while late.front().is_some_and(|(lost, _)| *lost + 20_000 < i) {
                    let (_, symbol) = late.pop_front().expect("seen");
                    object.give(&mut store, &symbol);
                }
            }
            late.iter().for_each(|(_, symbol)| object.give(&mut store, symbol));
            verify(&mut store);
            store
        },
    );
}

/// Comparing what is there from before: nothing is received.
#[divan::bench(args = SIZES, sample_count = 5)]
fn store_compare(bencher: Bencher<'_, '_>, size: u64) {
    let object = Object::new(size);
    let options = StoreOptions { sync: false, ..StoreOptions::new(object.place.path()) };
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        let mut store = FilesStore::new(options.clone());
        store.announce(&object.announcement).expect("announced");
        store.write(Part::Manifest, 0, &object.parts[0], 0).expect("taken");
        let found = wait(|| match store.open().expect("opened") {
            StoreProgress::Done(found) => Some(found),
            StoreProgress::Pending => None,
        });
        assert_eq!(found.first(), Some(&(0..CONTENT)));
        store.write(Part::Digests, 0, &object.parts[2], 0).expect("taken");
        verify(&mut store);
    });
}
