//! From traces to verdicts: metrics, tables, JSON and HTML with plots.
//!
//! This crate sees only traces, never the simulator or the sockets that made them, and so it
//! judges simulated, emulated and real runs by the same code. [`Metrics`] and [`Series`] are
//! sinks: feed them live or from a [`Reader`](faircast_trace::Reader), with the same result.

mod metrics;
mod summary;

pub use metrics::Metrics;
pub use summary::{
    Drops, FlowSummary, LinkSummary, ReceiverSummary, RouterSummary, Summary, jain_index,
};
