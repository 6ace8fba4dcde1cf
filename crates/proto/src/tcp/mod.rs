//! Background TCP that behaves as ns-2.35's one-way agents do: Reno, NewReno and SACK.
//!
//! Published comparisons of multicast schemes with TCP were made against these agents, so the
//! simulator's TCP must retransmit the same packets at the same moments as they do. What differs
//! from the RFCs is ns-2's doing and is said where it happens. Windows and sequence numbers count
//! packets, a connection opens with a single SYN and without an answer to it, and nothing limits
//! the sender but the congestion window and one fixed maximum.
//!
//! [`end`] makes the two ends; [`OPTIONS`] lists the settings that they share.

mod newreno;
mod receiver;
mod reno;
mod reordering;
mod rtt;
mod sack;
mod scoreboard;
mod sender;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

pub use receiver::TcpReceiver;
pub use sender::TcpSender;
pub use settings::{KernelSettings, WINDOW_MAX};

use alloc::boxed::Box;

use crate::FlowMachine;
use crate::congestion::{Floor, Guarantees, Load};
use crate::options::{OptionSpec, Options};
use crate::transport::{EndSetup, Role};

/// The settings of all flavours.
pub const OPTIONS: &[OptionSpec] = settings::Settings::OPTIONS;

/// How a sender recovers from loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Fast retransmit and fast recovery that ends with the first new acknowledgement
    /// (ns-2: `Agent/TCP/Reno`).
    Reno,
    /// Fast recovery that ends when the whole window is acknowledged (ns-2: `Agent/TCP/Newreno`).
    NewReno,
    /// Recovery led by selective acknowledgements (ns-2: `Agent/TCP/Sack1`).
    Sack,
}

/// One end. The sending one has as its first timeout the moment of its start, the receiving one is there
/// from the beginning. Where `setup` has a size of headers, the SYN and acknowledgements count 40 bytes and
/// 8 more per SACK block, as ns-2 counts; else the real IPv4 and TCP headers count: 40 bytes and the
/// options.
///
/// # Panics
/// The sending end is to send to a group, or the role is both.
pub fn end(flavour: Flavour, role: Role, setup: EndSetup<'_>) -> FlowMachine {
    match role {
        Role::Source(content) => Box::new(TcpSender::new(flavour, setup, content)),
        Role::Receiver => Box::new(TcpReceiver::new(flavour, setup)),
        Role::Both(_) => unreachable!("a connection here has one sending end"),
    }
}

/// What every flavour of TCP guarantees to the network.
pub const GUARANTEES: Guarantees =
    Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };

/// One packet for each retransmission timeout, which doubles up to the greatest one. It is rounded
/// up to the ticks of the clock, and a packet may wait for the random overhead.
fn floor(options: &Options) -> Option<Floor> {
    let settings = settings::Settings::from_options(options);
    let rto = rtt::MAX_RTO.max(settings.initial_rto);
    let every = rto + settings.clock_granularity * 2 + settings.overhead;
    Some(Floor { after: every * 4, every, burst: 1 })
}

/// Each packet is acknowledged at once, those that come twice too.
fn reports_max(_: &Options, load: &Load) -> u64 {
    load.data_packets
}
