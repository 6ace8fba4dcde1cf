//! Destinations of received objects: a folder, a device or a command.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use faircast_files::{
    CommandOptions, CommandStore, DeviceOptions, DeviceStore, FilesError, FilesStore, StoreHandle,
    StoreOptions, is_below_dev,
};
use faircast_net::random;
use faircast_proto::object::Store;

use crate::{Error, Result};

#[derive(Clone, Debug)]
pub(crate) enum Destination {
    Folder(StoreOptions),
    Device(DeviceOptions),
    Command(CommandOptions),
}

impl Destination {
    pub(crate) fn probe(&self) -> Result {
        match self {
            Self::Folder(options) => probe_folder(&options.dir),
            Self::Device(options) => Ok(options.check()?),
            Self::Command(_) => Ok(()),
        }
    }

    pub(crate) fn store(&self, source: Option<IpAddr>) -> (Box<dyn Store>, StoreHandle) {
        match self {
            Self::Folder(options) => {
                let options = StoreOptions { source, ..options.clone() };
                watched(FilesStore::new(options), FilesStore::handle)
            }
            Self::Device(options) => {
                watched(DeviceStore::new(options.clone()), DeviceStore::handle)
            }
            Self::Command(options) => {
                watched(CommandStore::new(options.clone()), CommandStore::handle)
            }
        }
    }

    pub(crate) fn only(&self) -> Option<&str> {
        match self {
            Self::Folder(_) => None,
            Self::Device(options) => Some(&options.object),
            Self::Command(options) => Some(&options.object),
        }
    }

    pub(crate) fn path(&self, file: &Path) -> PathBuf {
        match self {
            Self::Folder(options) => options.dir.join(file),
            Self::Device(options) => options.target.clone(),
            Self::Command(_) => file.to_path_buf(),
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(options) => write!(f, "{}", options.dir.display()),
            Self::Device(options) => write!(f, "{}", options.target.display()),
            Self::Command(options) => write!(f, "`{}`", options.command),
        }
    }
}

fn watched<S: Store + 'static>(
    store: S,
    handle: fn(&S) -> StoreHandle,
) -> (Box<dyn Store>, StoreHandle) {
    let handle = handle(&store);
    (Box::new(store), handle)
}

fn probe_folder(dir: &Path) -> Result {
    let cannot = |what: &'static str, error| {
        Error::Files(FilesError::Io { path: dir.to_path_buf(), what, error })
    };
    if is_below_dev(dir) {
        let what = "is a place for devices and no folder; to write a device use --to-device".into();
        return Err(FilesError::Refused { path: dir.to_path_buf(), what }.into());
    }
    std::fs::create_dir_all(dir).map_err(|error| cannot("cannot be made", error))?;
    let probe = dir.join(format!(".faircast-probe-{:016x}", random()));
    std::fs::File::create_new(&probe)
        .and_then(|_| std::fs::remove_file(&probe))
        .map_err(|error| cannot("cannot be written to", error))
}
