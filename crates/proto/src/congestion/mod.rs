//! Congestion control: schemes, each a pair of [`SenderControl`] and [`ReceiverFeedback`].

mod bounds;
mod coded;
pub mod common;
mod control;
mod entry;
mod gauge_trace;
mod guarantees;
mod late_acks;
pub mod open;
pub mod ormcc;
mod pace;
pub mod pgmcc;
mod relayed;
mod scheme;
pub mod tfmcc;

pub use bounds::Bounds;
pub use coded::{
    BoxControl, BoxFeedback, ErasedControl, ErasedFeedback, ReportFacts, SchemeOptions,
    bounded_control, boxed_control, boxed_feedback,
};
pub use control::{
    AckVector, Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, Regime, SenderControl,
    Wire,
};
pub use entry::{ControlOf, FeedbackOf, SchemeEntry};
pub(crate) use gauge_trace::GaugeTrace;
pub use guarantees::{Floor, Guarantees, Load};
pub(crate) use late_acks::LateAcks;
pub use pace::Pace;
pub(crate) use relayed::{RelayedReport, Stamps};
pub use scheme::{AnnounceOf, ReportOf, Reported, RouterView, Scheme};
