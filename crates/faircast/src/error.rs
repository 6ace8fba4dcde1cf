//! Errors of senders and receivers, in words for people.

use std::io;
use std::path::PathBuf;

use faircast_files::FilesError;
use faircast_net::NetError;
use faircast_proto::BlackHole;
use faircast_proto::options::OptionError;
use faircast_proto::pgm::negotiation::SchemeMismatch;
use faircast_seal::NoRandomness;

use crate::RepairTreeError;

/// Why an end could not begin or go on. Each names what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Sockets could not be opened, or the network not be used.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Files cannot be sent, or the folder not be used.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A setting of the scheme is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The system gives no randomness to seal with.
    #[error(transparent)]
    Seal(#[from] NoRandomness),
    /// A program of a session would be refused.
    #[error("{0}")]
    Program(String),
    /// Programs of sessions cannot be run.
    #[error(
        "this faircast was built without programs of sessions: build it with --features programs"
    )]
    WithoutPrograms,
    /// There is no such scheme.
    #[error("there is no scheme \"{name}\"; there are {known}")]
    Scheme {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The two ends do not speak the same scheme.
    #[error("{0}")]
    OtherScheme(SchemeMismatch),
    /// So much is set of the scheme that receivers cannot be told of it.
    #[error(
        "the settings of the scheme do not fit into the {max} bytes that receivers can be told of \
         them: leave some of them as they are, or choose a profile"
    )]
    Settings {
        /// Bytes that fit.
        max: usize,
    },
    /// A session goes through relays and has no name there.
    #[error("a session through relays needs a name at which senders and receivers meet")]
    ViaWithoutMeeting,
    /// Of a stream nobody keeps what was sent long ago.
    #[error(
        "late_join = \"full\": a stream is not kept, so nobody can have all of it who joins late; \
         allowed: \"none\", \"limited\""
    )]
    LateJoin,
    /// The largest packet is too small, or larger than UDP can take.
    #[error("packets of {bytes} bytes are not possible; expected {min} to {max}")]
    Mtu {
        /// What was asked for.
        bytes: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A message is longer than what fits into one packet.
    #[error(
        "a message of {bytes} bytes; at most {max} fit into a packet: cut it, or raise the MTU"
    )]
    MessageTooLong {
        /// Bytes of the message.
        bytes: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// Nobody is removed for being slow where a scheme steers TRAM.
    #[error("{scheme} serves nobody later for being slow; allowed: to wait, or other schemes")]
    SlowPolicy {
        /// The scheme.
        scheme: String,
    },
    /// A static tree cannot be used.
    #[error(transparent)]
    Tree(#[from] RepairTreeError),
    /// Where there is no multicast receivers do not find each other.
    #[error("a tree needs a group: receivers that hear no multicast do not find their heads")]
    TreeWithoutGroup,
    /// A receiver is to be a head, and is not.
    #[error(
        "the tree has `{name}` for the head of `{below}`, and it is said never to repair for \
         others (head = \"never\"); allowed: \"eager\", \"reluctant\""
    )]
    NeverHead {
        /// The receiver.
        name: String,
        /// One whose head it is to be.
        below: String,
    },
    /// A thread cannot be started.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
    /// A trace cannot be written.
    #[error("{path}: the trace cannot be written: {error}", path = path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Packets were lost for good: they were out of the sender's window before they could be
    /// repaired.
    #[error("{packets} packets were lost for good; what follows comes after a gap")]
    Lost {
        /// How many.
        packets: u32,
    },
    /// No data of the stream arrives, since packets are too long for the way. Said once until data arrives; the stream
    /// goes on.
    #[error("{0}")]
    BlackHole(BlackHole),
    /// The application takes what was received too slowly, and there is no way to tell the sender.
    #[error("{bytes} bytes wait to be read, which is too much; read faster, or send more slowly")]
    Overrun {
        /// How many wait.
        bytes: u64,
    },
    /// The other side fell silent or went away without an end.
    #[error("the sender is gone: nothing was heard from it for too long")]
    Gone,
    /// The end was closed, here.
    #[error("this end was closed")]
    Closed,
}
