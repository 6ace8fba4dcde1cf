//! Configuration of the two ends of a transfer at their start.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use faircast_base::{Bitrate, Duration, NodeId, Time};

use super::{Store, Supply};
use crate::options::Options;
use crate::pgm::DATA_PORT;
use crate::pgm::wire::{Nla, Tsi};
use crate::tram::GivenHead;

/// Whether losses are repaired by parity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fec {
    /// Parity where it repairs more than sending again would: where receivers lost different
    /// packets of a block. The default.
    Auto,
    /// Lost packets are sent again, and nothing else.
    Off,
    /// As `Auto`, and this share of parity, above 0 and at most 1, with every block unasked.
    Ratio(f64),
}

/// Policy for a receiver that cannot keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPolicy {
    /// The group waits for it. The default.
    Wait,
    /// Where the group would go slower than this for more than some seconds, who limits it is told
    /// so and served after the others.
    DropBelow(Bitrate),
}

/// Setup of a sending end.
pub struct ObjectSourceSetup<'a> {
    /// The node that it runs on.
    pub node: NodeId,
    /// The group that it sends to.
    pub group: Nla,
    /// Its session.
    pub tsi: Tsi,
    /// The data-destination port of PGM; 7500 where nothing else is said.
    pub data_port: u16,
    /// When it begins.
    pub start: Time,
    /// Object to send.
    pub supply: Box<dyn Supply>,
    /// Bytes of payload of a symbol; even, 2 to 65408.
    pub symbol_bytes: u16,
    /// Whether losses are repaired by parity.
    pub fec: Fec,
    /// Content is sent once so many receivers have the manifest, or once
    /// [`ObjectSourceInput::Begin`](super::ObjectSourceInput::Begin) comes. Whoever comes later is served too.
    pub wait_for: u32,
    /// Silence after which a receiver counts as lost.
    pub give_up: Duration,
    /// Policy for slow receivers.
    pub slow: SlowPolicy,
    /// Names of the receivers to wait for at the end. If empty, the source waits for the members at
    /// the beginning of content.
    pub names: BTreeSet<String>,
    /// Time without progress after which a member that speaks is given up; `None` for never.
    pub stall_max: Option<Duration>,
    /// Bytes that the driver adds to each packet, for reported lengths.
    pub headers: u32,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

impl<'a> ObjectSourceSetup<'a> {
    /// A source of `supply` in symbols of `symbol_bytes` that begins at once and waits for one receiver,
    /// with parity where it helps; who is silent for 20 s counts as lost, and nobody is deferred.
    pub fn new(
        node: NodeId,
        group: Nla,
        tsi: Tsi,
        supply: Box<dyn Supply>,
        symbol_bytes: u16,
        options: &'a Options,
    ) -> Self {
        Self {
            node,
            group,
            tsi,
            data_port: DATA_PORT,
            start: Time::ZERO,
            supply,
            symbol_bytes,
            fec: Fec::Auto,
            wait_for: 1,
            give_up: Duration::from_secs(20),
            slow: SlowPolicy::Wait,
            names: BTreeSet::new(),
            stall_max: None,
            headers: 0,
            options,
        }
    }
}

/// Setup of a receiving end.
pub struct ObjectReceiverSetup<'a> {
    /// The node that it runs on: who it is in the scheme's reports. No two receivers of a group
    /// have the same.
    pub node: NodeId,
    /// The group that it hears.
    pub group: Nla,
    /// The session that it hears.
    pub tsi: Tsi,
    /// The data-destination port of PGM; 7500 where nothing else is said.
    pub data_port: u16,
    /// When it joins.
    pub start: Time,
    /// Where it puts what comes.
    pub store: Box<dyn Store>,
    /// By which the source knows it; random.
    pub id: u64,
    /// Its name for people: at most 64 bytes of it are told.
    pub name: String,
    /// Over TRAM: the repair head that it is to have at first.
    pub head: Option<GivenHead>,
    /// Greatest rate that the receiver asks its source for; `None` for no limit.
    pub limit: Option<Bitrate>,
    /// Bytes that the driver adds to each packet, for reported lengths.
    pub headers: u32,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

impl<'a> ObjectReceiverSetup<'a> {
    /// A receiver that joins at once and has no name; the source knows it by its node.
    pub fn new(
        node: NodeId,
        group: Nla,
        tsi: Tsi,
        store: Box<dyn Store>,
        options: &'a Options,
    ) -> Self {
        let (id, name) = (u64::from(node.0), String::new());
        let (data_port, start) = (DATA_PORT, Time::ZERO);
        let (head, limit, headers) = (None, None, 0);
        Self { node, group, tsi, data_port, start, store, id, name, head, limit, headers, options }
    }
}
