//! Common parts of all stores: manifest, digests, and content that a thread writes by groups.

mod assembly;
mod counts;
mod group_store;
mod intake;
mod journal;
mod thread;

pub(crate) use self::assembly::Flight;
pub(crate) use self::counts::Counters;
pub use self::counts::StoreHandle;
pub(crate) use self::group_store::GroupStore;
pub(crate) use self::intake::{Intake, too_early};
pub(crate) use self::journal::Journal;
pub(crate) use self::thread::{Idle, Medium, Request, Shared, Written};
