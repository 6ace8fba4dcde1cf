//! Read-only directories of this user, whose modes are widened for the last step.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use bstr::{BString, ByteSlice as _};
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::state::StateFolder;
use crate::dir::{self, Cursor, Root};
use crate::error::{FilesError, Result};
use crate::name;

/// File with the modes to restore. Record: mode (2 bytes), length of the path (2), path.
const MODES: &str = "modes";

/// Directories with widened modes, each with the mode to restore.
#[derive(Debug, Default)]
pub(super) struct Widened(Vec<(BString, u16)>);

/// Restores the modes that a killed process has left widened.
pub(super) fn restore_left(root: &Root, state: BorrowedFd<'_>) -> Result<()> {
    let path = root.path(name::STATE_FOLDER.as_bytes());
    let cannot = |error: std::io::Error| FilesError::io(&path, "cannot be read", error);
    let mut bytes = Vec::new();
    match dir::open_file(state, MODES, OFlags::RDONLY) {
        Ok(mut file) => file.read_to_end(&mut bytes).map_err(cannot)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(cannot(error.into())),
    };
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
    Widened(found).restore(root, state)
}

/// True if a directory is read-only and of this user, who can widen its mode. Fails for others.
pub(super) fn is_locked(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::accessat(directory, ".", access, AtFlags::EACCESS) {
        Err(Errno::ACCESS)
            if rustix::fs::fstat(directory)?.st_uid == rustix::process::geteuid().as_raw() =>
        {
            Ok(true)
        }
        answer => answer.map(|()| false),
    }
}

impl Widened {
    pub(super) fn widen(root: &Root, state: &StateFolder, locked: &[BString]) -> Result<Self> {
        if locked.is_empty() {
            return Ok(Self::default());
        }
        let (mut all, mut bytes) = (Vec::new(), Vec::new());
        let mut cursor = Cursor::new(root);
        for path in locked {
            let at = root.path(path);
            let cannot = |error: Errno| FilesError::io(&at, "cannot be looked at", error);
            let whole = (!path.is_empty()).then_some(path.as_bstr());
            let fd = cursor.enter(whole)?.ok_or(Errno::NOENT).map_err(cannot)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(fd).map_err(cannot)?.st_mode);
            let mode = u16::try_from(mode.bits() & 0o7777).expect("twelve bits");
            bytes.extend(mode.to_be_bytes());
            bytes.extend(u16::try_from(path.len()).expect("limited").to_be_bytes());
            bytes.extend_from_slice(path);
            all.push((path.clone(), mode));
        }
        let file = state.create(MODES)?;
        let written = (&file).write_all(&bytes).and_then(|()| file.sync_all());
        written.map_err(|error| state.cannot(error))?;
        let widened = Self(all);
        match widened.set(root, |mode| mode | 0o700) {
            Ok(()) => Ok(widened),
            Err(error) => {
                widened.restore(root, state.fd())?;
                Err(error)
            }
        }
    }

    pub(super) fn restore(&self, root: &Root, state: BorrowedFd<'_>) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.set(root, |mode| mode)?;
        match rustix::fs::unlinkat(state, MODES, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(FilesError::io(&root.path(b""), "cannot be written", error)),
        }
    }

    fn set(&self, root: &Root, mode: impl Fn(u16) -> u16) -> Result<()> {
        for (path, own) in &self.0 {
            let at = root.path(path);
            let cannot = |error: Errno| FilesError::io(&at, "cannot get its mode", error);
            let mut cursor = Cursor::new(root);
            let whole = (!path.is_empty()).then_some(path.as_bstr());
            let fd = match cursor.enter(whole) {
                Ok(Some(fd)) => fd,
                Ok(None) | Err(FilesError::Refused { .. }) => continue,
                Err(error) => return Err(error),
            };
            let user = rustix::process::geteuid();
            let owner = rustix::fs::fstat(fd).map_err(cannot)?.st_uid;
            if !user.is_root() && owner != user.as_raw() {
                // The directory has another owner now, who decides on the mode.
                continue;
            }
            let mode = Mode::from_raw_mode(mode(*own).into());
            rustix::fs::fchmod(fd.as_fd(), mode).map_err(cannot)?;
        }
        Ok(())
    }
}
