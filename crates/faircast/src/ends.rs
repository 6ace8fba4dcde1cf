//! Ends of objects over PGM with a scheme or over TRAM, and the types of ends of streams. Ends
//! behind a relay run under credits.

use faircast_base::{NodeId, Time};
use faircast_net::{Live, random};
use faircast_proto::catalog::{SchemeEntry, Stack, over_pgm, tree_negotiation};
use faircast_proto::credit::{CreditReceiver, CreditSource};
use faircast_proto::object::{
    ObjectReceiverSetup, ObjectSender, ObjectSourceSetup, ObjectTaker, TramObjectReceiver,
    TramObjectSource,
};
use faircast_proto::options::Options;
use faircast_proto::pgm::PgmReceiver;
use faircast_proto::pgm::wire::{Gsi, Tsi};
use faircast_proto::tram::{self, TramStreamReceiver};
use faircast_proto::{Interactive, Machine, StreamEvent, StreamInput};

pub(crate) type Sending = Box<dyn ObjectSender>;
pub(crate) type Receiving = Box<dyn ObjectTaker>;
pub(crate) type StreamSending = Box<dyn Machine<Event = StreamEvent>>;
pub(crate) type StreamReceiving = Box<dyn StreamTaker>;

/// Boxes an end, under credits if there are hops. A macro, because both boxes differ in type.
macro_rules! over {
    ($hops:ident.$side:ident($inner:expr)) => {
        match $hops {
            None => Box::new($inner),
            Some(hops) => Box::new(hops.$side($inner)),
        }
    };
}
pub(crate) use over;

/// Returns the id of a new PGM session: random, with a port from the upper half.
pub(crate) fn new_tsi() -> Tsi {
    let [a, b, c, d, e, f, high, low] = random().to_be_bytes();
    Tsi { gsi: Gsi([a, b, c, d, e, f]), port: 0x8000 | u16::from_be_bytes([high, low]) }
}

/// Transport of a live session with its scheme. TRAM also has a control of its own, so its stack
/// names the scheme.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carrier {
    Pgm(&'static SchemeEntry),
    Tram(Stack),
}

impl Carrier {
    pub(crate) fn of(stack: Stack) -> Self {
        match stack.scheme.filter(|_| stack.is_pgm()) {
            Some(scheme) => Self::Pgm(scheme),
            None => Self::Tram(stack),
        }
    }

    pub(crate) fn stack(self) -> Stack {
        match self {
            Self::Pgm(scheme) => over_pgm(scheme),
            Self::Tram(stack) => stack,
        }
    }

    pub(crate) fn source(self, setup: ObjectSourceSetup<'_>, hops: Option<&Hops<'_>>) -> Sending {
        match self {
            Self::Pgm(entry) => over!(hops.source(entry.object_source(setup))),
            Self::Tram(tree) => over!(hops.source(TramObjectSource::new(setup, tree))),
        }
    }

    /// Returns a receiver; over TRAM one that accepts only this stack if it `insists`.
    pub(crate) fn receiver(
        self,
        setup: ObjectReceiverSetup<'_>,
        source: NodeId,
        insists: bool,
        hops: Option<&Hops<'_>>,
    ) -> Receiving {
        match self {
            Self::Pgm(entry) => over!(hops.receiver(entry.object_receiver(setup))),
            Self::Tram(tree) => {
                let negotiation = tree_negotiation(insists.then_some(tree));
                over!(hops.receiver(TramObjectReceiver::new(setup, source, negotiation)))
            }
        }
    }
}

/// Arguments of the credits around an end behind a relay.
pub(crate) struct Hops<'a> {
    session: u64,
    node: NodeId,
    now: Time,
    credits: &'a Options,
}

impl<'a> Hops<'a> {
    pub(crate) fn new<M: Machine>(live: &mut Live<M>, tsi: Tsi, credits: &'a Options) -> Self {
        let session = tram::session_of(tsi);
        Self { session, node: live.node(), now: live.now(), credits }
    }

    pub(crate) fn source<M: Machine>(&self, inner: M) -> CreditSource<M> {
        CreditSource::new(inner, self.session, self.node, self.now, self.credits)
    }

    pub(crate) fn receiver<M: Machine>(&self, inner: M) -> CreditReceiver<M> {
        CreditReceiver::new(inner, self.session, self.node)
    }
}

/// Receiver of a stream, as its worker uses it.
pub(crate) trait StreamTaker:
    Machine<Event = StreamEvent> + Interactive<Input = StreamInput>
{
    /// True if the receiver can make its sender wait.
    fn can_pause_sender(&self) -> bool {
        false
    }

    /// True if the receiver must stay after the end: others may request repairs from it.
    fn serves(&self) -> bool {
        false
    }
}

impl StreamTaker for PgmReceiver {}

impl StreamTaker for TramStreamReceiver {
    fn can_pause_sender(&self) -> bool {
        true
    }

    fn serves(&self) -> bool {
        !self.is_over()
    }
}

impl<M: StreamTaker> StreamTaker for CreditReceiver<M> {
    fn can_pause_sender(&self) -> bool {
        true
    }

    fn serves(&self) -> bool {
        self.inner().serves()
    }
}
