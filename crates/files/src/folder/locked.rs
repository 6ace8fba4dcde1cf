//! Read-only directories of this user, whose modes are widened for the last step.

use std::io::{Read as _, Write as _};
use std::os::fd::BorrowedFd;

use bstr::{BString, ByteSlice as _};
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::state::StateFolder;
use crate::dir::{self, Cursor, Root};
use crate::error::{At as _, FilesError, Result};
use crate::name;

/// File with the modes to restore. Record: mode (2 bytes), length of the path (2), path.
const MODES: &str = "modes";

/// Directories with widened modes, each with the mode to restore.
#[derive(Debug, Default)]
pub(super) struct Widened(Vec<(BString, u16)>);

/// Restores the modes that a killed process has left widened.
pub(super) fn restore_left(root: &Root, state: BorrowedFd<'_>) -> Result<()> {
    const CANNOT: &str = "cannot be read";
    let path = root.path(name::STATE_FOLDER.as_bytes());
    let mut bytes = Vec::new();
    match dir::open_file(state, MODES, OFlags::RDONLY) {
        Err(Errno::NOENT) => return Ok(()),
        file => file.at(&path, CANNOT)?.read_to_end(&mut bytes).at(&path, CANNOT)?,
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
            const CANNOT: &str = "cannot be looked at";
            let at = root.path(path);
            let whole = (!path.is_empty()).then_some(path.as_bstr());
            let fd = cursor.enter(whole)?.ok_or(Errno::NOENT).at(&at, CANNOT)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(fd).at(&at, CANNOT)?.st_mode);
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
        widened.set(root, |mode| mode | 0o700).or_else(|error| {
            widened.restore(root, state.fd())?;
            Err(error)
        })?;
        Ok(widened)
    }

    pub(super) fn restore(&self, root: &Root, state: BorrowedFd<'_>) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.set(root, |mode| mode)?;
        dir::remove_file(state, MODES).at(&root.path, "cannot be written")
    }

    fn set(&self, root: &Root, mode: impl Fn(u16) -> u16) -> Result<()> {
        for (path, own) in &self.0 {
            const CANNOT: &str = "cannot get its mode";
            let at = root.path(path);
            let mut cursor = Cursor::new(root);
            let whole = (!path.is_empty()).then_some(path.as_bstr());
            let fd = match cursor.enter(whole) {
                Ok(Some(fd)) => fd,
                Ok(None) | Err(FilesError::Refused { .. }) => continue,
                Err(error) => return Err(error),
            };
            let user = rustix::process::geteuid();
            // Another owner, if the directory has one now, decides on the mode.
            if user.is_root() || rustix::fs::fstat(fd).at(&at, CANNOT)?.st_uid == user.as_raw() {
                rustix::fs::fchmod(fd, Mode::from_raw_mode(mode(*own).into())).at(&at, CANNOT)?;
            }
        }
        Ok(())
    }
}
