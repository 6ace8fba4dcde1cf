//! Common parts of schemes.

pub(crate) mod average;
#[cfg(test)]
pub(crate) use crate::tests::bench;
pub mod equation;
pub(crate) mod lateness;
pub(crate) mod node;
pub(crate) mod reorder;
pub(crate) mod silence;
pub(crate) mod stamp;
