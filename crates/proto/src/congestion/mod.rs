//! Congestion control: schemes, each a pair of [`SenderControl`] and [`ReceiverFeedback`].

mod coded;
pub mod common;
mod control;
mod late_acks;
pub mod open;
pub mod ormcc;
mod pace;
pub mod pgmcc;
mod relayed;
mod scheme;
pub mod tfmcc;

pub use coded::{
    Bounds, BoxControl, BoxFeedback, ErasedControl, ErasedFeedback, ReportFacts, SchemeOptions,
    bounded_control, boxed_control, boxed_feedback,
};
pub(crate) use control::GaugeTrace;
pub use control::{
    AckVector, Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, Regime, SenderControl,
    Wire,
};
pub(crate) use late_acks::LateAcks;
pub use pace::Pace;
pub(crate) use relayed::{RelayedReport, Stamps};
pub use scheme::{
    AnnounceOf, Floor, Guarantees, Load, ReportOf, Reported, RouterView, Scheme, SchemeEntry,
};
