//! Streams of bytes and of messages to many receivers, in order and repaired.
//!
//! A stream is a session like any other. Whoever hears it gets what is sent from then on; what
//! was sent before is gone. Over PGM the sender knows nothing of its receivers but what congestion control
//! needs: it repairs what they ask for as long as it has it, and never waits for one that is slower
//! than the scheme's slowest. Over TRAM receivers repair for each other, the sender begins with the first of them, goes
//! as slowly as the slowest, and so loses nothing for who is there; who joins late may also have what is still kept
//! (`late_join = limited`). At its end the sender names those that did not get everything.
//!
//! Packets that are too long for the way vanish. Over PGM the receiver then gets [`Error::BlackHole`] within 10 s, and the
//! sender counts the receiver in [`StreamStatus::starved`]. A lower `mtu` at the sender helps.

mod builder;
mod bytes;
mod messages;
mod packets;
mod receiver;
mod sender;

use std::net::{IpAddr, SocketAddr};

use faircast_base::Shortfall;
use faircast_net::{Live, Target};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::{BlackHole, Machine, ShortReceiver};

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
    /// At a sender over PGM: receivers that have said that no data arrives, since packets are too long for the way; of the
    /// first 64.
    pub starved: u64,
    /// Lengths that arrive where no data does: at a sender those of the last such receiver, at a receiver until data
    /// arrives. Receivers over TRAM do not find that out.
    pub black_hole: Option<BlackHole>,
    /// At a sender that has ended over TRAM: receivers that did not get everything, as far as the tree of repair heads
    /// knows them, of whom there are at most some thousand.
    pub incomplete: Vec<IncompleteReceiver>,
    /// How many more there may be, of whom nothing is known.
    pub unnamed: u64,
    /// Whether it has ended.
    pub ended: bool,
}

/// A receiver of a stream that did not get everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompleteReceiver {
    /// By which it is known for this session.
    pub id: u64,
    /// Where it is; `None` where that is not known.
    pub host: Option<IpAddr>,
    /// Its port there; `None` where only other receivers heard it.
    pub port: Option<u16>,
    /// How it was lost.
    pub reason: Shortfall,
}

impl IncompleteReceiver {
    fn new<M: Machine>(live: &Live<M>, receiver: &ShortReceiver) -> Self {
        let ShortReceiver { id, node, was_member, reason } = *receiver;
        let address = node.filter(|_| was_member).and_then(|node| live.address(node));
        // Others tell no numbers that mean nothing here.
        let told = node.filter(|node| !was_member && node.0 != 0);
        let told = told.map(|node| IpAddr::from(node.0.to_be_bytes()));
        let (host, port) = (address.map(|it| it.ip()).or(told), address.map(|it| it.port()));
        Self { id, host, port, reason }
    }

    /// Its address, as far as it is known, or else its id.
    pub fn label(&self) -> String {
        match (self.host, self.port) {
            (Some(host), Some(port)) => SocketAddr::from((host, port)).to_string(),
            (Some(host), None) => host.to_string(),
            (None, _) => format!("{:016x}", self.id),
        }
    }
}

fn carrier(common: &Common, target: &Target) -> Result<(Carrier, Options), Error> {
    let mut own = OF_TRAM.map(|(key, value)| (key, OptionValue::Text(value.into()))).to_vec();
    if let Target::Unicast(_) = target {
        // Receivers find no head there but the source.
        for key in ["members_max", "source_members_max"] {
            own.push((key, OptionValue::Integer(4096)));
        }
    }
    let (carrier, options) = common.apart()?.0.carrier(&[], &own)?;
    check(&options)?;
    Ok((carrier, options))
}

/// Nobody keeps what was sent long ago.
fn check(options: &Options) -> Result<(), Error> {
    if options.text("late_join") == Some("full") { Err(Error::LateJoin) } else { Ok(()) }
}

/// What streams dictate over TRAM, unless something else is asked for: nobody keeps what was sent long ago, and nobody
/// is sent away for being slow.
const OF_TRAM: [(&str, &str); 2] = [("late_join", "none"), ("pruning", "off")];
