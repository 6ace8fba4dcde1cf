//! Announcement, manifest and digests of an object.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use faircast_proto::object::{Announcement, Part};
use parking_lot::Mutex;

use super::Counters;
use crate::error::{At as _, FilesError, Result};
use crate::layout::{DIGEST_BYTES, GROUP_BYTES};
use crate::manifest::{CONTENT_BYTES_MAX, MANIFEST_BYTES_MAX};
use crate::table::Table;

const CANNOT: &str = "cannot keep digests";

#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) counters: Arc<Counters>,
    announcement: Option<Announcement>,
    pub(crate) manifest: Vec<u8>,
    pub(crate) digests: Arc<Mutex<Table>>,
    /// Folder for digests beyond the memory limit.
    folder: PathBuf,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            counters: Arc::default(),
            announcement: None,
            manifest: Vec::new(),
            digests: Arc::new(Mutex::new(Table::empty())),
            folder: PathBuf::new(),
        }
    }

    /// Handles the first announcement, or a repetition with a new hash of digests.
    pub(crate) fn begin(
        &mut self,
        announcement: &Announcement,
        files_max: u32,
        folder: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<()> {
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
        check_lens(announcement, files_max)?;
        self.manifest = vec![0; in_memory(manifest)];
        self.folder = folder()?;
        self.announcement = Some(*announcement);
        self.make_digests(announcement)
    }

    pub(crate) fn grow(&mut self, announcement: &Announcement) -> Result<()> {
        check_lens(announcement, 1)?;
        self.announcement = Some(*announcement);
        if !announcement.growing {
            self.make_digests(announcement)?;
        }
        self.counters.update(|counts| counts.bytes = announcement.len(Part::Content));
        Ok(())
    }

    fn make_digests(&self, announcement: &Announcement) -> Result<()> {
        *self.digests.lock() =
            Table::new(announcement.len(Part::Digests), &self.folder).at(&self.folder, CANNOT)?;
        Ok(())
    }

    pub(crate) fn announced(&self) -> Result<&Announcement> {
        self.announcement.as_ref().ok_or_else(too_early)
    }

    pub(crate) fn end(&self, part: Part, offset: u64, len: u64) -> Result<u64> {
        let announced = self.announced()?.len(part);
        let end = offset.checked_add(len).filter(|end| *end <= announced);
        end.ok_or_else(|| FilesError::Sender(format!("it sent bytes beyond the end of {part:?}")))
    }

    pub(crate) fn write(
        &mut self,
        part: Part,
        offset: u64,
        bytes: &[u8],
        zeros: u32,
    ) -> Result<()> {
        let end = self.end(part, offset, bytes.len() as u64 + u64::from(zeros))?;
        let mut all = Cow::Borrowed(bytes);
        if zeros > 0 {
            all.to_mut().resize(bytes.len() + zeros as usize, 0);
        }
        if part == Part::Digests {
            return self.digests.lock().write(offset, &all).at(&self.folder, CANNOT);
        }
        self.manifest[in_memory(offset)..in_memory(end)].copy_from_slice(&all);
        Ok(())
    }

    pub(crate) fn read(&self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<()> {
        let end = self.end(part, offset, len.into())?;
        if part == Part::Digests {
            return self.digests.lock().read(offset, len as usize, out).at(&self.folder, CANNOT);
        }
        out.extend_from_slice(&self.manifest[in_memory(offset)..in_memory(end)]);
        Ok(())
    }
}

fn in_memory(offset: u64) -> usize {
    usize::try_from(offset).expect("limited")
}

fn check_lens(announcement: &Announcement, files_max: u32) -> Result<()> {
    let [_, content, digests] = announcement.lens;
    let groups = content / GROUP_BYTES + u64::from(files_max);
    if content > CONTENT_BYTES_MAX || digests > groups * DIGEST_BYTES || digests % DIGEST_BYTES != 0
    {
        return Err(FilesError::Sender(format!(
            "it announces {content} bytes of content and {digests} of digests"
        )));
    }
    Ok(())
}

pub(crate) fn too_early() -> FilesError {
    FilesError::Sender("content came before the list of files".into())
}
