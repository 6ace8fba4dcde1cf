//! Common parts of all stores: manifest, digests, and content that a thread writes by groups.

mod assembly;
mod counts;
mod group_store;
mod intake;
mod journal;
mod thread;

pub(crate) use self::assembly::Flight;
pub(crate) use self::counts::Counters;
pub use self::counts::{StoreCounts, StoreHandle};
pub use self::group_store::GroupStore;
pub(crate) use self::intake::{Intake, object_error, too_early};
pub(crate) use self::journal::{Journal, JournalWriter};
pub(crate) use self::thread::{Idle, Medium, Request, Shared, Written};
