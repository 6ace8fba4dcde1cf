//! Ends of a transfer and of a stream, over PGM with a scheme or over TRAM.

use std::collections::BTreeSet;
use std::fmt;

use faircast_base::{Bitrate, Cx, Duration, Time};
use faircast_net::Live;
use faircast_proto::catalog::SchemeEntry;
use faircast_proto::credit::{CreditReceiver, CreditSource};
use faircast_proto::object::{
    HostLoad, ObjectReceiver, ObjectReceiverSetup, ObjectSource, ObjectSourceSetup, ObjectStatus,
    TramObjectReceiver, TramObjectSource,
};
use faircast_proto::options::{OptionSpec, Options};
use faircast_proto::pgm::wire::Tsi;
use faircast_proto::pgm::{PgmReceiver, PgmSource};
use faircast_proto::tram::{self, TramSource, TramStreamReceiver, Tree};
use faircast_proto::{AppEvent, Datagram, Machine, Membership, Transmit};

/// What carries a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carrier {
    /// PGM, steered by a scheme.
    Pgm(&'static SchemeEntry),
    /// TRAM, which steers itself, or its tree steered by a scheme.
    Tram(Tree),
}

impl Carrier {
    /// The name by which users ask for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pgm(entry) => entry.name,
            Self::Tram(tree) => tree.name,
        }
    }

    /// Its settings.
    pub(crate) const fn options(self) -> &'static [OptionSpec] {
        match self {
            Self::Pgm(entry) => entry.options,
            Self::Tram(tree) => tree.options,
        }
    }

    /// A sending end.
    pub(crate) fn source(self, setup: ObjectSourceSetup<'_>) -> Sending {
        match self {
            Self::Pgm(entry) => Sending::Pgm(Box::new(entry.object_source(setup))),
            Self::Tram(tree) => Sending::Tram(Box::new(TramObjectSource::new(setup, tree))),
        }
    }

    /// A receiving end of what comes from the node `source`. Over TRAM it follows what steers that, or insists.
    pub(crate) fn receiver(
        self,
        setup: ObjectReceiverSetup<'_>,
        source: faircast_base::NodeId,
        insists: bool,
    ) -> Receiving {
        match self {
            Self::Pgm(entry) => Receiving::Pgm(Box::new(entry.object_receiver(setup))),
            Self::Tram(tree) => {
                let tree = Some(tree).filter(|_| insists);
                Receiving::Tram(Box::new(TramObjectReceiver::new(setup, source, tree)))
            }
        }
    }
}

/// A sending end.
#[derive(Debug)]
pub(crate) enum Sending {
    Pgm(Box<ObjectSource>),
    Tram(Box<TramObjectSource>),
    /// One of these, through relays.
    Via(Box<CreditSource<Sending>>),
}

/// A receiving end.
#[derive(Debug)]
pub(crate) enum Receiving {
    Pgm(Box<ObjectReceiver>),
    Tram(Box<TramObjectReceiver>),
    /// One of these, through relays.
    Via(Box<CreditReceiver<Receiving>>),
}

/// The sending end of a stream.
pub(crate) enum StreamSending {
    Pgm(Box<PgmSource>),
    Tram(Box<TramSource>),
    /// One of these, through relays.
    Via(Box<CreditSource<StreamSending>>),
}

/// The receiving end of a stream.
pub(crate) enum StreamReceiving {
    Pgm(Box<PgmReceiver>),
    Tram(Box<TramStreamReceiver>),
    /// One of these, through relays.
    Via(Box<CreditReceiver<StreamReceiving>>),
}

impl fmt::Debug for StreamSending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pgm(_) => "Pgm",
            Self::Tram(_) => "Tram",
            Self::Via(_) => "Via",
        })
    }
}

impl fmt::Debug for StreamReceiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pgm(_) => "Pgm",
            Self::Tram(_) => "Tram",
            Self::Via(_) => "Via",
        })
    }
}

impl StreamReceiving {
    /// Nothing is handed over for now, or again, where the sender can wait for that. Returns whether it can.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, held: bool) -> bool {
        match self {
            Self::Pgm(_) => false,
            Self::Tram(end) => {
                end.hold(cx, held);
                true
            }
            Self::Via(via) => {
                via.hold(cx.now, held);
                via.inner_mut().hold(cx, held);
                true
            }
        }
    }

    /// Whether others still need it though it has everything.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Self::Pgm(_) => false,
            Self::Tram(end) => !end.is_over(),
            Self::Via(via) => via.inner().serves(),
        }
    }

    /// Whether it is one of a repair tree.
    pub(crate) fn is_tree(&self) -> bool {
        match self {
            Self::Pgm(_) => false,
            Self::Tram(_) => true,
            Self::Via(via) => via.inner().is_tree(),
        }
    }
}

