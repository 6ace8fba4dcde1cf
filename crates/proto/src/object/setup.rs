//! What the two ends of a transfer are told at their start.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use faircast_base::{Bitrate, Cx, Duration, NodeId, Time};

use super::{HostLoad, Store, Supply, TransferStatus};
use crate::Machine;
use crate::options::Options;
use crate::pgm::wire::{Nla, Tsi};

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

/// What is done about a receiver that cannot keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPolicy {
    /// The group waits for it. The default.
    Wait,
    /// Where the group would go slower than this for more than some seconds, who limits it is told
    /// so and served after the others.
    DropBelow(Bitrate),
}

/// What a sending end is made from.
pub struct TransferSourceSetup<'a> {
    /// The node that it runs on.
    pub node: NodeId,
    /// The group that it sends to.
    pub group: Nla,
    /// Its session.
    pub tsi: Tsi,
    /// The data-destination port of PGM.
    pub data_port: u16,
    /// When it begins.
    pub start: Time,
    /// What it sends.
    pub supply: Box<dyn Supply>,
    /// Bytes of payload of a symbol; even, 2 to 65408.
    pub symbol_bytes: u16,
    /// Whether losses are repaired by parity.
    pub fec: Fec,
    /// Content is sent once so many receivers have the manifest, or once
    /// [`TransferSource::begin`] is called. Whoever comes later is served too.
    pub wait_for: u32,
    /// Silence after which a receiver counts as lost.
    pub give_up: Duration,
    /// What is done about slow receivers.
    pub slow: SlowPolicy,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

/// What a receiving end is made from.
pub struct TransferReceiverSetup<'a> {
    /// The node that it runs on: who it is in the scheme's reports. No two receivers of a group
    /// have the same.
    pub node: NodeId,
    /// The group that it hears.
    pub group: Nla,
    /// The session that it hears.
    pub tsi: Tsi,
    /// The data-destination port of PGM.
    pub data_port: u16,
    /// When it joins.
    pub start: Time,
    /// Where it puts what comes.
    pub store: Box<dyn Store>,
    /// By which the source knows it; random.
    pub id: u64,
    /// Its name for people: at most 64 bytes of it are told.
    pub name: String,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

/// Either end of a transfer. [`Completed`](crate::AppEvent::Completed) says that it is done with
/// everything intact, [`Gone`](crate::AppEvent::Gone) that it has ended without.
pub trait Transfer: Machine + Send {
    /// How it stands. Costs time in proportion to the number of members.
    fn status(&self) -> TransferStatus;

    /// How its thread has spent its time so far; told now and then by a driver that knows.
    fn note_host(&mut self, load: HostLoad);
}

/// The sending end of a transfer.
pub trait TransferSource: Transfer {
    /// Begins to send content to whoever is there.
    fn begin(&mut self, cx: &mut Cx<'_>);

    /// At the end only receivers of these names are waited for. By default it is those who were there
    /// when content began.
    fn wait_for_names(&mut self, names: BTreeSet<String>);

    /// Strikes the member `id` off, because the application knows that another one has taken its
    /// place. Should it speak again it is a member again.
    fn dismiss(&mut self, cx: &mut Cx<'_>, id: u64);
}
