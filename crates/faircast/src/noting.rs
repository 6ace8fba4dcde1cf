//! A store whose failure can be told from a sender's, and that tells what it has received.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use faircast_files::{FilesStore, GROUP_BYTES, StoreHandle, file_hash};
use faircast_proto::transfer::{Announcement, Part, Store, StoreError, StoreProgress, Verdict};

/// What came of a store, once it is known.
#[derive(Default)]
pub(crate) struct Notes {
    /// Why it has failed.
    pub(crate) failure: OnceLock<String>,
    /// Path below its folder, length and BLAKE3 of each file, once all are intact.
    pub(crate) files: OnceLock<Vec<(String, u64, [u8; 32])>>,
}

/// A store of files that notes how it ended: a machine says only that it has.
pub(crate) struct Noting {
    store: FilesStore,
    handle: StoreHandle,
    notes: Arc<Notes>,
}

impl Noting {
    pub(crate) fn new(store: FilesStore) -> (Self, Arc<Notes>) {
        let notes = Arc::<Notes>::default();
        (Self { handle: store.handle(), store, notes: notes.clone() }, notes)
    }

    /// The files' hashes, from the digests that the store has compared them with.
    fn hashes(&mut self) -> Result<Vec<(String, u64, [u8; 32])>, StoreError> {
        let mut hashes = Vec::new();
        let Some(manifest) = self.handle.manifest() else { return Ok(hashes) };
        let mut offset = 0;
        for file in manifest.entries().iter().filter(|entry| entry.is_file()) {
            let mut digests = Vec::new();
            for _ in 0..file.size().div_ceil(GROUP_BYTES) {
                let mut digest = Vec::with_capacity(32);
                self.store.read(Part::Digests, offset, 32, &mut digest)?;
                digests.extend(<[u8; 32]>::try_from(digest));
                offset += 32;
            }
            hashes.push((file.path.to_string(), file.size(), file_hash(&digests)));
        }
        Ok(hashes)
    }

    fn note<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            self.notes.failure.get_or_init(|| error.reason.clone());
        }
        result
    }
}

impl Store for Noting {
    fn announce(&mut self, announcement: &Announcement) -> Result<(), StoreError> {
        let result = self.store.announce(announcement);
        self.note(result)
    }

    fn write(
        &mut self,
        part: Part,
        offset: u64,
        bytes: &[u8],
        zeros: u32,
    ) -> Result<(), StoreError> {
        let result = self.store.write(part, offset, bytes, zeros);
        self.note(result)
    }

    fn read(
        &mut self,
        part: Part,
        offset: u64,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let result = self.store.read(part, offset, len, out);
        self.note(result)
    }

    fn open(&mut self) -> Result<StoreProgress<Vec<Range<u64>>>, StoreError> {
        let result = self.store.open();
        self.note(result)
    }

    fn verify(&mut self) -> Result<StoreProgress<Verdict>, StoreError> {
        let mut result = self.store.verify();
        if let Ok(StoreProgress::Done(Verdict::Intact)) = &result
            && self.notes.files.get().is_none()
        {
            match self.hashes() {
                Ok(hashes) => drop(self.notes.files.set(hashes)),
                Err(error) => result = Err(error),
            }
        }
        self.note(result)
    }
}
