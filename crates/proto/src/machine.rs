//! Interface between protocol machines and the drivers that supply time and packets.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::OnceCell;

use faircast_base::{ClientNote, Cx, GroupId, LinkNote, NodeId, Shortfall, Time};

use crate::BlackHole;

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Destination {
    /// Every other member of a group of the flow.
    Group(GroupId),
    Node(NodeId),
}

/// Received datagram: `bytes`, then `zeros` bytes of value zero. These stand for payload that no
/// code reads, so simulated data needs no memory. Always 0 on real networks.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Datagram<'a> {
    /// Sender, as trustworthy as the network.
    pub from: NodeId,
    pub to: Destination,
    pub bytes: &'a [u8],
    pub zeros: u32,
    /// True if the network marked the packet as Congestion Experienced (ECN CE).
    pub congestion_experienced: bool,
    /// True if the bytes were authenticated, so that their checksum need not be verified.
    pub authenticated: bool,
    /// Parse result of the same bytes, zeros and authentication, if the driver caches it.
    pub parsed: Option<&'a Parsed>,
}

impl<'a> Datagram<'a> {
    /// Creates a datagram from these bytes alone, without a congestion mark or authentication.
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

/// Cache of a parsed packet, shared by all machines that receive the same bytes. Invalid for any
/// other packet, because the result refers to positions in the bytes.
#[derive(Debug, Default)]
pub struct Parsed(OnceCell<Box<dyn Any + Send>>);

impl Parsed {
    /// Returns the cached result, or calls `parse`. `None` for a cached result of another type.
    #[inline]
    pub fn get_or_parse<T: Send + 'static>(&self, parse: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(parse())).downcast_ref()
    }
}

/// Datagram to send: the bytes from [`Machine::poll_transmit`], then `zeros` bytes of value zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Transmit {
    pub to: Destination,
    pub zeros: u32,
    /// Payload of the application in bytes; 0 for control packets.
    pub payload_len: u32,
    /// Time to live (TTL) in hops; 255 if the protocol sets no limit.
    pub time_to_live: u8,
    /// True if routers that run a program must examine the packet (IP router alert option).
    pub router_alert: bool,
    /// Length on the wire in bytes, if not the real one: background TCP counts as ns-2 does.
    pub wire_len: Option<u32>,
}

impl Transmit {
    /// Creates a packet without payload, with default settings.
    pub const fn control(to: Destination) -> Self {
        let (time_to_live, router_alert, wire_len) = (255, false, None);
        Self { to, zeros: 0, payload_len: 0, time_to_live, router_alert, wire_len }
    }
}

/// Change of group memberships. A receiver is in [`GroupId::SESSION`] without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Membership {
    Join(GroupId),
    Leave(GroupId),
}

/// Event that an end of any flow can report; the events that a scenario counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum FlowEvent {
    /// In-order payload: `bytes`, then `zeros` zero bytes.
    Delivered { bytes: Vec<u8>, zeros: u32 },
    /// Packets that can never be delivered; later packets come after a gap.
    Lost { packets: u32 },
    /// A receiver has delivered everything, or a sender knows that all receivers have.
    Completed,
    /// The other end is gone.
    Gone,
    /// Action of a client of the overlay.
    Note(Box<ClientNote>),
    /// State of a link of the overlay.
    Link(Box<LinkNote>),
}

/// Event of an end of a stream over PGM or TRAM. `node` is the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum StreamEvent {
    /// Event common to all flows.
    Flow(FlowEvent),
    /// End of a sender's session before all expected receivers, `named` and at most `unnamed`
    /// others, have everything.
    Incomplete { named: Vec<ShortReceiver>, unnamed: u64 },
    /// Different schemes at both ends; reported once for each node. A receiver ends, a sender
    /// continues: any host can forge this report. `sender` is empty if its announcement is newer
    /// than this build.
    OtherScheme { node: NodeId, sender: String, receiver: String },
    /// Loss of all long packets of a stream, but not of short ones. Any host can forge this report.
    BlackHole { node: NodeId, hole: BlackHole },
}

