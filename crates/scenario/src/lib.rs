//! The scenario language: a topology, what runs on it, and for how long.

mod model;

pub use model::{Data, Flow, Join, LinkSpec, Node, Program, Scenario};
