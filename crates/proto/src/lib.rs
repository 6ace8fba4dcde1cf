//! Protocols of faircast as pure state machines, driven through [`Machine`]. The crate is `no_std`,
//! so the compiler proves that no protocol reaches the outside world.

#![no_std]

extern crate alloc;
#[macro_use(fresh)]
extern crate faircast_base;
#[cfg(test)]
extern crate std;

/// Methods that forward to a field's method of the same name, or to the content of a box (`boxed`).
#[macro_export]
#[doc(hidden)]
macro_rules! passes {
    (@boxed $me:ident) => { (**$me) };
    (@$half:tt $me:ident) => { $me.$half };
    ($half:tt:) => {};
    ($half:tt: fn $name:ident(&self $(, $arg:ident: $of:ty)*) $(-> $out:ty)?; $($more:tt)*) => {
        fn $name(&self $(, $arg: $of)*) $(-> $out)? {
            $crate::passes!(@$half self).$name($($arg),*)
        }
        $crate::passes! { $half: $($more)* }
    };
    ($half:tt: fn $name:ident(&mut self $(, $arg:ident: $of:ty)*) $(-> $out:ty)?; $($more:tt)*) => {
        fn $name(&mut self $(, $arg: $of)*) $(-> $out)? {
            $crate::passes!(@$half self).$name($($arg),*)
        }
        $crate::passes! { $half: $($more)* }
    };
}

mod black_hole;
pub mod catalog;
pub mod cbr;
pub mod congestion;
pub mod content;
pub mod credit;
pub mod fields;
pub mod forgery;
mod loss_record;
mod machine;
pub mod object;
pub mod options;
pub mod pgm;
mod ranges;
pub mod relay;
pub mod settings;
pub mod stack;
pub mod tcp;
#[cfg(test)]
mod tests;
mod timers;
pub mod tram;
pub mod transport;

#[cfg(test)]
use tests::world;

pub use black_hole::BlackHole;
pub use loss_record::LossRecord;
pub use machine::{
    AppEvent, Datagram, Destination, FlowEnd, FlowEvent, FlowMachine, Interactive, Machine,
    Membership, Parsed, ReceiverInput, ShortReceiver, StreamEvent, StreamInput, Transmit,
};
pub use ranges::RangeSet;

fn keep_last<T>(queue: &mut alloc::collections::VecDeque<T>, max: usize, item: T) {
    if queue.len() >= max {
        queue.pop_front();
    }
    queue.push_back(item);
}
