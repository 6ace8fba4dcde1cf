//! Policies of credit relays: the branch that sets the pace, and the packets that slower branches
//! miss (src: credits s3).
//!
//! A relay has a queue of equal size for each branch of a session, and its credit grants packets to
//! the node above. A [`Policy`] reads the state of the relay through [`View`]. Policies use no
//! clock, randomness or floating point: results are equal on all machines. [`program!`] makes a
//! policy a WebAssembly program, which relays fetch for a session.

#![no_std]

mod policies;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod program;
#[cfg(test)]
mod tests;

pub use policies::{
    BestPath, BoundedLag, Deadline, LayeredDrop, Quantile, WeightedUtility, WorstPath,
};

/// State of a session at a relay. Branches are numbered from 0 to [`branches`](Self::branches) - 1.
pub trait View {
    /// Returns the number of branches, at least 1.
    fn branches(&self) -> u32;

    /// Returns FC: packets that a branch has forwarded or missed since the session's start here.
    fn forwarded(&self, branch: u32) -> i64;

    /// Returns FC of the branch of the last credit, at the time of the credit.
    fn reported(&self) -> i64;

    /// Returns the packets queued for a branch.
    fn queued(&self, branch: u32) -> u32;

    /// Returns B: the buffer of each branch in packets.
    fn buffer(&self) -> u32;

    /// Returns the number of receivers below a branch, as far as reported; at least 1.
    fn weight(&self, branch: u32) -> u32;

    /// Returns the waiting time of a branch's first packet in milliseconds; 0 for an empty queue.
    fn waited_ms(&self, branch: u32) -> u32;

    /// Returns M: packets for one credit, at least 1.
    fn unit(&self) -> u32;
}

/// Policy of a session at relays: the branch that sets the pace, and the packets that others miss.
pub trait Policy {
    /// True if the policy may drop packets. Otherwise `accepts` and `discards` are never called.
    const DROPS: bool = true;

    /// Returns the branch whose state is reported as a credit now; `None` for no credit yet.
    fn credit(&mut self, view: &impl View) -> Option<u32>;

    /// True if a packet of this layer is queued; 0 without layers. Called if the buffer has room.
    fn accepts(&mut self, _view: &impl View, _branch: u32, _layer: u8) -> bool {
        true
    }

    /// Returns the number of the oldest packets of a branch to drop.
    fn discards(&mut self, _view: &impl View, _branch: u32) -> u32 {
        0
    }

    /// Returns the interval of calls without an event, in milliseconds; `None` for no such calls.
    fn interval_ms(&self) -> Option<u32> {
        None
    }
}

/// Makes a policy a program, from its type and its constructor, which takes the parameter of the
/// session. On targets other than `wasm32-unknown-unknown`, the macro only checks the types.
///
/// ```
/// use faircast_relay_sdk::{Quantile, program};
///
/// program!(Quantile, |percent| Quantile { percent });
/// ```
#[macro_export]
macro_rules! program {
    ($policy:ty, $make:expr) => {
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn(u32) -> $policy = $make;

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "hosts call these by their names")]
        const _: () = {
            static PROGRAM: $crate::program::Exported<$policy> = $crate::program::Exported::new();

            #[unsafe(no_mangle)]
            extern "C" fn faircast_policy_1(parameter: u32) {
                let make: fn(u32) -> $policy = $make;
                PROGRAM.start(make(parameter));
            }

            #[unsafe(no_mangle)]
            extern "C" fn credit() -> i32 {
                PROGRAM.credit()
            }

            #[unsafe(no_mangle)]
            extern "C" fn accepts(branch: u32, layer: u32) -> u32 {
                PROGRAM.accepts(branch, layer)
            }

            #[unsafe(no_mangle)]
            extern "C" fn discards(branch: u32) -> u32 {
                PROGRAM.discards(branch)
            }

            #[unsafe(no_mangle)]
            extern "C" fn interval_ms() -> u32 {
                PROGRAM.interval_ms()
            }

            #[unsafe(no_mangle)]
            extern "C" fn drops() -> u32 {
                PROGRAM.drops()
            }
        };
    };
}

fn once_due(view: &impl View, branch: Option<u32>) -> Option<u32> {
    branch.filter(|branch| view.forwarded(*branch) - view.reported() >= i64::from(view.unit()))
}
