//! Objects of one file or one image, for a device, a file in place or a command.

mod command;
mod device;
mod refuse;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use faircast_proto::object::{Announcement, Part};

pub use self::command::{CommandOptions, CommandStore};
pub use self::device::{DeviceOptions, DeviceStore};
pub use self::refuse::is_below_dev;
pub(crate) use self::refuse::{check_target, device_user};
use crate::error::{FilesError, Result};
use crate::layout::{GROUP_BYTES, Layout};
use crate::manifest::{Entry, Kind, Manifest};
use crate::name;
use crate::store::Counters;

fn open_single(
    manifest: &[u8],
    announcement: &Announcement,
    name: &str,
    counters: &Counters,
) -> Result<Entry> {
    let manifest = Manifest::decode(manifest)?;
    let sent = manifest.name();
    if sent != name {
        let what = format!("this is the object `{sent}`, and only `{name}` is taken");
        return Err(FilesError::Unwanted(what));
    }
    let entry = match manifest.entries() {
        [entry] if entry.has_content() => entry.clone(),
        _ => {
            return Err(FilesError::Sender(format!(
                "`{sent}` is no single file or image, which is all that a device or a command can \
                 take; receive it into a folder"
            )));
        }
    };
    let known = !matches!(entry.kind, Kind::Image { size: None });
    let layout = layout(&entry, announcement)?;
    let said = (announcement.len(Part::Content), announcement.len(Part::Digests));
    let is = (layout.manifest.content_bytes(), layout.digest_bytes());
    if known && (announcement.growing || said != is) {
        return Err(FilesError::Sender(format!(
            "it announces {} bytes of content and {} of digests, and `{}` has {} and {}",
            said.0,
            said.1,
            name::shown(&entry.path),
            is.0,
            is.1
        )));
    }
    counters.manifest.get_or_init(|| Arc::new(manifest));
    counters.update(|counts| counts.files = 1);
    Ok(entry)
}

fn size(entry: &Entry, announced: &Announcement) -> u64 {
    match entry.kind {
        Kind::Image { size: None } => announced.len(Part::Content),
        _ => entry.size(),
    }
}

fn layout(entry: &Entry, announced: &Announcement) -> Result<Arc<Layout>> {
    let mut entry = entry.clone();
    if let Kind::Image { size: size @ None } = &mut entry.kind {
        let bytes = announced.len(Part::Content);
        *size = Some(if announced.growing { bytes.next_multiple_of(GROUP_BYTES) } else { bytes });
    }
    let name = name::title(&entry.path);
    Ok(Arc::new(Layout::new(Manifest::new(&name, vec![entry])?)))
}
