//! Rate control of the source: when the next packet leaves (src: tram s3.4, s3.5).
//!
//! Input: packets sent, acknowledgements of all members, and the source's window (H_a - N), which
//! [`window`](super::window) and [`membership`](super::membership) determine. Output: a permit for
//! each packet, and the rate at which heads repair. Slow start, steady state, the closed window and
//! the pause between packets are in `control`. A scheme can take the place of TRAM's own control:
//! `steered`. Both are a [`Controller`].

mod control;
mod controller;
mod pacer;
mod slow_start;
mod steered;
mod throughput;

pub(super) use control::RateControl;
pub(super) use controller::{Controller, Progress, SentPacket, Window};
pub(super) use steered::Steered;
