//! Policies of credit relays: which branch of a tree decides how much a relay asks for, and what a branch that cannot
//! follow does without (src: credits s3).
//!
//! A relay has a queue for each branch of a session, all of the same size, and tells the node above how many packets it
//! may send: its credit. The paper's rule waits for the slowest branch, which suits those who need every byte. Others are
//! programs of the session's own choice: each is a type here that implements [`Policy`], and sees of the relay what
//! [`View`] shows. Policies have no clock, no randomness and no floating point, so that one gives the same everywhere.
//!
//! [`program!`] makes a policy a program in WebAssembly, which relays fetch with the packets of a session.

#![no_std]

mod policies;
#[cfg(target_arch = "wasm32")]
pub mod program;
#[cfg(test)]
mod tests;

pub use policies::{
    BestPath, BoundedLag, Deadline, LayeredDrop, Quantile, WeightedUtility, WorstPath,
};

/// What a policy sees of a session at a relay. Branches are numbered from 0 to below [`branches`](Self::branches).
pub trait View {
    /// How many branches there are, 1 at least.
    fn branches(&self) -> u32;

    /// Packets of the session that a branch has forwarded or done without, since the session came to the relay (FC).
    fn forwarded(&self, branch: u32) -> i64;

    /// The same of the branch that the last credit was about, at that time.
    fn reported(&self) -> i64;

    /// Packets that wait for a branch.
    fn queued(&self, branch: u32) -> u32;

    /// Packets that may wait for each branch (B).
    fn buffer(&self) -> u32;

    /// Receivers behind a branch, as far as they have said so; 1 at least.
    fn weight(&self, branch: u32) -> u32;

    /// For how long the first packet of a branch has waited, in milliseconds; 0 where none waits.
    fn waited_ms(&self, branch: u32) -> u32;

    /// Credits are sent for so many packets at once (M), 1 at least.
    fn unit(&self) -> u32;
}

/// Which branch sets the pace of a session, and what happens at others.
pub trait Policy {
    /// Whether it ever has a branch do without a packet. Where it does not, [`accepts`](Self::accepts) and
    /// [`discards`](Self::discards) are not asked, which is faster.
    const DROPS: bool = true;

    /// The branch whose state goes upward as a credit now; `None` where there is no reason for one yet.
    fn credit(&mut self, view: &impl View) -> Option<u32>;

    /// Whether a packet of this layer (0 for data that has no layers) is to wait for a branch in which there is room.
    /// Where there is no room it is never asked.
    fn accepts(&mut self, _view: &impl View, _branch: u32, _layer: u8) -> bool {
        true
    }

    /// How many of the oldest packets of a branch are not to be sent any more.
    fn discards(&mut self, _view: &impl View, _branch: u32) -> u32 {
        0
    }

    /// How often it wants to look though nothing has happened, in milliseconds.
    fn interval_ms(&self) -> Option<u32> {
        None
    }
}

/// Makes a policy a program: its type, and how it is made of the number that the source of a session gives it. For every
/// platform but `wasm32-unknown-unknown` this checks no more than the types.
///
/// ```
/// faircast_relay_sdk::program!(faircast_relay_sdk::Quantile, |percent| faircast_relay_sdk::Quantile { percent });
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

/// The branch with the least of something.
fn least<V: View>(
    view: &V,
    branches: impl Iterator<Item = u32>,
    of: impl Fn(&V, u32) -> i64,
) -> Option<u32> {
    branches.min_by_key(|branch| of(view, *branch))
}

/// That branch, where it has forwarded as many packets as one credit is for.
fn once_due(view: &impl View, branch: Option<u32>) -> Option<u32> {
    branch.filter(|branch| view.forwarded(*branch) - view.reported() >= i64::from(view.unit()))
}
