//! Errors of senders and receivers.

use std::io;
use std::path::PathBuf;

use faircast_files::FilesError;
use faircast_net::NetError;
use faircast_proto::BlackHole;
use faircast_proto::options::OptionError;
use faircast_proto::pgm::negotiation::SchemeMismatch;
use faircast_seal::NoRandomness;

/// Error of an end; each names the culprit, the value and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of an error describes the variant")]
pub enum Error {
    /// Sockets cannot be opened, or the network cannot be used.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Files cannot be sent, or the folder cannot be used.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// An option of the scheme is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The system has no randomness for sealing.
    #[error(transparent)]
    Seal(#[from] NoRandomness),
    /// A program of a session would be refused.
    #[error("{0}")]
    Program(String),
    #[error(
        "this faircast was built without programs of sessions: build it with --features programs"
    )]
    WithoutPrograms,
    /// A setting is wrong, or does not fit others.
    #[error("{0}")]
    Setting(String),
    /// The two ends speak different schemes.
    #[error("{0}")]
    OtherScheme(SchemeMismatch),
    #[error(
        "a message of {bytes} bytes; at most {max} fit into a packet: cut it, or raise the MTU"
    )]
    MessageTooLong { bytes: usize, max: usize },
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
    #[error("{path}: the trace cannot be written: {error}", path = path.display())]
    Trace { path: PathBuf, error: io::Error },
    /// Packets were lost for good: they left the sender's window before their repair.
    #[error("{packets} packets were lost for good; what follows comes after a gap")]
    Lost { packets: u32 },
    /// Packets exceed the path MTU, so that no data arrives. Reported once; the stream goes on.
    #[error("{0}")]
    BlackHole(BlackHole),
    /// The application reads too slowly, and the protocol cannot slow down the sender.
    #[error("{bytes} bytes wait to be read, which is too much; read faster, or send more slowly")]
    Overrun { bytes: u64 },
    #[error("the sender is gone: nothing was heard from it for too long")]
    Gone,
    #[error("this end was closed")]
    Closed,
}
