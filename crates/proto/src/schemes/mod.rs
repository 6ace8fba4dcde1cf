//! Congestion control schemes: each folder is one scheme, as a pair of a
//! [`SenderControl`](crate::control::SenderControl) and a
//! [`ReceiverFeedback`](crate::control::ReceiverFeedback).

pub mod common;
pub mod ormcc;
pub mod pgmcc;
pub mod tfmcc;
