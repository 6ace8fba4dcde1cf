//! Common parts of schemes: TCP's throughput equation, the mean of loss intervals, loss detection
//! under reordering and the lateness of packets, unanswered packets, nodes and timestamps in values.

#[cfg(test)]
pub(crate) use crate::tests::bench;
pub mod equation;
pub mod intervals;
pub(crate) mod lateness;
pub(crate) mod node;
pub(crate) mod reorder;
pub(crate) mod silence;
pub(crate) mod stamp;
