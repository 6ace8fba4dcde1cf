//! Tests of everything in the catalog.

mod announcements;
pub(crate) mod bench;
mod black_holes;
pub(crate) mod formats;
mod schemes;
pub(crate) mod tables;
pub(crate) mod world;
