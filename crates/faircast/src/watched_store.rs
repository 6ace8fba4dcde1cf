//! Store of a receiver's session that records results, and the owner session of each object.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use faircast_files::{Entry, Kind, Manifest, StoreHandle};
use faircast_proto::object::{Announcement, ObjectError, ObjectResult, Part, Store, Verdict};
use parking_lot::Mutex;

type NotedFile = (PathBuf, u64, Option<[u8; 32]>);

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) object: OnceLock<[u8; 32]>,
    pub(crate) name: OnceLock<String>,
    pub(crate) unwanted: OnceLock<()>,
    pub(crate) failure: OnceLock<String>,
    pub(crate) files: OnceLock<Vec<NotedFile>>,
    pub(crate) left_out: OnceLock<Vec<String>>,
    pub(crate) remarks: OnceLock<Vec<String>>,
}

/// Stands for all objects where only one can be received: into a device or a command.
const ANY_OBJECT: [u8; 32] = [0xff; 32];

/// Owner session of each object: several senders, or a restart, may announce the same one.
#[derive(Clone, Default)]
pub(crate) struct Holders(Arc<Mutex<BTreeMap<[u8; 32], Holder>>>);

#[derive(Clone, Copy)]
struct Holder {
    session: u64,
    is_contested: bool,
}

impl Holders {
    fn take(&self, object: [u8; 32], session: u64) -> bool {
        let mut all = self.0.lock();
        let holder = all.entry(object).or_insert(Holder { session, is_contested: false });
        holder.is_contested |= holder.session != session;
        holder.session == session
    }

    fn release(&self, session: u64) {
        let mut all = self.0.lock();
        all.retain(|_, holder| holder.session != session);
    }

    pub(crate) fn contested(&self) -> Vec<u64> {
        let mut all = self.0.lock();
        let contested = all.values_mut().filter(|holder| holder.is_contested);
        let sessions = contested.map(|holder| {
            holder.is_contested = false;
            holder.session
        });
        sessions.collect()
    }
}

/// Store of files that records its result: a machine reports only that it ended.
pub(crate) struct WatchedStore {
    /// `None` after a failure, so that others can own the object.
    store: Option<Box<dyn Store>>,
    handle: StoreHandle,
    notes: Arc<Notes>,
    holders: Holders,
    accepted: Option<String>,
    manifest_bytes: u64,
    session: u64,
    is_exclusive: bool,
}

impl WatchedStore {
    pub(crate) fn new(
        (store, handle): (Box<dyn Store>, StoreHandle),
        holders: Holders,
        accepted: Option<String>,
        session: u64,
        is_exclusive: bool,
    ) -> (Self, Arc<Notes>) {
        let notes = Arc::<Notes>::default();
        let store = Self {
            handle,
            store: Some(store),
            notes: notes.clone(),
            holders,
            accepted,
            manifest_bytes: 0,
            session,
            is_exclusive,
        };
        (store, notes)
    }

    fn is_accepted(&mut self) -> bool {
        let Some(accepted) = &self.accepted else { return true };
        if self.notes.name.get().is_none()
            && let Some(store) = &mut self.store
            && let Ok(len) = u32::try_from(self.manifest_bytes)
        {
            let mut bytes = Vec::new();
            if store.read(Part::Manifest, 0, len, &mut bytes).is_ok()
                && let Ok(manifest) = Manifest::decode(&bytes)
            {
                self.notes.name.get_or_init(|| manifest.name().to_string());
            }
        }
        let accepted = self.notes.name.get().is_none_or(|name| name == accepted);
        if !accepted {
            self.notes.unwanted.get_or_init(|| ());
        }
        accepted
    }

    fn files(&self) -> Vec<NotedFile> {
        let manifest = self.handle.manifest().into_iter().flat_map(|manifest| manifest.entries());
        let hashes = self.handle.file_hashes().unwrap_or_default();
        let files = manifest.enumerate().filter(|(_, entry)| entry.has_content()).zip(hashes);
        let files = files
            .filter(|((index, _), _)| !self.handle.leaves_out(*index))
            .map(|((_, entry), hash)| (entry, hash));
        // The manifest has no size for content of a pipe.
        let size = |entry: &Entry| match entry.kind {
            Kind::Image { size: None } => self.handle.counts().bytes,
            _ => entry.size(),
        };
        files.map(|(file, hash)| (file.local_path(), size(file), *hash)).collect()
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut dyn Store) -> ObjectResult<T>) -> ObjectResult<T> {
        let result = match &mut self.store {
            Some(store) => act(store.as_mut()),
            None => {
                let reason = self.notes.failure.get().cloned().unwrap_or_default();
                Err(ObjectError::new(reason))
            }
        };
        if let Err(error) = &result {
            self.notes.failure.get_or_init(|| error.reason.clone());
            self.release();
        }
        result
    }

    fn release(&mut self) {
        // Order matters: first the store, then the right to the object.
        self.store = None;
        self.holders.release(self.session);
    }
}

impl Store for WatchedStore {
    fn identity(&self) -> Option<u64> {
        self.store.as_ref().and_then(|store| store.identity())
    }

    fn discard(&mut self) {
        if let Some(store) = &mut self.store {
            store.discard();
        }
        self.release();
    }

    fn begin(&mut self, announcement: &Announcement) -> ObjectResult<()> {
        self.notes.object.get_or_init(|| announcement.object);
        self.manifest_bytes = announcement.len(Part::Manifest);
        self.with(|store| store.begin(announcement))
    }

    fn grow(&mut self, announcement: &Announcement) -> ObjectResult<()> {
        self.with(|store| store.grow(announcement))
    }

    fn window_end(&mut self) -> ObjectResult<u64> {
        self.with(|store| store.window_end())
    }

    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult<()> {
        self.with(|store| store.write(part, offset, bytes, zeros))
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<()> {
        self.with(|store| store.read(part, offset, len, out))
    }

    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>> {
        if !self.is_accepted() {
            return Ok(Poll::Pending);
        }
        let object = self.notes.object.get().filter(|_| !self.is_exclusive).copied();
        match object.or(self.is_exclusive.then_some(ANY_OBJECT)) {
            Some(object) if !self.holders.take(object, self.session) => Ok(Poll::Pending),
            _ => {
                let opened = self.with(|store| store.open());
                if let Some(manifest) = self.handle.manifest() {
                    self.notes.name.get_or_init(|| manifest.name().to_string());
                }
                opened
            }
        }
    }

    fn verify(&mut self) -> ObjectResult<Poll<Verdict>> {
        let verdict = self.with(|store| store.verify())?;
        if verdict == Poll::Ready(Verdict::Intact) && self.notes.files.get().is_none() {
            let _ = self.notes.files.set(self.files());
            let _ = self.notes.remarks.set(self.handle.remarks().to_vec());
            self.holders.release(self.session);
            if let Some((lines, reason)) = self.handle.left_out() {
                let _ = self.notes.left_out.set(lines);
                return self.with(|_| Err(ObjectError::new(reason)));
            }
        }
        Ok(verdict)
    }
}

impl Drop for WatchedStore {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_sessions_and_others_wait() {
        let holders = Holders::default();
        let (one, other) = ([1; 32], [2; 32]);
        assert!(holders.take(one, 7) && holders.take(one, 7), "asked again it still has it");
        assert!(holders.take(other, 8));
        assert!(holders.contested().is_empty());
        assert!(!holders.take(one, 9));
        assert_eq!(holders.contested(), [7]);
        assert!(holders.contested().is_empty(), "who does not ask any more does not wait");
        holders.release(7);
        assert!(holders.take(one, 9) && !holders.take(one, 7));
    }
}
