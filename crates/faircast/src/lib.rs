//! Reliable multicast that shares the network fairly: files, byte streams and messages from one
//! sender to many receivers, over UDP multicast or unicast.
//!
//! A session has one sender and any number of receivers. Lost packets are repaired, and the sender
//! is no faster than TCP would be to its slowest receiver. A [`GroupKey`] encrypts and
//! authenticates all packets. The data path runs in its own thread, so the types work with any
//! async runtime.
//!
//! | | sends | receives |
//! | --- | --- | --- |
//! | files and folders | [`Sender`] | [`Receiver`] |
//! | a stream of bytes | [`ByteSender`] | [`ByteReceiver`] |
//! | messages | [`MessageSender`] | [`MessageReceiver`] |
//!
//! ```no_run
//! use faircast::{Listen, Multicast, ReceiveOutcome, Receiver, Sender, Target};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let group = Multicast::new("239.192.7.1:7500".parse()?);
//!
//! // On some machines:
//! let listen = Listen::Multicast(group.clone());
//! let mut receiver = Receiver::builder(listen, "in").once(true).receive()?;
//! while let Some(received) = receiver.next().await {
//!     if let ReceiveOutcome::Complete { files } = received.outcome {
//!         println!("{} files", files.len());
//!     }
//! }
//!
//! // On one of the same network:
//! let mut sender = Sender::builder(Target::Multicast(group)).wait_for(3).send(&["photos"])?;
//! let last = sender.finish().await?;
//! assert!(last.succeeded(), "who has it not: {:?}", last.members);
//! # Ok(())
//! # }
//! ```
//!
//! Reading order: `send` and `receive`, `stream`, `session` (thread of an end), `envelope` (keys).

pub mod check;
pub mod groups;

mod common;
mod destination;
mod ends;
mod envelope;
mod error;
mod log;
mod programs;
mod receive;
mod relay;
mod send;
mod session;
mod status;
mod stream;
mod trace;
mod tree;
mod watched_store;

pub use envelope::KeyMismatch;
pub use error::Error;
pub use faircast_base::{Bitrate, Bytes, Duration, Shortfall};
pub use faircast_files::{
    CommandOptions, DeviceOptions, FileHash, FilesError, Links, PIPE_NAME, PipeSupply, Scan,
    ScanOptions, ScanTotals, Skip, Skipped, SupplyHandle, Warning, clean, shown, shown_path,
};
pub use faircast_hop::{
    ConnectionStats, Down, NodeLimits, NodeStatus, PeerStatus, SlowLink, UplinkState,
};
pub use faircast_net::{
    Counters, Interface, Listen, Multicast, NetError, RelayAbove, RelayReport, SocketSettings,
    Target, Upstream,
};
pub use faircast_proto::BlackHole;
pub use faircast_proto::catalog::{DEFAULT_SCHEME, SCHEMES, SchemeEntry, scheme};
pub use faircast_proto::credit::{PROGRAM_BYTES_MAX, ProgramHost};
pub use faircast_proto::object::{
    Cause, Fec, Limit, MemberState, ObjectStatus, PacketCounts, PathLimit, ReceiverFailure,
    SlowPolicy, Stage,
};
pub use faircast_proto::options::OptionValue;
pub use faircast_proto::pgm::negotiation::SchemeMismatch;
pub use faircast_seal::{
    Exposure, GroupKey, KeyError, KeyHint, KeyId, NoRandomness, Refusals, RelaySecret,
};
pub use programs::{
    ProgramFacts, RUNS_PROGRAMS, check_program, new_signing_key, program_host, sign_program,
};
pub use receive::{Receiver, ReceiverBuilder};
pub use relay::{RelayBuilder, RelayServer, RelayStatus};
pub use send::{Sender, SenderBuilder};
pub use status::{
    Incoming, Member, ReceiveOutcome, ReceiveStatus, Received, ReceivedFile, SENDER, Seat,
    SendStatus, StaysFor,
};
pub use stream::{
    ByteReceiver, ByteSender, IncompleteReceiver, MessageReceiver, MessageSender,
    StreamReceiverBuilder, StreamSenderBuilder, StreamStatus,
};
pub use tree::RepairTree;

type Result<T = (), E = Error> = std::result::Result<T, E>;
