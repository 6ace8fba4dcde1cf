//! Files and directory trees as objects of a transfer.
//!
//! An image of a device, or what a pipe gives, is an object too: [`PipeSupply`] sends it, and
//! [`DeviceStore`] and [`CommandStore`] take it.
//!
//! A sender makes a [`FilesSupply`] of paths, a receiver a [`FilesStore`] of a directory. The
//! first scans quickly, reads ahead and hashes in the background; the second assembles what comes
//! in any order, finds what is there from an earlier run, and puts files into their places once
//! they are what they should be. `docs/files.md` has formats, guarantees and limits.

mod dir;
mod error;
mod folder;
mod guard;
mod handles;
mod hash;
mod hole_hashes;
mod image;
mod layout;
mod lock;
pub mod manifest;
pub mod name;
mod store;
mod supply;
mod table;
#[cfg(test)]
mod testing;

pub use error::FilesError;
pub use folder::{FilesStore, StoreOptions, clean};
pub use image::{
    CommandOptions, CommandStore, DeviceOptions, DeviceStore, check_target, device_user,
    is_below_dev,
};
pub use layout::{DIGEST_BYTES, GROUP_BYTES};
pub use manifest::{Manifest, ManifestError};
pub use name::{shown, shown_path};
pub use store::{GroupStore, StoreCounts, StoreHandle};
pub use supply::{
    FileHash, FilesSupply, Links, PIPE_NAME, PipeSupply, Scan, ScanOptions, ScanTotals, Skip,
    Skipped, SupplyCounts, SupplyHandle, Warning,
};
