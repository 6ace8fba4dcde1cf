//! Streams of bytes and of messages to many receivers, in order and repaired.
//!
//! A stream is a PGM session like any other. Whoever hears it gets what is sent from then on; what
//! was sent before is gone. The sender knows nothing of its receivers but what congestion control
//! needs: it repairs what they ask for as long as it has it, and never waits for one that is slower
//! than the scheme's slowest.

mod builder;
mod bytes;
mod messages;
mod packets;
mod receiver;
mod sender;

pub use builder::{StreamReceiverBuilder, StreamSenderBuilder};
pub use bytes::{ByteReceiver, ByteSender};
pub use messages::{MessageReceiver, MessageSender};

/// How a stream stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// Bytes that were sent, or handed to the application.
    pub bytes: u64,
    /// Packets that were sent, or handed to the application.
    pub packets: u64,
    /// Packets that were lost for good, at a receiver.
    pub lost: u64,
    /// What its sockets have done.
    pub traffic: faircast_net::Counters,
    /// What was refused for want of the right key.
    pub refusals: faircast_seal::Refusals,
    /// Another end with another key, heard last.
    pub mismatch: Option<crate::KeyMismatch>,
    /// At a sender: receivers that have said that they speak another scheme, and so take nothing;
    /// of the first 64.
    pub mismatched: u64,
    /// Who speaks what, where the two ends do not speak the same: at a sender the last of such
    /// receivers, at a receiver why it has ended.
    pub scheme_mismatch: Option<crate::SchemeMismatch>,
    /// Whether it has ended.
    pub ended: bool,
}
