//! Merging of several threads' records into time order.

use faircast_base::{ClientNote, Duration, LinkNote, Time};
use faircast_trace::{Record, Sink};

/// Time for which records are held back, so that earlier records of other threads can arrive.
const HELD: Duration = Duration::from_millis(500);

pub(crate) enum Entry {
    Record(Record),
    Note(Time, Box<ClientNote>),
    Link(Time, Box<LinkNote>),
}

impl Entry {
    const fn at(&self) -> Time {
        match self {
            Self::Record(record) => record.at,
            Self::Note(at, _) | Self::Link(at, _) => *at,
        }
    }

    fn pass(mut self, at: Time, sink: &mut dyn Sink) {
        match &mut self {
            Self::Record(record) => {
                record.at = at;
                sink.record(record);
            }
            Self::Note(_, note) => sink.note(at, note),
            Self::Link(_, note) => sink.link_note(at, note),
        }
    }
}

#[derive(Default)]
pub(crate) struct Merge {
    pub(crate) waiting: Vec<Entry>,
    passed: Time,
    pub(crate) moved: u64,
}

impl Merge {
    pub(crate) fn pass(&mut self, now: Time, sink: &mut dyn Sink) {
        let by = Time::ZERO + now.since(Time::ZERO + HELD);
        self.pass_by(by, sink);
    }

    pub(crate) fn finish(&mut self, end: Time, sink: &mut dyn Sink) {
        self.pass_by(end, sink);
        self.waiting.clear();
    }

    fn pass_by(&mut self, by: Time, sink: &mut dyn Sink) {
        // Stable: records of one time and thread keep their order.
        self.waiting.sort_by_key(Entry::at);
        let count = self.waiting.partition_point(|entry| entry.at() <= by);
        for entry in self.waiting.drain(..count) {
            self.moved += u64::from(entry.at() < self.passed);
            self.passed = self.passed.max(entry.at());
            entry.pass(self.passed, sink);
        }
    }
}

pub(crate) struct Outbox {
    entries: Vec<Entry>,
    to: std::sync::mpsc::Sender<Vec<Entry>>,
    sent: Time,
}

const BATCH_MAX: usize = 4096;
const BATCH_SPAN: Duration = Duration::from_millis(20);

impl Outbox {
    pub(crate) fn new(to: std::sync::mpsc::Sender<Vec<Entry>>) -> Self {
        Self { entries: Vec::new(), to, sent: Time::ZERO }
    }

    pub(crate) fn flush_if_due(&mut self, now: Time) {
        if self.entries.len() >= BATCH_MAX || now.since(self.sent) >= BATCH_SPAN {
            self.flush(now);
        }
    }

    pub(crate) fn flush(&mut self, now: Time) {
        self.sent = now;
        if !self.entries.is_empty() {
            // The receiver is gone only after the run has failed.
            let _ = self.to.send(std::mem::take(&mut self.entries));
        }
    }
}

impl Sink for Outbox {
    fn record(&mut self, record: &Record) {
        self.entries.push(Entry::Record(*record));
    }

    fn note(&mut self, at: Time, note: &ClientNote) {
        self.entries.push(Entry::Note(at, Box::new(note.clone())));
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        self.entries.push(Entry::Link(at, Box::new(note.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::{Event, NodeId};
    use faircast_trace::{Recording, Subject};

    fn record(ms: u64, node: u32) -> Entry {
        let at = Time::ZERO + Duration::from_millis(ms);
        Entry::Record(Record { at, subject: Subject::Node(NodeId(node)), event: Event::Joined })
    }

    #[test]
    fn times_never_decrease_and_nothing_is_lost() {
        let (mut merge, mut out) = (Merge::default(), Recording::default());
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        merge.waiting.extend([record(10, 1), record(50, 1), record(300, 1)]);
        merge.waiting.extend([record(20, 2), record(50, 2)]);
        merge.pass(at(560), &mut out);
        assert_eq!(out.records.len(), 4);
        merge.waiting.extend([record(30, 3), record(400, 3)]);
        merge.finish(at(350), &mut out);
        let ms = |record: &Record| record.at.since(Time::ZERO).as_millis();
        let ms: Vec<u64> = out.records.iter().map(ms).collect();
        assert_eq!(ms, [10, 20, 50, 50, 50, 300]);
        assert_eq!(merge.moved, 1);
    }
}
