//! The trace of a run: what happened, when, and to whom.
//!
//! Drivers (the simulator, the lab, live sockets) feed a [`Sink`] with [`Record`]s; metrics, plots
//! and files are sinks. A trace file holds a [`Header`], all records and the [`Outcome`], and so
//! everything that a summary and a report need.

mod hash;
mod header;
mod lateness;
mod reader;
mod schema;
mod writer;

pub use hash::Hasher;
pub use header::{
    ClientHeader, FlowHeader, Header, LinkHeader, On, Outcome, SCHEMA_VERSION, SpeaksHeader,
};
pub use lateness::{Lateness, Validity};
pub use reader::{LINE_BYTES_MAX, ReadError, Reader};
pub use schema::{EventKind, KINDS, WORDS};
pub use writer::{Writer, write_line};

use faircast_base::{ClientNote, Event, FlowId, LinkId, LinkNote, NodeId, Time, Trace};

/// Who a record speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// One end of a flow.
    Endpoint {
        /// The flow.
        flow: FlowId,
        /// Where the endpoint is.
        node: NodeId,
        /// Whether it is the flow's sender; otherwise one of its receivers.
        sender: bool,
    },
    /// One direction of a link.
    Link(LinkId),
    /// A host or router itself.
    Node(NodeId),
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// When. Never decreases from one record of a run to the next.
    pub at: Time,
    /// To whom.
    pub subject: Subject,
    /// What.
    pub event: Event,
}

impl Record {
    /// Whether it is of the sending half of an end: of one that receives nothing, or data that another
    /// sends, which is a sender too or repairs for one.
    pub fn is_senders(&self) -> bool {
        match self.subject {
            Subject::Endpoint { sender, .. } => {
                sender || matches!(self.event, Event::DataSent { .. })
            }
            _ => false,
        }
    }
}

/// Something that records are fed to.
pub trait Sink {
    /// Takes one record. It cannot fail: a sink that can keeps its first error until it is
    /// finished.
    fn record(&mut self, record: &Record);

    /// Takes the act of a client of the overlay. Default: nothing.
    fn note(&mut self, _at: Time, _note: &ClientNote) {}

    /// Takes the state of a link of the overlay. Default: nothing.
    fn link_note(&mut self, _at: Time, _note: &LinkNote) {}
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn record(&mut self, record: &Record) {
        (**self).record(record);
    }

    fn note(&mut self, at: Time, note: &ClientNote) {
        (**self).note(at, note);
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        (**self).link_note(at, note);
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn record(&mut self, record: &Record) {
        (**self).record(record);
    }

    fn note(&mut self, at: Time, note: &ClientNote) {
        (**self).note(at, note);
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        (**self).link_note(at, note);
    }
}

impl<S: Sink> Sink for Option<S> {
    fn record(&mut self, record: &Record) {
        if let Some(sink) = self {
            sink.record(record);
        }
    }

    fn note(&mut self, at: Time, note: &ClientNote) {
        if let Some(sink) = self {
            sink.note(at, note);
        }
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        if let Some(sink) = self {
            sink.link_note(at, note);
        }
    }
}

/// A sink that keeps nothing.
impl Sink for () {
    fn record(&mut self, _record: &Record) {}
}

/// Feeds two sinks; nest it for more.
#[derive(Clone, Debug, Default)]
pub struct Tee<A, B>(pub A, pub B);

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    fn record(&mut self, record: &Record) {
        self.0.record(record);
        self.1.record(record);
    }

    fn note(&mut self, at: Time, note: &ClientNote) {
        self.0.note(at, note);
        self.1.note(at, note);
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        self.0.link_note(at, note);
        self.1.link_note(at, note);
    }
}

/// Keeps all records in memory, about 90 bytes each: for tests and short runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The records in the order in which they came.
    pub records: Vec<Record>,
}

impl Recording {
    /// Feeds all records to another sink.
    pub fn replay(&self, sink: &mut dyn Sink) {
        for record in &self.records {
            sink.record(record);
        }
    }
}

impl Sink for Recording {
    fn record(&mut self, record: &Record) {
        self.records.push(*record);
    }
}

/// What a machine speaks into: adds who it is to what it says.
pub struct Tagged<'a> {
    /// Who speaks.
    pub subject: Subject,
    /// Who listens.
    pub sink: &'a mut dyn Sink,
}

impl Trace for Tagged<'_> {
    fn emit(&mut self, at: Time, event: Event) {
        self.sink.record(&Record { at, subject: self.subject, event });
    }
}

#[cfg(test)]
mod tests;