/// Request to a receiver of a stream over PGM or TRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamInput {
    /// True stops deliveries, false resumes them. Meanwhile a source with a window waits.
    Hold(bool),
}

/// Input that a receiver's wrapper can inspect.
pub trait ReceiverInput {
    /// True if deliveries stop, false if they resume; `None` if the input is another request.
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
    /// Returns the event common to all flows; `None` for an event of this transport only.
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

/// Receiver without the complete data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ShortReceiver {
    /// Number of the receiver in the session.
    pub id: u64,
    pub node: Option<NodeId>,
    /// True if the sender received packets of this receiver; false if others reported it.
    pub was_member: bool,
    pub reason: Shortfall,
}

/// Protocol machine: sender, receiver, or both. Routers run [`Relay`](crate::relay::Relay)s.
///
/// Rule for drivers: call `handle_*`. Then call [`poll_membership`](Self::poll_membership),
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event) until each returns
/// `None`. Then read [`next_timeout`](Self::next_timeout), and call
/// [`handle_timeout`](Self::handle_timeout) at that time. A new machine has its start time as its
/// first timeout.
pub trait Machine {
    /// Event type for the application.
    type Event;

    /// Handles a received datagram. Arbitrary bytes cause neither a panic nor unbounded state, only
    /// a [`BadInput`](faircast_base::Event::BadInput) in the trace.
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>);

    /// Handles a timeout. A call before the requested time does nothing.
    fn handle_timeout(&mut self, cx: &mut Cx<'_>);

    /// Starts an orderly end: a sender finishes the begun data, a receiver announces its leave.
    fn handle_close(&mut self, cx: &mut Cx<'_>);

    /// Handles a new or restored path: a source announces its packets, a receiver requests them.
    fn handle_new_path(&mut self, _cx: &mut Cx<'_>) {}

    /// Returns the next group to join or leave, beside the group of the session.
    #[must_use]
    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    /// Writes the next datagram into the empty `buf`; `None` if there is nothing to send.
    #[must_use]
    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit>;

    /// Returns the next event for the application.
    #[must_use]
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Returns the time of the next [`handle_timeout`](Self::handle_timeout); `None` for never.
    #[must_use]
    fn next_timeout(&self) -> Option<Time>;
}

/// Machine that takes requests of its application.
pub trait Interactive: Machine {
    /// Request type.
    type Input;
    /// Handles a request.
    fn handle_input(&mut self, cx: &mut Cx<'_>, input: Self::Input);
}

impl<M: Interactive + ?Sized> Interactive for Box<M> {
    type Input = M::Input;

    passes! { boxed: fn handle_input(&mut self, cx: &mut Cx<'_>, input: M::Input); }
}

/// Implements the named [`Machine`](crate::Machine) methods by calls to the machine in field
/// `$inner`. The outer machine implements the other methods itself.
#[macro_export]
macro_rules! passes_on {
    ($inner:tt: $($call:ident),+) => { $($crate::passes_on!(@$call $inner);)+ };
    (@handle_datagram $inner:tt) => { $crate::passes! {
        $inner: fn handle_datagram(&mut self, cx: &mut ::faircast_base::Cx<'_>, datagram: $crate::Datagram<'_>);
    } };
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
    (@$handle:ident $inner:tt) => {
        $crate::passes! { $inner: fn $handle(&mut self, cx: &mut ::faircast_base::Cx<'_>); }
    };
}

impl<M: Machine + ?Sized> Machine for Box<M> {
    type Event = M::Event;

    passes_on!(boxed: handle_datagram, handle_timeout, handle_close, handle_new_path, poll_membership, poll_transmit, poll_event, next_timeout);
}

/// End of a flow in a scenario.
pub type FlowMachine = Box<dyn Machine<Event = FlowEvent>>;

/// Adapter of a machine to an end of a flow in a scenario. Reports events of all flows only.
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
