//! The contract between protocol machines and the drivers that give them time and packets.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::OnceCell;

use faircast_base::{ClientNote, Cx, GroupId, LinkNote, NodeId, Shortfall, Time};

use crate::BlackHole;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To every other member of a group of the flow.
    Group(GroupId),
    /// To one node.
    Node(NodeId),
}

/// A datagram as it arrives: `bytes`, then `zeros` bytes of value zero.
///
/// The tail of zeros stands for payload that nobody needs to look at, so that a simulated source
/// of unlimited data costs no memory and no copies, yet every length and checksum is that of the
/// real packet. On real networks `zeros` is always 0.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Sender, as the network says. Not to be trusted more than the network.
    pub from: NodeId,
    /// Whether it came to the group or to this node alone.
    pub to: Destination,
    /// The bytes of the packet.
    pub bytes: &'a [u8],
    /// Number of zero bytes that follow.
    pub zeros: u32,
    /// Whether the network marked it as having met congestion (ECN CE).
    pub congestion_experienced: bool,
    /// Whether the bytes are known to be those that were sent, since they were authenticated: then no
    /// checksum needs to be computed.
    pub authenticated: bool,
    /// What was found before in the same bytes, with as many zeros and as much authenticated, where the
    /// driver keeps that.
    pub parsed: Option<&'a Parsed>,
}

impl<'a> Datagram<'a> {
    /// These bytes alone, which have met no congestion and may be anybody's.
    pub const fn new(from: NodeId, to: Destination, bytes: &'a [u8]) -> Self {
        Self {
            from,
            to,
            bytes,
            zeros: 0,
            congestion_experienced: false,
            authenticated: false,
            parsed: None,
        }
    }
}

/// What the first machine that took a packet found in it, for the others that get the same bytes: a
/// driver that hands one packet to thousands of machines keeps one beside it, and never beside another: what
/// is found are places in its bytes.
#[derive(Debug, Default)]
pub struct Parsed(OnceCell<Box<dyn Any + Send>>);

impl Parsed {
    /// What was found, by `parse` where nobody has looked yet; `None` where somebody has found another
    /// kind of thing.
    #[inline]
    pub fn get_or_parse<T: Send + 'static>(&self, parse: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(parse())).downcast_ref()
    }
}

/// A datagram to send. Its bytes are what [`Machine::poll_transmit`] wrote into the buffer, then
/// `zeros` bytes of value zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub to: Destination,
    /// Number of zero bytes that follow the bytes in the buffer.
    pub zeros: u32,
    /// Bytes of payload of the application; 0 for control packets.
    pub payload_len: u32,
    /// Hops that it may travel; 255 where the protocol does not care.
    pub time_to_live: u8,
    /// Whether routers that run a program must look at it (the IP router alert option).
    pub router_alert: bool,
    /// Bytes on the wire where the machine must dictate them, as background TCP does to count as
    /// ns-2 counts; `None` lets the driver count the real headers.
    pub wire_len: Option<u32>,
}

impl Transmit {
    /// A packet without payload, of which no more is to be said.
    pub const fn control(to: Destination) -> Self {
        let (time_to_live, router_alert, wire_len) = (255, false, None);
        Self { to, zeros: 0, payload_len: 0, time_to_live, router_alert, wire_len }
    }
}

/// A change of what groups a machine is in. A receiver is in [`GroupId::SESSION`] from its start to
/// its end without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The machine joins this group of its flow.
    Join(GroupId),
    /// The machine leaves this group.
    Leave(GroupId),
}

/// Event of an end of any flow: all that a scenario counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum FlowEvent {
    /// In-order payload: `bytes`, then `zeros` zero bytes.
    Delivered { bytes: Vec<u8>, zeros: u32 },
    /// Packets that can never be delivered; later packets come after a gap.
    Lost { packets: u32 },
    /// A receiver has delivered everything, or a sender has been told that all is there.
    Completed,
    /// The other side is gone.
    Gone,
    /// A client of the overlay has acted.
    Note(Box<ClientNote>),
    /// State of a link of the overlay.
    Link(Box<LinkNote>),
}

