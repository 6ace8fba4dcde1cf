//! Whole transfers.

mod basics;
mod crowds;
mod faults;
mod hostile;
mod members;
mod world;
