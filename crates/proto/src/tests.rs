//! Tests of whatever is registered.

mod announcements;
mod black_holes;
pub(crate) mod formats;
mod schemes;
mod walks;
pub(crate) mod world;
