//! Trace of a run: all events with their times and subjects.
//!
//! Drivers feed [`Record`]s to a [`Sink`]: metrics, plots and files. A trace file has a [`Header`],
//! all records and the [`Outcome`].

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
pub use reader::{ReadError, Reader};
pub use schema::{KINDS, WORDS, write_line};
pub use writer::Writer;

use faircast_base::{ClientNote, Event, FlowId, LinkId, LinkNote, NodeId, Time, Trace};

/// Subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// One end of a flow.
    Endpoint {
        /// Flow of the endpoint.
        flow: FlowId,
        /// Node of the endpoint.
        node: NodeId,
        /// True for a sender of the flow, false for a receiver.
        sender: bool,
    },
    /// One direction of a link.
    Link(LinkId),
    /// Host or router.
    Node(NodeId),
}

/// Event with its time and subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Time of the event. Never decreases from one record of a run to the next.
    pub at: Time,
    /// Subject of the event.
    pub subject: Subject,
    /// Event.
    pub event: Event,
}

impl Record {
    /// True for records of senders, and of receivers that send data (further senders, repairs).
    pub fn is_senders(&self) -> bool {
        match self.subject {
            Subject::Endpoint { sender, .. } => {
                sender || matches!(self.event, Event::DataSent { .. })
            }
            _ => false,
        }
    }
}

/// Consumer of records.
pub trait Sink {
    /// Takes a record. A sink that can fail keeps its first error until it is finished.
    fn record(&mut self, record: &Record);

    /// Takes an action of a client of the overlay. Default: ignored.
    fn note(&mut self, _at: Time, _note: &ClientNote) {}

    /// Takes the state of a link of the overlay. Default: ignored.
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

impl Sink for () {
    fn record(&mut self, _record: &Record) {}
}

/// Pair of sinks that take the same records; can be nested.
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

/// Sink that keeps all records in memory, about 90 bytes each, for tests and short runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Records in order of arrival.
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

/// Trace of a machine: adds the subject to its events.
pub struct Tagged<'a> {
    /// Subject of the events.
    pub subject: Subject,
    /// Sink for the records.
    pub sink: &'a mut dyn Sink,
}

impl Trace for Tagged<'_> {
    fn emit(&mut self, at: Time, event: Event) {
        self.sink.record(&Record { at, subject: self.subject, event });
    }
}

#[cfg(test)]
mod tests;
