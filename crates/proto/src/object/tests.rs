//! Whole transfers.

mod basics;
mod crowds;
mod false_reports;
mod faults;
mod given_up;
mod growing;
mod hostile;
mod lengths;
mod limits;
mod members;
mod tree;
pub(super) mod world;
