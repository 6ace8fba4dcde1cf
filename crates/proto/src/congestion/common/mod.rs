//! What more than one scheme stands on: how fast TCP would be, the mean of loss intervals, nodes and
//! timestamps in their values.

#[cfg(test)]
pub(crate) mod bench;
pub mod equation;
pub mod intervals;
pub(crate) mod node;
pub(crate) mod reorder;
pub(crate) mod silence;
pub(crate) mod stamp;
