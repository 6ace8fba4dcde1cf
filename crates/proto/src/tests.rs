//! Tests of whatever is registered.

mod announcements;
mod black_holes;
mod schemes;
mod walks;
