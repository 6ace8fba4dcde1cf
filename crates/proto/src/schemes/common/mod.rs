//! What more than one scheme stands on: how fast TCP would be, the mean of loss intervals, nodes and
//! timestamps in their values.

pub(crate) mod equation;
pub(crate) mod intervals;
pub(crate) mod node;
pub(crate) mod stamp;
