//! Object in memory, and its transfer into a store; for tests and benchmarks.

use std::ops::Range;
use std::task::Poll;
use std::time::Duration;

use faircast_proto::object::{Announcement, ObjectResult, Part, Store, Supply, Verdict};

/// Bytes of a symbol, which do not divide a group.
pub(crate) const SYMBOL: u64 = 1400;

pub(crate) struct Object {
    pub(crate) announcement: Announcement,
    pub(crate) parts: [Vec<u8>; 3],
}

impl Object {
    pub(crate) fn read(supply: &mut dyn Supply) -> Self {
        let digests = Some(digests(supply));
        let parts = Part::ALL.map(|part| {
            let len = supply.len(part);
            let mut out = Vec::new();
            for offset in (0..len).step_by(SYMBOL as usize) {
                let piece = SYMBOL.min(len - offset) as u32;
                assert_eq!(supply.read(part, offset, piece, &mut out), Ok(0));
            }
            out
        });
        Self::new(parts, supply.object(), digests)
    }

    pub(crate) fn of_manifest(manifest: Vec<u8>) -> Self {
        let object = blake3::hash(&manifest).into();
        Self::new([manifest, Vec::new(), Vec::new()], object, None)
    }

    pub(crate) fn new(parts: [Vec<u8>; 3], object: [u8; 32], digests: Option<[u8; 32]>) -> Self {
        let lens = [0, 1, 2].map(|part| parts[part].len() as u64);
        let symbol_bytes = SYMBOL as u16;
        Self {
            announcement: Announcement { lens, growing: false, symbol_bytes, object, digests },
            parts,
        }
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.parts[1]
    }

    pub(crate) fn open(&self, store: &mut dyn Store) -> ObjectResult<Vec<Range<u64>>> {
        store.begin(&self.announcement)?;
        store.write(Part::Manifest, 0, &self.parts[0], 0)?;
        wait(|| store.open())
    }

    pub(crate) fn missing(&self, found: &[Range<u64>]) -> Vec<Range<u64>> {
        let len = self.content().len() as u64;
        let symbols = (0..len).step_by(SYMBOL as usize);
        let symbols = symbols.map(|start| start..(start + SYMBOL).min(len));
        let inside = |symbol: &Range<u64>| {
            found.iter().any(|range| range.start <= symbol.start && symbol.end <= range.end)
        };
        symbols.filter(|symbol| !inside(symbol)).collect()
    }

    pub(crate) fn touching(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut symbols = self.missing(&[]);
        symbols.retain(|symbol| {
            ranges.iter().any(|range| range.start < symbol.end && symbol.start < range.end)
        });
        symbols
    }

    pub(crate) fn give(&self, store: &mut dyn Store, symbols: &[Range<u64>]) -> ObjectResult<()> {
        for symbol in symbols {
            let bytes = &self.content()[symbol.start as usize..symbol.end as usize];
            // Trailing zeros are only counted, as a machine does.
            let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
            let some = &bytes[..bytes.len() - zeros];
            store.write(Part::Content, symbol.start, some, zeros as u32)?;
        }
        Ok(())
    }

    pub(crate) fn give_digests(&self, store: &mut dyn Store) -> ObjectResult<()> {
        for (at, piece) in self.parts[2].chunks(SYMBOL as usize).enumerate() {
            store.write(Part::Digests, at as u64 * SYMBOL, piece, 0)?;
        }
        Ok(())
    }

    pub(crate) fn verify(&self, store: &mut dyn Store) -> ObjectResult<u32> {
        self.give_digests(store)?;
        for round in 0.. {
            match wait(|| store.verify())? {
                Verdict::Intact => return Ok(round),
                Verdict::Damaged(ranges) => self.give(store, &self.touching(&ranges))?,
            }
        }
        unreachable!("a store gives up before that")
    }

    pub(crate) fn fill(&self, store: &mut dyn Store) -> ObjectResult<()> {
        let found = self.open(store)?;
        self.give(store, &self.missing(&found))
    }

    pub(crate) fn receive(&self, store: &mut dyn Store) -> ObjectResult<u32> {
        self.fill(store)?;
        self.verify(store)
    }
}

pub(crate) fn digests(supply: &mut dyn Supply) -> [u8; 32] {
    wait(|| supply.digests().map(|known| known.map_or(Poll::Pending, Poll::Ready)))
        .expect("the content can be read")
}

pub(crate) fn wait<T, E>(mut ask: impl FnMut() -> Result<Poll<T>, E>) -> Result<T, E> {
    // A busy disk can take minutes.
    for _ in 0..600_000 {
        match ask()? {
            Poll::Ready(answer) => return Ok(answer),
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("no answer within ten minutes");
}

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}
