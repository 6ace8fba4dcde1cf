//! Ordered and reliable streams of bytes and messages to many receivers.
//!
//! A stream has no history: a receiver gets what is sent after it joins. Over PGM the sender
//! repairs what its window keeps, and never waits for a receiver slower than the scheme's slowest.
//! Over TRAM receivers repair for each other, and the sender slows down to the slowest, so that
//! present receivers lose nothing. At the end the sender lists receivers that did not get
//! everything.
//!
//! Packets longer than the path MTU vanish. Over PGM the receiver then gets [`Error::BlackHole`]
//! within 10 s, and the sender counts it in [`StreamStatus::starved`]. The remedy is a lower `mtu`.

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

use crate::common::{Common, tree_without_heads};
use crate::ends::Carrier;
use crate::envelope::Watched;
use crate::{Error, Result};

pub use builder::{StreamReceiverBuilder, StreamSenderBuilder};
pub use bytes::{ByteReceiver, ByteSender};
pub use messages::{MessageReceiver, MessageSender};

/// Status of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// Bytes sent, or delivered to the application.
    pub bytes: u64,
    /// Packets sent, or delivered to the application.
    pub packets: u64,
    /// Packets lost for good, at a receiver.
    pub lost: u64,
    /// Counters of the sockets.
    pub traffic: faircast_net::Counters,
    /// Counts of packets refused for lack of the right key.
    pub refusals: faircast_seal::Refusals,
    /// Last other end with another key.
    pub mismatch: Option<crate::KeyMismatch>,
    /// At a sender: receivers that reported another scheme, and so get nothing; of the first 64.
    pub mismatched: u64,
    /// Scheme mismatch: at a sender of the last such receiver, at a receiver the reason of its end.
    pub scheme_mismatch: Option<crate::SchemeMismatch>,
    /// At a sender over PGM: receivers without data, as packets exceed the path MTU; of 64.
    pub starved: u64,
    /// Packet lengths that arrive without data, of this or the last such receiver. PGM only.
    pub black_hole: Option<BlackHole>,
    /// At a sender over TRAM, at the end: receivers that lack data, some thousand at most.
    pub incomplete: Vec<IncompleteReceiver>,
    /// Most further receivers that may lack data, unknown to the sender.
    pub unnamed: u64,
    /// True if the stream has ended.
    pub ended: bool,
}

impl StreamStatus {
    fn observe<M: Machine>(&mut self, live: &Live<M>, watched: &Watched, ended: bool) {
        let incidents = *watched.lock();
        self.traffic = *live.counters();
        self.refusals = incidents.refusals;
        self.mismatch = incidents.mismatch;
        self.ended = ended;
    }
}

/// Receiver of a stream that did not get everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompleteReceiver {
    /// Identifier in this session.
    pub id: u64,
    /// Host of the receiver; `None` if unknown.
    pub host: Option<IpAddr>,
    /// Port of the receiver; `None` if the receiver is known only from other receivers.
    pub port: Option<u16>,
    /// Reason of the loss.
    pub reason: Shortfall,
}

impl IncompleteReceiver {
    fn new<M: Machine>(live: &Live<M>, receiver: &ShortReceiver) -> Self {
        let ShortReceiver { id, node, was_member, reason } = *receiver;
        let address = node.filter(|_| was_member).and_then(|node| live.address(node));
        let reported = node.filter(|node| !was_member && node.0 != 0);
        let reported = reported.map(|node| IpAddr::from(node.0.to_be_bytes()));
        let host = address.map(|address| address.ip()).or(reported);
        let port = address.map(|address| address.port());
        Self { id, host, port, reason }
    }

    /// Returns the address as far as known, or else the id.
    pub fn label(&self) -> String {
        match (self.host, self.port) {
            (Some(host), Some(port)) => SocketAddr::from((host, port)).to_string(),
            (Some(host), None) => host.to_string(),
            (None, _) => format!("{:016x}", self.id),
        }
    }
}

fn carrier(common: &Common, target: &Target) -> Result<(Carrier, Options)> {
    let mut own = OF_TRAM.map(|(key, value)| (key, OptionValue::Text(value.into()))).to_vec();
    own.extend(tree_without_heads(target));
    let (carrier, options) = common.split_credits()?.0.carrier(&[], &own)?;
    check(&options)?;
    Ok((carrier, options))
}

fn check(options: &Options) -> Result {
    if options.text("late_join") != Some("full") {
        return Ok(());
    }
    let text = "late_join = \"full\": a stream is not kept, so nobody can have all of it who joins late; allowed: \
                \"none\", \"limited\"";
    Err(Error::Setting(text.to_string()))
}

/// Default options of streams over TRAM: no history, and no pruning of slow receivers.
const OF_TRAM: [(&str, &str); 2] = [("late_join", "none"), ("pruning", "off")];
