//! What more than one scheme stands on: how fast TCP would be, the mean of loss intervals, nodes and
//! timestamps in their values.

pub mod equation;
pub mod intervals;
pub(crate) mod node;
pub(crate) mod stamp;
#[cfg(test)]
pub(crate) mod table;
