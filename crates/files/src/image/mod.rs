//! Objects that are one file or one image, taken by a device, by a file in place or by a command.

mod command;
mod device;
mod refuse;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faircast_proto::object::{Announcement, Part, StoreError};

pub use self::command::{CommandOptions, CommandStore};
pub use self::device::{DeviceOptions, DeviceStore};
pub use self::refuse::{check_target, device_user, is_below_dev};
use crate::error::FilesError;
use crate::layout::{DIGEST_BYTES, GROUP_BYTES, Layout};
use crate::manifest::{CONTENT_BYTES_MAX, Entry, Hole, Kind, MANIFEST_BYTES_MAX, Manifest};
use crate::store::Counters;
use crate::table::Table;

/// What a store of one file or image knows of its object: what was announced, the manifest, the
/// digests, and where groups lie.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) counters: Arc<Counters>,
    announcement: Option<Announcement>,
    manifest: Vec<u8>,
    opened: Option<Opened>,
    digests: Arc<Mutex<Table>>,
}

/// The object, once its manifest is there.
#[derive(Debug)]
struct Opened {
    entry: Entry,
    /// Of what is announced by now. While it may still grow, its last group counts as whole.
    layout: Arc<Layout>,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            counters: Arc::default(),
            announcement: None,
            manifest: Vec::new(),
            opened: None,
            digests: Arc::new(Mutex::new(Table::Memory(Vec::new()))),
        }
    }

    pub(crate) fn announce(&mut self, announcement: &Announcement) -> Result<(), FilesError> {
        if let Some(known) = &mut self.announcement {
            if known.object != announcement.object || known.lens != announcement.lens {
                return Err(FilesError::Sender("it announces another object".into()));
            }
            known.digests = announcement.digests.or(known.digests);
            return Ok(());
        }
        let [manifest, ..] = announcement.lens;
        if manifest > MANIFEST_BYTES_MAX {
            return Err(FilesError::Sender(format!("its list of files has {manifest} bytes")));
        }
        check_lens(announcement)?;
        self.manifest = vec![0; usize::try_from(manifest).expect("limited")];
        self.announcement = Some(*announcement);
        self.make_digests(announcement)
    }

    /// Takes what the content has grown to.
    pub(crate) fn grow(&mut self, announcement: &Announcement) -> Result<(), FilesError> {
        check_lens(announcement)?;
        self.announcement = Some(*announcement);
        if !announcement.growing {
            self.make_digests(announcement)?;
        }
        if let Some(opened) = &mut self.opened {
            opened.layout = Arc::new(layout_of(&opened.entry, announcement)?);
        }
        self.count();
        Ok(())
    }

    fn make_digests(&self, announcement: &Announcement) -> Result<(), FilesError> {
        let folder = std::env::temp_dir();
        *self.digests() = Table::new(announcement.len(Part::Digests), &folder)
            .map_err(|error| FilesError::io(&folder, "cannot keep digests", error))?;
        Ok(())
    }

    /// Reads the manifest, which is the one that was announced, and must be that of the object `name`.
    pub(crate) fn open(&mut self, name: &str) -> Result<Arc<Layout>, FilesError> {
        let Some(announcement) = &self.announcement else { return Err(too_early()) };
        let manifest = Manifest::decode(&self.manifest)?;
        if manifest.name() != name {
            return Err(FilesError::OtherObject {
                wanted: name.into(),
                sent: manifest.name().into(),
            });
        }
        let [entry] = manifest.entries() else { return Err(several(&manifest)) };
        if !matches!(entry.kind, Kind::File { .. } | Kind::Image { .. }) {
            return Err(several(&manifest));
        }
        let entry = entry.clone();
        let layout = Arc::new(layout_of(&entry, announcement)?);
        let known = !matches!(entry.kind, Kind::Image { size: None });
        let said = (announcement.len(Part::Content), announcement.len(Part::Digests));
        let is = (layout.manifest.content_bytes(), layout.digest_bytes());
        if known && (announcement.growing || said != is) {
            return Err(FilesError::Sender(format!(
                "it announces {} bytes of content and {} of digests, and `{}` has {} and {}",
                said.0, said.1, entry.path, is.0, is.1
            )));
        }
        self.opened = Some(Opened { entry, layout: layout.clone() });
        self.counters.manifest.get_or_init(|| Arc::new(manifest));
        self.counters.files.store(1, Ordering::Relaxed);
        self.count();
        Ok(layout)
    }

    fn count(&self) {
        let bytes = self.announcement.map_or(0, |announcement| announcement.len(Part::Content));
        self.counters.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn layout(&self) -> Result<&Arc<Layout>, FilesError> {
        self.opened.as_ref().map(|opened| &opened.layout).ok_or_else(too_early)
    }

    pub(crate) fn entry(&self) -> Result<&Entry, FilesError> {
        self.opened.as_ref().map(|opened| &opened.entry).ok_or_else(too_early)
    }

    pub(crate) fn announced(&self) -> Result<&Announcement, FilesError> {
        self.announcement.as_ref().ok_or_else(too_early)
    }

    /// Bytes of the whole file or image, holes included, as far as they are announced.
    pub(crate) fn size(&self) -> Result<u64, FilesError> {
        Ok(match &self.entry()?.kind {
            Kind::File { size, .. } | Kind::Image { size: Some(size) } => *size,
            _ => self.announced()?.len(Part::Content),
        })
    }

    /// Checks that a range is within what is announced, and returns its end.
    pub(crate) fn end(&self, part: Part, offset: u64, len: u64) -> Result<u64, StoreError> {
        let announced = self.announced().map_err(told)?.len(part);
        let end = offset.checked_add(len).filter(|end| *end <= announced);
        end.ok_or_else(|| {
            told(FilesError::Sender(format!("it sends what lies beyond the end of {part:?}")))
        })
    }

    /// Takes bytes of the manifest or of the digests.
    pub(crate) fn write(
        &mut self,
        part: Part,
        offset: u64,
        bytes: &[u8],
        zeros: u32,
    ) -> Result<(), StoreError> {
        let end = self.end(part, offset, bytes.len() as u64 + u64::from(zeros))?;
        let mut all = bytes.to_vec();
        all.resize(bytes.len() + zeros as usize, 0);
        if part == Part::Digests {
            return self.digests().write(offset, &all).map_err(lost_digests);
        }
        let place =
            usize::try_from(offset).expect("limited")..usize::try_from(end).expect("limited");
        self.manifest[place].copy_from_slice(&all);
        Ok(())
    }

    /// Gives them back.
    pub(crate) fn read(
        &self,
        part: Part,
        offset: u64,
        len: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let end = self.end(part, offset, len.into())?;
        if part == Part::Digests {
            return self.digests().read(offset, len as usize, out).map_err(lost_digests);
        }
        let place =
            usize::try_from(offset).expect("limited")..usize::try_from(end).expect("limited");
        out.extend_from_slice(&self.manifest[place]);
        Ok(())
    }

    /// The digests, for a thread that compares.
    pub(crate) fn shared_digests(&self) -> Arc<Mutex<Table>> {
        self.digests.clone()
    }

    fn digests(&self) -> MutexGuard<'_, Table> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The digest of a group as it was announced.
pub(crate) fn digest_of(digests: &Mutex<Table>, group: u32) -> Result<[u8; 32], FilesError> {
    let digests = digests.lock().unwrap_or_else(PoisonError::into_inner);
    digests
        .digest(group)
        .map_err(|error| FilesError::io(&std::env::temp_dir(), "lost digests", error))
}

/// The bytes of a hole in a file of so many.
pub(crate) fn hole_range(hole: &Hole, size: u64) -> Range<u64> {
    let start = u64::from(hole.first) * GROUP_BYTES;
    start..(u64::from(hole.end()) * GROUP_BYTES).min(size)
}

/// Where the groups of one file or image lie, of which so much is announced.
fn layout_of(entry: &Entry, announcement: &Announcement) -> Result<Layout, FilesError> {
    let mut entry = entry.clone();
    if let Kind::Image { size: size @ None } = &mut entry.kind {
        let bytes = announcement.len(Part::Content);
        *size =
            Some(if announcement.growing { bytes.next_multiple_of(GROUP_BYTES) } else { bytes });
    }
    let name = entry.path.clone();
    Ok(Layout::new(Manifest::new(&name, vec![entry])?))
}

fn check_lens(announcement: &Announcement) -> Result<(), FilesError> {
    let [_, content, digests] = announcement.lens;
    let groups = content.div_ceil(GROUP_BYTES) + 1;
    if content > CONTENT_BYTES_MAX || digests > groups * DIGEST_BYTES || digests % DIGEST_BYTES != 0
    {
        return Err(FilesError::Sender(format!(
            "it announces {content} bytes of content and {digests} of digests"
        )));
    }
    Ok(())
}

fn several(manifest: &Manifest) -> FilesError {
    FilesError::Sender(format!(
        "`{}` is no single file or image, which is all that a device or a command can take; receive \
         it into a folder",
        manifest.name()
    ))
}

fn too_early() -> FilesError {
    FilesError::Sender("content came before the list of files".into())
}

fn told(error: FilesError) -> StoreError {
    StoreError { reason: error.to_string() }
}

fn lost_digests(error: std::io::Error) -> StoreError {
    told(FilesError::io(&std::env::temp_dir(), "cannot keep digests", error))
}
