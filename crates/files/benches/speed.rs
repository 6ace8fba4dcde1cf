//! Speed of reading, writing and comparing files in `FILES_DIR` (default: temporary files).

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use divan::Bencher;
use divan::counter::BytesCount;
use faircast_files::{FilesStore, FilesSupply, StoreOptions};
use faircast_proto::object::{Part, Store, Supply, Verdict};
use tempfile::TempDir;

use self::object::{Object, digests, noise, wait};

#[path = "../src/testing/object.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "made for tests, of which this needs a part")]
mod object;

fn main() {
    divan::main();
}

const CONTENT: u64 = 256 << 20;

fn place() -> TempDir {
    let dir = std::env::var_os("FILES_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(dir).expect("a place for benchmarks")
}

struct Sent {
    place: TempDir,
    object: Object,
    symbols: Vec<Range<u64>>,
}

impl Sent {
    fn new(size: u64) -> Self {
        let place = place();
        let from = place.path().join("from");
        fs::create_dir(&from).expect("made");
        let bytes = noise(0, usize::try_from(CONTENT).expect("fits"));
        for (file, bytes) in bytes.chunks(usize::try_from(size).expect("fits")).enumerate() {
            fs::write(from.join(file.to_string()), bytes).expect("written");
        }
        let object = Object::read(&mut FilesSupply::scan(&[from]).expect("scanned"));
        Self { place, symbols: object.missing(&[]), object }
    }

    fn opened(&self) -> FilesStore {
        let to = tempfile::tempdir_in(self.place.path()).expect("made").keep();
        let options = StoreOptions { sync: false, keep_partial: false, ..StoreOptions::new(to) };
        let mut store = FilesStore::new(options);
        self.object.open(&mut store).expect("opened");
        self.object.give_digests(&mut store).expect("taken");
        store
    }

    fn give(&self, store: &mut FilesStore, symbol: &Range<u64>) {
        let bytes = &self.object.content()[symbol.start as usize..symbol.end as usize];
        store.write(Part::Content, symbol.start, bytes, 0).expect("taken");
    }
}

fn verify(store: &mut FilesStore) {
    assert_eq!(wait(|| store.verify()), Ok(Verdict::Intact));
}

const SIZES: [u64; 2] = [128 << 20, 8 << 10];

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

#[divan::bench(sample_count = 5)]
fn bare_hash(bencher: Bencher<'_, '_>) {
    let bytes = vec![1; 1 << 20];
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        for _ in 0..CONTENT >> 20 {
            divan::black_box(blake3::hash(&bytes));
        }
    });
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn supply_hash(bencher: Bencher<'_, '_>, size: u64) {
    let sent = Sent::new(size);
    let from = sent.place.path().join("from");
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        digests(&mut FilesSupply::scan(std::slice::from_ref(&from)).expect("scanned"))
    });
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn supply_read(bencher: Bencher<'_, '_>, size: u64) {
    let sent = Sent::new(size);
    let from = sent.place.path().join("from");
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        let mut supply = FilesSupply::scan(std::slice::from_ref(&from)).expect("scanned");
        let mut out = Vec::with_capacity(2000);
        for symbol in &sent.symbols {
            out.clear();
            supply.expect(symbol.start);
            let len = (symbol.end - symbol.start) as u32;
            supply.read(Part::Content, symbol.start, len, &mut out).expect("read");
        }
        digests(&mut supply)
    });
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn store_in_order(bencher: Bencher<'_, '_>, size: u64) {
    let sent = Sent::new(size);
    bencher.counter(BytesCount::new(CONTENT)).with_inputs(|| sent.opened()).bench_local_values(
        |mut store| {
            sent.symbols.iter().for_each(|symbol| sent.give(&mut store, symbol));
            verify(&mut store);
            store
        },
    );
}

/// Receives with one of 50 symbols 20 000 later, as a repair.
#[divan::bench(args = SIZES, sample_count = 5)]
fn store_with_losses(bencher: Bencher<'_, '_>, size: u64) {
    let sent = Sent::new(size);
    bencher.counter(BytesCount::new(CONTENT)).with_inputs(|| sent.opened()).bench_local_values(
        |mut store| {
            let mut late = std::collections::VecDeque::new();
            for (i, symbol) in sent.symbols.iter().enumerate() {
                match i % 50 {
                    7 => late.push_back((i, symbol)),
                    _ => sent.give(&mut store, symbol),
                }
                while late.front().is_some_and(|(lost, _)| *lost + 20_000 < i) {
                    let (_, symbol) = late.pop_front().expect("seen");
                    sent.give(&mut store, symbol);
                }
            }
            late.iter().for_each(|(_, symbol)| sent.give(&mut store, symbol));
            verify(&mut store);
            store
        },
    );
}

#[divan::bench(args = SIZES, sample_count = 5)]
fn store_compare(bencher: Bencher<'_, '_>, size: u64) {
    let sent = Sent::new(size);
    let options = StoreOptions { sync: false, ..StoreOptions::new(sent.place.path()) };
    bencher.counter(BytesCount::new(CONTENT)).bench_local(|| {
        let mut store = FilesStore::new(options.clone());
        let found = sent.object.open(&mut store).expect("opened");
        assert_eq!(found.first(), Some(&(0..CONTENT)));
        sent.object.give_digests(&mut store).expect("taken");
        verify(&mut store);
    });
}
