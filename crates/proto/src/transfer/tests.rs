//! Whole transfers.

mod basics;
mod world;
