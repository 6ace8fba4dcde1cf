//! What more than one scheme stands on: how fast TCP would be, and the mean of loss intervals.

pub mod equation;
pub mod intervals;