/// Whichever it is does this; `via` what is between it and relays.
macro_rules! either {
    ($self:ident, $end:ident => $does:expr, $via:ident => $passes:expr) => {
        match $self {
            Self::Pgm($end) => $does,
            Self::Tram($end) => $does,
            Self::Via($via) => $passes,
        }
    };
}

macro_rules! machine {
    ($ends:ty) => {
        impl Machine for $ends {
            fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
                either!(self, end => end.handle_datagram(cx, datagram), via => via.handle_datagram(cx, datagram));
            }

            fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
                either!(self, end => end.handle_timeout(cx), via => via.handle_timeout(cx));
            }

            fn handle_close(&mut self, cx: &mut Cx<'_>) {
                either!(self, end => end.handle_close(cx), via => via.handle_close(cx));
            }

            fn poll_membership(&mut self) -> Option<Membership> {
                either!(self, end => end.poll_membership(), via => via.poll_membership())
            }

            fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
                either!(self, end => end.poll_transmit(cx, buf), via => via.poll_transmit(cx, buf))
            }

            fn poll_event(&mut self) -> Option<AppEvent> {
                either!(self, end => end.poll_event(), via => via.poll_event())
            }

            fn next_timeout(&self) -> Option<Time> {
                either!(self, end => end.next_timeout(), via => via.next_timeout())
            }
        }

    };
}

macro_rules! of_object {
    ($ends:ty) => {
        impl $ends {
            pub(crate) fn status(&self) -> ObjectStatus {
                either!(self, end => end.status(), via => via.inner().status())
            }

            pub(crate) fn set_headers(&mut self, bytes: u32) {
                either!(self, end => end.set_headers(bytes), via => via.inner_mut().set_headers(bytes));
            }

            pub(crate) fn note_host(&mut self, load: HostLoad) {
                either!(self, end => end.note_host(load), via => via.inner_mut().note_host(load));
            }
        }
    };
}

/// Ends through relays, under credits.
macro_rules! through_relays {
    ($source:ident, $receiver:ident) => {
        impl $source {
            /// The same through relays, under credits with these settings.
            pub(crate) fn via(self, live: &mut Live<Self>, tsi: Tsi, options: &Options) -> Self {
                let (node, now) = (live.node(), live.now());
                let source = CreditSource::new(self, tram::session_of(tsi), node, now, options);
                Self::Via(Box::new(source))
            }
        }

        impl $receiver {
            /// The same through relays.
            pub(crate) fn via(self, live: &Live<Self>, tsi: Tsi) -> Self {
                let receiver = CreditReceiver::new(self, tram::session_of(tsi), live.node());
                Self::Via(Box::new(receiver))
            }
        }
    };
}

through_relays!(Sending, Receiving);
through_relays!(StreamSending, StreamReceiving);
machine!(Sending);
machine!(Receiving);
machine!(StreamSending);
machine!(StreamReceiving);
of_object!(Sending);
of_object!(Receiving);

impl Sending {
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>) {
        either!(self, end => end.begin(cx), via => via.inner_mut().begin(cx));
    }

    pub(crate) fn wait_for_names(&mut self, names: BTreeSet<String>) {
        either!(self, end => end.wait_for_names(names), via => via.inner_mut().wait_for_names(names));
    }

    pub(crate) fn set_stall_max(&mut self, limit: Option<Duration>) {
        either!(self, end => end.set_stall_max(limit), via => via.inner_mut().set_stall_max(limit));
    }

    pub(crate) fn excuse_silence(&mut self, now: Time) {
        either!(self, end => end.excuse_silence(now), via => via.inner_mut().excuse_silence(now));
    }

    pub(crate) fn dismiss(&mut self, cx: &mut Cx<'_>, id: u64) {
        either!(self, end => end.dismiss(cx, id), via => via.inner_mut().dismiss(cx, id));
    }
}

impl Receiving {
    /// What it speaks, where it learned that from the sender.
    pub(crate) fn spoken(&self) -> Option<&'static str> {
        match self {
            Self::Pgm(_) => None,
            Self::Tram(end) => end.spoken(),
            Self::Via(via) => via.inner().spoken(),
        }
    }

    /// Whether others depend on it.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Self::Pgm(_) => false,
            Self::Tram(end) => end.serves(),
            Self::Via(via) => via.inner().serves(),
        }
    }

    /// Whether it repeats how it ended until its sender notes that.
    pub(crate) fn awaits_note(&self) -> bool {
        either!(self, end => end.awaits_note(), via => via.inner().awaits_note())
    }

    /// Removes what is kept of the object.
    pub(crate) fn discard(&mut self) {
        either!(self, end => end.discard(), via => via.inner_mut().discard());
    }

    pub(crate) fn set_limit(&mut self, limit: Option<Bitrate>) {
        either!(self, end => end.set_limit(limit), via => via.inner_mut().set_limit(limit));
    }
}
