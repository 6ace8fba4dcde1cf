//! Background TCP that behaves as ns-2.35's one-way agents do: Reno, NewReno and SACK.
//!
//! Published comparisons of multicast schemes with TCP were made against these agents, so the
//! simulator's TCP must retransmit the same packets at the same moments as they do. What differs
//! from the RFCs is ns-2's doing and is said where it happens. Windows and sequence numbers count
//! packets, a connection opens with a single SYN and without an answer to it, and nothing limits
//! the sender but the congestion window and one fixed maximum.
//!
//! [`sender`] and [`receiver`] make the two ends; [`OPTIONS`] lists the settings that they share.

mod guarantees;
mod newreno;
mod ranges;
mod receiver;
mod reno;
mod rtt;
mod sack;
mod scoreboard;
mod sender;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

pub use guarantees::GUARANTEES;
pub use receiver::TcpReceiver;
pub use sender::TcpSender;
pub use settings::{KERNEL_OPTIONS, OPTIONS, WINDOW_MAX};

use faircast_base::{FlowId, NodeId, Time};
use faircast_proto::content::Content;
use faircast_proto::options::Options;

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

impl Flavour {
    /// The flavour behind a protocol's name in a scenario: `tcp-reno`, `tcp-newreno`, `tcp-sack`.
    pub fn from_protocol(name: &str) -> Option<Self> {
        match name {
            "tcp-reno" => Some(Self::Reno),
            "tcp-newreno" => Some(Self::NewReno),
            "tcp-sack" => Some(Self::Sack),
            _ => None,
        }
    }
}

/// What both ends of a connection are made from.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The flow, which is written into every segment.
    pub flow: FlowId,
    /// The node of the other end.
    pub peer: NodeId,
    /// When the sender starts; the receiver is there from the beginning.
    pub start: Time,
    /// Payload bytes of one data packet, at least 1.
    pub payload: u32,
    /// Bytes that a data packet adds on the wire. Where given, the SYN and acknowledgements count
    /// 40 bytes and 8 more per SACK block, as ns-2 counts. `None` counts the real IPv4 and TCP
    /// headers: 40 bytes and the options.
    pub header: Option<u32>,
    /// The settings, checked against [`OPTIONS`].
    pub options: &'a Options,
}

/// The sending end. Its first timeout is the moment of its start.
pub fn sender(flavour: Flavour, setup: Setup<'_>, content: Box<dyn Content>) -> TcpSender {
    TcpSender::new(flavour, setup, content)
}

/// The receiving end. Only a receiver for [`Flavour::Sack`] sends SACK blocks.
pub fn receiver(flavour: Flavour, setup: Setup<'_>) -> TcpReceiver {
    TcpReceiver::new(flavour, setup)
}
