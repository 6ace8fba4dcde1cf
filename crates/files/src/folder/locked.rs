//! Read-only directories of this user in which something is to be made: their modes are widened for the
//! last step, and restored after it.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;

use bstr::{BString, ByteSlice as _};
use rustix::fs::Mode;
use rustix::io::Errno;

use super::files::Files;
use super::state::StateFolder;
use crate::dir::Cursor;
use crate::error::{FilesError, Result};
use crate::name;

/// File of the state folder with the modes to be restored after an interrupted run. Each directory has its mode (2
/// bytes), the length of its path (2) and the path.
const MODES: &str = "modes";

/// Directories with widened modes, and their own modes.
#[derive(Debug, Default)]
pub(super) struct Widened(Vec<(BString, u16)>);

/// Reads the modes that an earlier run has not restored. A file that is torn says no more than it has.
pub(super) fn left(state: &StateFolder) -> Result<Vec<(BString, u16)>> {
    let Some(mut file) = state.find(MODES)? else { return Ok(Vec::new()) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| state.cannot(error))?;
    let (mut found, mut rest) = (Vec::new(), &bytes[..]);
    while let Some(([a, b, c, d], after)) = rest.split_first_chunk::<4>()
        && let Some((path, after)) =
            after.split_at_checked(usize::from(u16::from_be_bytes([*c, *d])))
    {
        if path.is_empty() || name::check_path(path).is_ok() {
            found.push((BString::from(path), u16::from_be_bytes([*a, *b]) & 0o7777));
        }
        rest = after;
    }
    Ok(found)
}

impl Widened {
    /// Gives the owner all rights in these directories; their modes are written down before.
    pub(super) fn widen(files: &Files, locked: &[BString]) -> Result<Self> {
        let mut all = left(&files.state)?;
        let mut cursor = Cursor::new(&files.root);
        for path in locked {
            let at = files.root.path(path);
            let cannot = |error: Errno| FilesError::io(&at, "cannot be looked at", error);
            let whole = (!path.is_empty()).then_some(path.as_bstr());
            let fd = cursor.enter(whole)?.ok_or(Errno::NOENT).map_err(cannot)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(fd).map_err(cannot)?.st_mode);
            if !all.iter().any(|(known, _)| known == path) {
                let bits = mode.bits() & 0o7777;
                all.push((path.clone(), u16::try_from(bits).expect("twelve bits")));
            }
        }
        if all.is_empty() {
            return Ok(Self::default());
        }
        let mut bytes = Vec::new();
        for (path, mode) in &all {
            bytes.extend(mode.to_be_bytes());
            bytes.extend(u16::try_from(path.len()).expect("limited").to_be_bytes());
            bytes.extend_from_slice(path);
        }
        let file = files.state.create(MODES)?;
        let written = (&file).write_all(&bytes).and_then(|()| file.sync_all());
        written.map_err(|error| files.state.cannot(error))?;
        let widened = Self(all);
        match widened.set(files, |mode| mode | 0o700) {
            Ok(()) => Ok(widened),
            Err(error) => {
                widened.restore(files)?;
                Err(error)
            }
        }
    }

    /// Gives each directory its own mode again.
    pub(super) fn restore(&self, files: &Files) -> Result<()> {
        self.set(files, |mode| mode)
    }

    fn set(&self, files: &Files, mode: impl Fn(u16) -> u16) -> Result<()> {
        for (path, own) in &self.0 {
            let at = files.root.path(path);
            let cannot = |error: Errno| FilesError::io(&at, "cannot get its mode", error);
            let mut cursor = Cursor::new(&files.root);
            let whole = (!path.is_empty()).then_some(path.as_bstr());
            // Removed since.
            let Some(fd) = cursor.enter(whole)? else { continue };
            let mode = Mode::from_raw_mode(mode(*own).into());
            rustix::fs::fchmod(fd.as_fd(), mode).map_err(cannot)?;
        }
        Ok(())
    }
}
