//! The simulator: virtual time, the network between machines, and background traffic.

pub mod cbr;
pub mod tcp;
