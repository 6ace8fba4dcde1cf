//! Whole transfers.

mod basics;
mod crowds;
mod faults;
mod growing;
mod hostile;
mod liars;
mod limits;
mod members;
mod world;
