//! Tests of everything in the catalog.

mod announcements;
pub(crate) mod bench;
mod black_holes;
pub(crate) mod formats;
mod schemes;
mod walks;
pub(crate) mod world;