/// Event of an end of a stream over PGM or TRAM. The node of one is that of the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum StreamEvent {
    /// Event that every flow has.
    Flow(FlowEvent),
    /// A sender's session ends, and receivers have not got everything: those that are known, and
    /// the greatest number of others. A session without expected receivers has no such event.
    Incomplete { named: Vec<ShortReceiver>, unnamed: u64 },
    /// The two ends do not speak the same scheme. A receiver ends; a sender goes on, and answers
    /// that node like any other, since anybody can say this in its name. Said once for each node.
    /// The schemes are those of the sender, empty where it says so in a way that is newer than this
    /// build, and of the receiver.
    OtherScheme { node: NodeId, sender: String, receiver: String },
    /// No data of a stream arrives at a receiver, and shorter packets do. The receiver says so once
    /// until data arrives, and a sender once for each node: any host can say this in a receiver's
    /// name.
    BlackHole { node: NodeId, hole: BlackHole },
}

/// Request to a receiver of a stream over PGM or TRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamInput {
    /// True if deliveries stop, false if deliveries go on: the source waits, if its transport has a
    /// window.
    Hold(bool),
}

/// Request to a receiver.
pub trait ReceiverInput {
    /// Whether deliveries stop or go on; `None` if the request concerns something else.
    fn hold(&self) -> Option<bool> {
        None
    }
}

impl ReceiverInput for StreamInput {
    fn hold(&self) -> Option<bool> {
        let Self::Hold(held) = self;
        Some(*held)
    }
}

impl From<FlowEvent> for StreamEvent {
    fn from(event: FlowEvent) -> Self {
        Self::Flow(event)
    }
}

/// Event of a machine that may be an end of a flow.
pub trait AppEvent {
    /// Part that every flow has; `None` if the event concerns the transport's own applications.
    fn into_flow(self) -> Option<FlowEvent>;
}

impl AppEvent for FlowEvent {
    #[inline]
    fn into_flow(self) -> Option<FlowEvent> {
        Some(self)
    }
}

impl AppEvent for StreamEvent {
    #[inline]
    fn into_flow(self) -> Option<FlowEvent> {
        match self {
            Self::Flow(event) => Some(event),
            _ => None,
        }
    }
}

/// A receiver that has not got everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortReceiver {
    /// Its number in the session.
    pub id: u64,
    /// Where it is; `None` where that is not known.
    pub node: Option<NodeId>,
    /// Whether the sender heard it itself; else others told where it is.
    pub was_member: bool,
    /// Reason of the loss.
    pub reason: Shortfall,
}

/// A protocol machine: a sender, a receiver, or both at once. Programs of routers are
/// [`Relay`](crate::relay::Relay)s.
///
/// The one law for drivers: call `handle_*`, then [`poll_membership`](Self::poll_membership) and
/// [`poll_transmit`](Self::poll_transmit) until each gives `None`, then [`poll_event`](Self::poll_event) until it gives `None`, then read
/// [`next_timeout`](Self::next_timeout) and call [`handle_timeout`](Self::handle_timeout) when
/// that moment has come. A machine is made with its start time as its first timeout.
pub trait Machine {
    /// Report to the application.
    type Event;

