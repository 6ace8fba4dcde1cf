//! Background TCP like ns-2.35's one-way agents: Reno, NewReno and SACK.
//!
//! The simulator's TCP retransmits as the agents of published comparisons did; differences from
//! RFCs are noted at their place. Windows and sequence numbers count packets, a connection opens
//! with a single unanswered SYN, and only the congestion window and a fixed maximum limit the
//! sender.

mod receiver;
mod recovery;
mod reno;
mod reordering;
mod sack;
mod sender;
mod settings;
#[cfg(test)]
mod tests;
mod timer;
mod wire;

pub use receiver::TcpReceiver;
pub use sender::TcpSender;
pub use settings::{KernelSettings, WINDOW_MAX};

use alloc::boxed::Box;

use crate::FlowMachine;
use crate::congestion::{Floor, Guarantees, Load};
use crate::options::{OptionSpec, Options};
use crate::transport::{EndSetup, Role};

/// Settings of all flavours.
pub const OPTIONS: &[OptionSpec] = settings::Settings::OPTIONS;

/// Loss recovery of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Fast retransmit; fast recovery until a new acknowledgement (ns-2: `Agent/TCP/Reno`).
    Reno,
    /// Fast recovery until the whole window is acknowledged (ns-2: `Agent/TCP/Newreno`).
    NewReno,
    /// Recovery by selective acknowledgements (ns-2: `Agent/TCP/Sack1`).
    Sack,
}

/// Makes one end. With a header size in `setup`, SYN and acknowledgements count 40 bytes plus 8 per
/// SACK block, as in ns-2; otherwise 40 plus options.
///
/// # Panics
/// The sender's destination is a group, or the role is both.
pub fn end(flavour: Flavour, role: Role, setup: EndSetup<'_>) -> FlowMachine {
    match role {
        Role::Source(content) => Box::new(TcpSender::new(flavour, setup, content)),
        Role::Receiver => Box::new(TcpReceiver::new(flavour, setup)),
        Role::Both(_) => unreachable!("a connection here has one sending end"),
    }
}

/// Guarantees of every TCP flavour to the network.
pub const GUARANTEES: Guarantees =
    Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };

/// Returns the floor: one packet per timeout, which doubles, in ticks, plus the random overhead.
fn floor(options: &Options) -> Option<Floor> {
    let settings = settings::Settings::from_options(options);
    let longest = timer::MAX_RTO.max(settings.initial_rto);
    let every = longest + settings.clock_granularity * 2 + settings.overhead;
    Some(Floor { after: every * 4, every, burst: 1 })
}

/// Each packet is acknowledged at once, duplicates too.
fn reports_max(_: &Options, load: &Load) -> u64 {
    load.data_packets
}
