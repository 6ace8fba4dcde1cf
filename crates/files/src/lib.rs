//! Files and directory trees as objects of a transfer, as well as images of devices and pipes.
//!
//! A sender creates a [`FilesSupply`] of paths or a [`PipeSupply`], a receiver a [`FilesStore`] of
//! a directory, a [`DeviceStore`] or a [`CommandStore`]. `docs/files.md` has formats, guarantees,
//! limits.

mod dir;
mod error;
mod folder;
mod guard;
mod handles;
mod hash;
mod image;
mod layout;
mod lock;
mod manifest;
mod name;
mod store;
mod supply;
mod table;
#[cfg(test)]
mod testing;

pub use error::FilesError;
pub use folder::{FilesStore, StoreOptions, clean};
pub use image::{CommandOptions, CommandStore, DeviceOptions, DeviceStore, is_below_dev};
pub use manifest::{Entry, Kind, Manifest};
pub use name::{shown, shown_path};
pub use store::StoreHandle;
pub use supply::{
    FileHash, FilesSupply, Links, PIPE_NAME, PipeSupply, Scan, ScanOptions, ScanTotals, Skip,
    Skipped, SupplyHandle, Warning,
};
