//! Ends of a transfer, as applications see them: their configuration, requests and status.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use faircast_base::{Bitrate, Duration, NodeId, Time};

use super::{HostLoad, ObjectStatus, Store, Supply};
use crate::credit::{CreditReceiver, CreditSource};
use crate::options::Options;
use crate::pgm::DATA_PORT;
use crate::pgm::wire::{Nla, Tsi};
use crate::stack::Stack;
use crate::tram::GivenHead;
use crate::{FlowEvent, Interactive, Machine, ReceiverInput};

/// Policy for repair by parity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fec {
    /// Parity where it repairs more than retransmission. The default.
    Auto,
    /// Retransmission only.
    Off,
    /// As `Auto`, with this share of parity, above 0 and at most 1, sent unasked with every block.
    Ratio(f64),
}

/// Policy for a receiver that cannot keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPolicy {
    /// The group waits for the receiver. The default.
    Wait,
    /// Least rate of the group; the receiver that limits the group below it is deferred.
    DropBelow(Bitrate),
}

/// Setup of a sending end.
pub struct ObjectSourceSetup<'a> {
    /// Node of the source.
    pub node: NodeId,
    /// Group to send to.
    pub group: Nla,
    /// Session of the source.
    pub tsi: Tsi,
    /// Data-destination port of PGM; 7500 by default.
    pub data_port: u16,
    /// Start time.
    pub start: Time,
    /// Object to send.
    pub supply: Box<dyn Supply>,
    /// Payload bytes of a symbol; even, 2 to 65408.
    pub symbol_bytes: u16,
    /// Policy for repair by parity.
    pub fec: Fec,
    /// Receivers that must have the manifest before content is sent, unless
    /// [`ObjectSourceInput::Begin`](super::ObjectSourceInput::Begin) comes earlier.
    pub wait_for: u32,
    /// Silence after which a receiver counts as lost.
    pub give_up: Duration,
    /// Policy for slow receivers.
    pub slow: SlowPolicy,
    /// Receivers to wait for at the end; if empty, the members at the beginning of content.
    pub names: BTreeSet<String>,
    /// Time without progress before a member that still sends is given up; `None` for never.
    pub stall_max: Option<Duration>,
    /// Bytes that the driver adds to each packet, for reported lengths.
    pub headers: u32,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

impl<'a> ObjectSourceSetup<'a> {
    /// Creates a setup that starts at once, waits for one receiver, and loses members after 20 s.
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
    /// Node of the receiver, which identifies it in the scheme's reports; unique in the group.
    pub node: NodeId,
    /// Group to receive from.
    pub group: Nla,
    /// Session to receive.
    pub tsi: Tsi,
    /// Data-destination port of PGM; 7500 by default.
    pub data_port: u16,
    /// Time of the join.
    pub start: Time,
    /// Destination of the received object.
    pub store: Box<dyn Store>,
    /// Random identifier by which the source knows the receiver.
    pub id: u64,
    /// Display name; at most 64 bytes are sent.
    pub name: String,
    /// Initial repair head, over TRAM.
    pub head: Option<GivenHead>,
    /// Greatest rate that the receiver asks its source for; `None` for no limit.
    pub limit: Option<Bitrate>,
    /// Bytes that the driver adds to each packet, for reported lengths.
    pub headers: u32,
    /// Settings, checked against the scheme's table.
    pub options: &'a Options,
}

impl<'a> ObjectReceiverSetup<'a> {
    /// Creates a setup that joins at once, without a name; the node identifies the receiver.
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

/// Request to the source of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectSourceInput {
    /// Begin of content for the present members.
    Begin,
    /// Excuse of silent members, since this host itself could not send or receive.
    ExcuseSilence,
    /// Removal of a member whose place another member has taken, until the member sends again.
    Dismiss {
        /// Number of the member.
        id: u64,
    },
    /// Time that the driver's thread has spent so far, by activity.
    Host(HostLoad),
}

/// Request to a receiver of an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectReceiverInput {
    /// Time that the driver's thread has spent so far, by activity.
    Host(HostLoad),
    /// Removal of stored content that another object replaces. The machine must be dropped then.
    Discard,
}

impl ReceiverInput for ObjectReceiverInput {}

/// Sending end of a transfer.
pub trait ObjectSender:
    Machine<Event = FlowEvent> + Interactive<Input = ObjectSourceInput>
{
    /// Returns the progress, in time proportional to the number of members.
    fn status(&self) -> ObjectStatus;
}

/// Receiving end of a transfer.
pub trait ObjectTaker:
    Machine<Event = FlowEvent> + Interactive<Input = ObjectReceiverInput>
{
    /// Returns the progress.
    fn status(&self) -> ObjectStatus;

    /// Returns true if the last message is repeated until the source has confirmed it.
    fn awaits_note(&self) -> bool;

    /// Returns the stack that the source announced; `None` before, and if sources announce none.
    fn spoken(&self) -> Option<Stack> {
        None
    }

    /// Returns true if other receivers depend on this one.
    fn serves(&self) -> bool {
        false
    }
}

impl<M: ObjectSender> ObjectSender for CreditSource<M> {
    fn status(&self) -> ObjectStatus {
        self.inner().status()
    }
}

impl<M: ObjectTaker> ObjectTaker for CreditReceiver<M> {
    fn status(&self) -> ObjectStatus {
        self.inner().status()
    }

    fn awaits_note(&self) -> bool {
        self.inner().awaits_note()
    }

    fn spoken(&self) -> Option<Stack> {
        self.inner().spoken()
    }

    fn serves(&self) -> bool {
        self.inner().serves()
    }
}
