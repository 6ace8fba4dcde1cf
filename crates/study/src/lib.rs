//! Studies: runs of scenarios ([`Study::run`]), sweeps over their settings ([`Sweep`]), suites with
//! published figures ([`LoadedSuite`](suite::LoadedSuite)), and the comparison of schemes. The
//! crate knows no operating system: engines on real networks are a [`Backend`] of another crate.
//!
//! ```
//! use faircast_base::{Bitrate, Duration};
//! use faircast_study::sweep::Axis;
//! use faircast_study::{Draft, ListEntry, Study, Sweep};
//!
//! let (rate, delay) = (Bitrate::from_bits_per_s(10_000_000), Duration::from_millis(10));
//! let draft = Draft::new("pgmcc-beside-tcp")
//!     .set("title", "Does pgmcc leave TCP its share?")
//!     .set("duration", Duration::from_secs(20))
//!     .add("link", ListEntry::link("s", "r", rate, delay))
//!     .add("link", ListEntry::link("r", "a", rate, delay))
//!     .add("link", ListEntry::link("r", "b", rate, delay))
//!     .add("flow", ListEntry::flow("mcc", "pgmcc", "s", ["a", "b"]))
//!     .add("flow", ListEntry::flow("tcp", "tcp-sack", "s", ["a"]));
//!
//! let study = Study::default();
//! let rates = Axis::new("link.1.rate", ["500 kbit/s", "1 Mbit/s"]).unwrap();
//! let tables = Sweep::new(&study, draft, vec![rates], 1..=2)?.tables()?;
//! for row in tables.flows.rows().filter(|row| row.text("flow") == Some("mcc")) {
//!     let (rate, got) = (row.number("link.1.rate_bps"), row.number("goodput_min_bps"));
//!     assert!(got > Some(0.0) && got < rate);
//! }
//! assert_eq!(tables.flows.row_count(), 8);
//! # Ok::<(), faircast_study::Error>(())
//! ```

pub mod files;
pub mod matrix;
pub mod monitor;
pub mod suite;
pub mod sweep;
pub mod table;

mod backend;
mod error;
mod optimum;
mod run;
mod study;

pub use backend::{Backend, BackendOutcome, Simulator};
pub use error::Error;
pub use faircast_scenario::{Catalog, Draft, ListEntry, Scenario};
pub use monitor::{Monitor, Runs};
pub use run::{Run, TRACE_FILE};
pub use study::Study;
pub use sweep::Sweep;
