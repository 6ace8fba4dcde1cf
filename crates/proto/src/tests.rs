//! Tests of whatever is registered.

mod announcements;
mod schemes;
