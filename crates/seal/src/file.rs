//! Key files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use zeroize::Zeroizing;

use crate::{GroupKey, KeyError, RelaySecret};

/// Policy for a key file that others than its owner may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Refuses the file.
    Refuse,
    /// Accepts the file.
    Allow,
}

impl GroupKey {
    /// Creates a key in a new file that only its owner may read; fails if the file exists.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let key = Self::random()?;
        write_new(path, &key.to_text())?;
        Ok(key)
    }

    /// Reads a key file; fails on one that is open to others, unless `exposure` allows it.
    pub fn read(path: &Path, exposure: Exposure) -> Result<Self, KeyError> {
        read(path, exposure, Self::from_text)
    }
}

impl RelaySecret {
    /// Writes the key to a new file that only its owner may read; fails if the file exists.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        write_new(path, &self.to_text())
    }

    /// Reads a key file of a relay or of a group; fails as [`GroupKey::read`] does.
    pub fn read(path: &Path, exposure: Exposure) -> Result<Self, KeyError> {
        read(path, exposure, Self::from_text)
    }
}

fn write_new(path: &Path, text: &str) -> Result<(), KeyError> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
        _ => failed(path, error),
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key is useless, and would prevent the next attempt.
        let _ = std::fs::remove_file(path);
        failed(path, error)
    })
}

fn read<K>(
    path: &Path,
    exposure: Exposure,
    parse: fn(&str) -> Result<K, &'static str>,
) -> Result<K, KeyError> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    let mut text = Zeroizing::new(String::new());
    let start = (&file).take(FILE_BYTES_MAX).read_to_string(&mut text);
    start.map_err(|error| failed(path, error))?;
    let key = parse(&text).map_err(|problem| KeyError::Text { path: path.to_owned(), problem })?;
    check_mode(path, &file, exposure).map(|()| key)
}

/// Opens a file with secrets; fails if it is open to others, unless `exposure` allows it.
pub fn open_private(path: &Path, exposure: Exposure) -> Result<File, KeyError> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    check_mode(path, &file, exposure).map(|()| file)
}

/// Fails on a file that others than its owner may read or write, unless `exposure` allows it.
fn check_mode(path: &Path, file: &File, exposure: Exposure) -> Result<(), KeyError> {
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    let mode = metadata.permissions().mode() & 0o777;
    // A pipe, such as a shell's <(command), has no relevant owner.
    let is_open = metadata.is_file() && mode & 0o077 != 0;
    match is_open && exposure == Exposure::Refuse {
        true => Err(KeyError::Exposed { path: path.to_owned(), mode }),
        false => Ok(()),
    }
}

fn failed(path: &Path, error: io::Error) -> KeyError {
    KeyError::File { path: path.to_owned(), error }
}

const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_for_its_owner_alone_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("group.key");
        let key = GroupKey::create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(GroupKey::read(&path, Exposure::Refuse).unwrap().id(), key.id());
        let error = GroupKey::create(&path).unwrap_err().to_string();
        assert!(error.contains("group.key: the file exists"), "{error}");
        assert_eq!(GroupKey::read(&path, Exposure::Refuse).unwrap().id(), key.id());
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_unless_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("group.key");
        let key = GroupKey::create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = GroupKey::read(&path, Exposure::Refuse).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:o}")), "{error}");
            assert_eq!(GroupKey::read(&path, Exposure::Allow).unwrap().id(), key.id());
        }
    }

    #[test]
    fn files_that_are_none_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let error = GroupKey::read(&absent, Exposure::Refuse).unwrap_err().to_string();
        assert!(error.contains("absent: No such file"), "{error}");
        let error = GroupKey::create(&folder.path().join("no/such")).unwrap_err().to_string();
        assert!(error.contains("no/such: No such file"), "{error}");
        let long = folder.path().join("long");
        std::fs::write(&long, "x".repeat(1 << 20)).unwrap();
        let error = GroupKey::read(&long, Exposure::Allow).unwrap_err().to_string();
        assert!(error.contains("no key file"), "{error}");
    }
}
