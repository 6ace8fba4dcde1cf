//! Block device as an object: its whole content, as an image.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use super::skipped::Warning;
use super::sources::{Sources, identity};
use crate::error::{FilesError, Result};
use crate::image::device_user;
use crate::layout::Layout;
use crate::manifest::{Entry, Kind, Manifest, Mtime};

/// Block device as the content of an object.
pub(super) struct DeviceImage {
    pub(super) layout: Layout,
    pub(super) sources: Sources,
    pub(super) warning: Option<Warning>,
}

pub(super) fn find(paths: &[&Path], name: &str) -> Result<Option<DeviceImage>> {
    let is_device = |path: &&&Path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    };
    let Some(path) = paths.iter().find(is_device) else { return Ok(None) };
    if paths.len() > 1 {
        let what = "is a device, which is sent alone; send it by itself";
        return Err(FilesError::refused(path, what));
    }
    let cannot = |error| FilesError::io(path, "cannot be read", error);
    let mut device = fs::File::open(path).map_err(cannot)?;
    let size = Some(device.seek(SeekFrom::End(0)).map_err(cannot)?);
    let metadata = device.metadata().map_err(cannot)?;
    // Without a modification time, repeated transfers are of the same object.
    let entry = Entry::new(name, Kind::Image { size }, 0o600, Mtime { seconds: 0, nanos: 0 });
    let absolute = std::path::absolute(path).map_err(cannot)?;
    let warning = device_user(path).map(|user| Warning::InUse(path.to_path_buf(), user));
    let sources = Sources {
        roots: BTreeMap::from([(name.into(), absolute)]),
        identities: vec![identity(&metadata)],
    };
    let layout = Layout::new(Manifest::new(name, vec![entry])?);
    Ok(Some(DeviceImage { layout, sources, warning }))
}
