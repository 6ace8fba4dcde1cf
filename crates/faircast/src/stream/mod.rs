//! Streams of bytes and of messages to many receivers, in order and repaired.
//!
//! A stream is a session like any other. Whoever hears it gets what is sent from then on; what
//! was sent before is gone. Over PGM the sender knows nothing of its receivers but what congestion control
//! needs: it repairs what they ask for as long as it has it, and never waits for one that is slower
//! than the scheme's slowest. Over TRAM receivers repair for each other, the sender begins with the first of them, goes
//! as slowly as the slowest, and so loses nothing for who is there; who joins late may also have what is still kept
//! (`late_join = limited`).

mod builder;
mod bytes;
mod messages;
mod packets;
mod receiver;
mod sender;

use faircast_net::Target;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::tram;

use crate::Error;
use crate::common::Common;
use crate::ends::Carrier;

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

/// What carries the stream to `target`, and its settings.
fn carrier(common: &Common, target: &Target) -> Result<(Carrier, Options), Error> {
    let mut own = OF_TRAM.map(|(key, value)| (key, OptionValue::Text(value.into()))).to_vec();
    if let Target::Unicast(_) = target {
        // Receivers find no head there but the source.
        for key in ["members_max", "source_members_max"] {
            own.push((key, OptionValue::Integer(4096)));
        }
    }
    common.refuse_steered()?;
    let (carrier, options) = common.carrier(&[], &own)?;
    check(&options)?;
    Ok((carrier, options))
}

/// The settings of TRAM at a receiver that has these of its own.
fn of_receiver(options: &Options) -> Result<Options, Error> {
    let own = OF_TRAM.map(|(key, value)| (key.to_string(), OptionValue::Text(value.into())));
    let options = options.under(&own, tram::OPTIONS);
    check(&options)?;
    Ok(options)
}

fn check(options: &Options) -> Result<(), Error> {
    if options.text("late_join") == Some("full") { Err(Error::LateJoin) } else { Ok(()) }
}

/// What streams dictate over TRAM, unless something else is asked for: nobody keeps what was sent long ago, and nobody
/// is sent away for being slow.
const OF_TRAM: [(&str, &str); 2] = [("late_join", "none"), ("pruning", "off")];
