//! The common part of all stores: the parts of an object beside its content, and content that is put
//! together by groups and written by a thread, whatever it is written to.

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
pub(crate) use self::intake::{Intake, told, too_early};
pub(crate) use self::journal::{Journal, JournalWriter};
pub(crate) use self::thread::{Idle, Medium, Request, Shared, Written};