    /// Takes a datagram. Whatever its bytes are, the machine neither panics nor grows without
    /// bound: what it cannot use is a [`BadInput`](faircast_base::Event::BadInput) in the trace.
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>);

    /// Takes the passing of time. A call before the moment that was asked for does nothing.
    fn handle_timeout(&mut self, cx: &mut Cx<'_>);

    /// The application wants to end: a sender takes no new data and finishes what it has begun, a
    /// receiver says that it leaves. Afterwards the driver goes on until nothing is left to do or
    /// its timeout for that is over.
    fn handle_close(&mut self, cx: &mut Cx<'_>);

    /// The way to the other ends has changed, or is back: a source says at once what there is, and
    /// a receiver asks for that.
    fn handle_new_path(&mut self, _cx: &mut Cx<'_>) {}

    /// Gives the next group to join or leave, or `None`: a machine that stays in the group of its
    /// session has none.
    #[must_use]
    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    /// Gives the next datagram to send, written into the empty `buf`, or `None`.
    #[must_use]
    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit>;

    /// Gives the next event for the application, or `None`.
    #[must_use]
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called; `None` for not at all.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;
}

/// A machine whose application sends requests while the machine runs.
pub trait Interactive: Machine {
    /// A request.
    type Input;

    /// Takes a request.
    fn handle_input(&mut self, cx: &mut Cx<'_>, input: Self::Input);
}

impl<M: Interactive + ?Sized> Interactive for Box<M> {
    type Input = M::Input;

    passes! { boxed: fn handle_input(&mut self, cx: &mut Cx<'_>, input: M::Input); }
}

/// Calls of a machine that is built around another one, which is its field `$inner`, and handles them: all that
/// are named here. The others it has itself.
///
/// ```
/// use faircast_base::{Cx, Time};
/// use faircast_proto::{Datagram, Machine, Membership, Transmit, passes_on};
///
/// /// Counts what it hears.
/// struct Counting<M> {
///     inner: M,
///     heard: u64,
/// }
///
/// impl<M: Machine> Machine for Counting<M> {
///     type Event = M::Event;
///
///     fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
///         self.heard += 1;
///         self.inner.handle_datagram(cx, datagram);
///     }
///
///     passes_on!(inner: handle_timeout, handle_close, handle_new_path, poll_membership, poll_transmit, poll_event, next_timeout);
/// }
/// ```
#[macro_export]
macro_rules! passes_on {
    ($inner:tt: $($call:ident),+) => { $($crate::passes_on!(@$call $inner);)+ };
    (@handle_datagram $inner:tt) => { $crate::passes! {
        $inner: fn handle_datagram(&mut self, cx: &mut ::faircast_base::Cx<'_>, datagram: $crate::Datagram<'_>);
    } };
    (@handle_timeout $inner:tt) => {
        $crate::passes! { $inner: fn handle_timeout(&mut self, cx: &mut ::faircast_base::Cx<'_>); }
    };
    (@handle_close $inner:tt) => {
        $crate::passes! { $inner: fn handle_close(&mut self, cx: &mut ::faircast_base::Cx<'_>); }
    };
    (@handle_new_path $inner:tt) => {
        $crate::passes! { $inner: fn handle_new_path(&mut self, cx: &mut ::faircast_base::Cx<'_>); }
    };
    (@poll_membership $inner:tt) => {
        $crate::passes! { $inner: fn poll_membership(&mut self) -> Option<$crate::Membership>; }
    };
    (@poll_transmit $inner:tt) => { $crate::passes! {
        $inner: fn poll_transmit(
            &mut self, cx: &mut ::faircast_base::Cx<'_>, buf: &mut Vec<u8>
        ) -> Option<$crate::Transmit>;
    } };
    (@poll_event $inner:tt) => {
        $crate::passes! { $inner: fn poll_event(&mut self) -> Option<Self::Event>; }
    };
    (@next_timeout $inner:tt) => {
        $crate::passes! { $inner: fn next_timeout(&self) -> Option<::faircast_base::Time>; }
    };
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    type Event = M::Event;

    passes_on!(boxed: handle_datagram, handle_timeout, handle_close, handle_new_path, poll_membership, poll_transmit, poll_event, next_timeout);
}

/// An end of a flow in a scenario.
pub type FlowMachine = Box<dyn Machine<Event = FlowEvent>>;

/// A machine as an end of a flow in a scenario: only the events that every flow has are reported.
pub struct FlowEnd<M>(pub M);

impl<M: Machine<Event: AppEvent>> Machine for FlowEnd<M> {
    type Event = FlowEvent;

    fn poll_event(&mut self) -> Option<FlowEvent> {
        loop {
            if let Some(event) = self.0.poll_event()?.into_flow() {
                return Some(event);
            }
        }
    }

    passes_on!(0: handle_datagram, handle_timeout, handle_close, handle_new_path, poll_membership, poll_transmit, next_timeout);
}
