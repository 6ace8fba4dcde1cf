//! Object of a store for one file or one image.

use std::sync::Arc;

use faircast_proto::object::{Announcement, Part};

use crate::error::{FilesError, Result};
use crate::layout::{GROUP_BYTES, Layout};
use crate::manifest::{Entry, Kind, Manifest};
use crate::name;
use crate::store::Counters;

/// Only file or image of an accepted object.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) entry: Entry,
}

impl Single {
    pub(super) fn open(
        manifest: &[u8],
        announcement: &Announcement,
        name: &str,
        counters: &Counters,
    ) -> Result<Self> {
        let manifest = Manifest::decode(manifest)?;
        if manifest.name() != name {
            let sent = manifest.name();
            let what = format!("this is the object `{sent}`, and only `{name}` is taken");
            return Err(FilesError::Unwanted(what));
        }
        let entry = match manifest.entries() {
            [entry] if entry.has_content() => entry.clone(),
            _ => return Err(several(&manifest)),
        };
        let known = !matches!(entry.kind, Kind::Image { size: None });
        let object = Self { entry };
        let layout = object.layout(announcement)?;
        let said = (announcement.len(Part::Content), announcement.len(Part::Digests));
        let is = (layout.manifest.content_bytes(), layout.digest_bytes());
        if known && (announcement.growing || said != is) {
            return Err(FilesError::Sender(format!(
                "it announces {} bytes of content and {} of digests, and `{}` has {} and {}",
                said.0,
                said.1,
                name::shown(&object.entry.path),
                is.0,
                is.1
            )));
        }
        counters.manifest.get_or_init(|| Arc::new(manifest));
        counters.update(|counts| counts.files = 1);
        Ok(object)
    }

    pub(super) fn size(&self, announced: &Announcement) -> u64 {
        match self.entry.kind {
            Kind::Image { size: None } => announced.len(Part::Content),
            _ => self.entry.size(),
        }
    }

    pub(super) fn layout(&self, announced: &Announcement) -> Result<Arc<Layout>> {
        let mut entry = self.entry.clone();
        if let Kind::Image { size: size @ None } = &mut entry.kind {
            let bytes = announced.len(Part::Content);
            *size =
                Some(if announced.growing { bytes.next_multiple_of(GROUP_BYTES) } else { bytes });
        }
        let name = name::title(&entry.path);
        Ok(Arc::new(Layout::new(Manifest::new(&name, vec![entry])?)))
    }
}

fn several(manifest: &Manifest) -> FilesError {
    FilesError::Sender(format!(
        "`{}` is no single file or image, which is all that a device or a command can take; receive \
         it into a folder",
        manifest.name()
    ))
}
