//! Tests of whatever is registered.

mod schemes;
