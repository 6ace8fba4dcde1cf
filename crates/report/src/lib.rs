//! Reports from traces: metrics, verdicts, tables, JSON and HTML with plots.
//!
//! One code judges simulated, emulated and real runs. [`Metrics`] and [`Series`] are sinks, for
//! live records or those of a [`Reader`](faircast_trace::Reader).

mod class;
mod clients;
mod figure;
mod interval;
mod matrix;
mod metrics;
mod notes;
mod page;
mod plots;
mod rates;
mod series;
mod suite;
mod summary;
mod sweep;
mod table;
mod text;
mod verdicts;

pub use class::Class;
pub use figure::Figure;
pub use interval::median_interval;
pub use matrix::{Matrix, MatrixCase, MatrixCell, RunPage, Spread};
pub use metrics::Metrics;
pub use page::{bench_page, matrix_page, run_page, sweep_page};
pub use plots::{csv, plots, svg};
pub use rates::Rates;
pub use series::{BINS_GIVEN_MAX, Curve, Series};
pub use suite::{Acceptance, Expected, MissCause, Optimum, Plots, Row, Source, Suite, Values};
pub use summary::{FlowSummary, LinkSummary, ReceiverSummary, Summary, jain_index};
pub use sweep::picture::sweep_pictures;
pub use sweep::{Sweep, SweepAxis};
pub use text::{csv_field, spread, wrap};
pub use verdicts::{RowVerdict, Verdicts};
