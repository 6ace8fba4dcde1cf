//! Base types of all faircast crates: time, quantities, identifiers, random streams, trace events.
//!
//! The crate is `no_std`: no clock, thread, socket or hash map with a random order compiles.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Builds a struct whose fields that are named without a value have their default.
#[macro_export]
macro_rules! fresh {
    ($name:ident { $($set:tt)* } $($field:ident),+) => {
        $name { $($set)* $($field: ::core::default::Default::default()),+ }
    };
}

mod client;
mod cx;
mod event;
mod ids;
pub mod math;
mod quantity;
mod rng;
mod seq;
mod text;
mod time;
mod tree;

pub use client::{ClientAct, ClientNote, LinkNote};
pub use cx::{Cx, NullTrace, Trace};
pub use event::{
    BadInput, Checked, CutReason, DropReason, Event, LinkCounters, NodeFaultKind, Shortfall,
    SwitchReason, TimeoutKind,
};
pub use ids::{FlowId, GroupId, LinkId, NodeId};
pub use quantity::{Bitrate, Bytes, ParseQuantityError, Quantity};
pub use rng::{Purpose, Rng};
pub use seq::Seq;
pub use text::{escaped, escaped_lines, is_format};
pub use time::{Duration, Time};
pub use tree::{TREE_LEVELS_MAX, TreeFault, check_heads};
