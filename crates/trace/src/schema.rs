//! Schema of trace records: one table for writing, reading and hashing events.
//!
//! A new kind of event is one line in `events!` with a new code. Codes and names keep their
//! meaning, because published trace hashes and stored files depend on them.

use faircast_base::{
    BadInput, CutReason, DropReason, Event, FlowId, LinkCounters, LinkId, NodeFaultKind, NodeId,
    Shortfall, SwitchReason, Time, TimeoutKind,
};

use crate::{Record, Subject};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Number(u64),
    Text(&'a str),
}

pub(crate) struct Fields<'a> {
    entries: [(&'a str, Value<'a>); FIELDS_MAX],
    len: usize,
}

/// Most fields of a record; the widest kind has 13.
pub(crate) const FIELDS_MAX: usize = 16;

impl<'a> Fields<'a> {
    pub(crate) fn new() -> Self {
        Self { entries: [("", Value::Null); FIELDS_MAX], len: 0 }
    }

    pub(crate) fn push(&mut self, key: &'a str, value: Value<'a>) -> Result<(), String> {
        if self.has(key) {
            return Err(format!("the field \"{key}\" is there twice"));
        }
        let Some(slot) = self.entries.get_mut(self.len) else {
            return Err("too many fields".into());
        };
        *slot = (key, value);
        self.len += 1;
        Ok(())
    }

    fn find(&mut self, key: &str) -> Option<Value<'a>> {
        let at = self.entries[..self.len].iter().position(|(known, _)| *known == key)?;
        let value = self.entries[at].1;
        self.len -= 1;
        self.entries[at] = self.entries[self.len];
        Some(value)
    }

    fn take<T: Field>(&mut self, key: &str) -> Result<T, String> {
        let value = self.find(key).ok_or_else(|| format!("the field \"{key}\" is missing"))?;
        T::from_value(value).ok_or_else(|| format!("the field \"{key}\" must be {}", T::WHAT))
    }

    fn take_or<T: Field>(&mut self, key: &str, default: Option<T>) -> Result<T, String> {
        match default {
            Some(value) if !self.has(key) => Ok(value),
            _ => self.take(key),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.entries[..self.len].iter().any(|(known, _)| *known == key)
    }

    pub(crate) fn into_record(mut self) -> Result<Record, String> {
        let at = Time::from_nanos(self.take("t_ns")?);
        let subject = read_subject(&mut self)?;
        let Some(Value::Text(kind)) = self.find("kind") else {
            return Err("the field \"kind\" is missing or not a text".into());
        };
        let event = read_event(kind, &mut self)?;
        match self.entries[..self.len].first() {
            Some((key, _)) => Err(format!("\"{kind}\" has no field \"{key}\"")),
            None => Ok(Record { at, subject, event }),
        }
    }
}

pub(crate) trait Field: Sized {
    const WHAT: &'static str;

    fn write(self, out: &mut Vec<u8>);

    fn from_value(value: Value<'_>) -> Option<Self>;

    /// Returns the value as 64 bits; different values have different bits.
    fn word(self) -> u64;
}

impl Field for u64 {
    const WHAT: &'static str = "a whole number from 0 to 18446744073709551615";
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(itoa::Buffer::new().format(self).as_bytes());
    }
    fn from_value(value: Value<'_>) -> Option<Self> {
        let Value::Number(number) = value else { return None };
        Some(number)
    }
    fn word(self) -> u64 {
        self
    }
}

impl Field for u32 {
    const WHAT: &'static str = "a whole number from 0 to 4294967295";
    fn write(self, out: &mut Vec<u8>) {
        u64::from(self).write(out);
    }
    fn from_value(value: Value<'_>) -> Option<Self> {
        u64::from_value(value).and_then(|number| Self::try_from(number).ok())
    }
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl Field for bool {
    const WHAT: &'static str = "true or false";
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self { b"true" } else { b"false" });
    }
    fn from_value(value: Value<'_>) -> Option<Self> {
        if let Value::Bool(yes) = value { Some(yes) } else { None }
    }
    fn word(self) -> u64 {
        u64::from(self)
    }
}

macro_rules! id_fields {
    ($($id:ident)*) => {$(
        impl Field for $id {
            const WHAT: &'static str = u32::WHAT;
            fn write(self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
            fn from_value(value: Value<'_>) -> Option<Self> {
                u32::from_value(value).map(Self)
            }
            fn word(self) -> u64 {
                self.0.word()
            }
        }
    )*};
}

id_fields! { NodeId FlowId LinkId }

impl Field for Option<NodeId> {
    const WHAT: &'static str = "null or a whole number from 0 to 4294967295";
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Some(node) => node.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            other => NodeId::from_value(other).map(Some),
        }
    }
    fn word(self) -> u64 {
        // 2^32 is no identifier, so "none" differs from node 0.
        self.map_or(1 << 32, Field::word)
    }
}

/// Defines the names of causes. Order and names are part of the schema.
macro_rules! words {
    ($($kind:ident { $($variant:ident $code:literal $word:literal),* $(,)? })*) => {
        /// Names of the causes in a trace, for each type of cause by its name in the code.
        pub const WORDS: &[(&str, &[&str])] = &[$((stringify!($kind), &[$($word),*])),*];

        $(
        impl Field for $kind {
            const WHAT: &'static str = concat!("one of", $(" ", $word),*);
            fn write(self, out: &mut Vec<u8>) {
                let word: &[u8] = match self {
                    $(Self::$variant => concat!("\"", $word, "\"").as_bytes()),*
                };
                out.extend_from_slice(word);
            }
            fn from_value(value: Value<'_>) -> Option<Self> {
                match value {
                    $(Value::Text($word) => Some(Self::$variant),)*
                    _ => None,
                }
            }
            fn word(self) -> u64 {
                match self {
                    $(Self::$variant => $code),*
                }
            }
        }
    )*};
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// Number in the hash of a trace; never reused.
    pub code: u64,
    pub name: &'static str,
    pub fields: &'static [&'static str],
}

words! {
    DropReason {
        QueueFull 1 "queue_full", RedEarly 2 "red_early", RedForced 3 "red_forced", Loss 4 "loss",
        TimeToLive 5 "ttl", NoRoute 6 "no_route", Listed 7 "listed",
        Burst 8 "burst", Outage 9 "outage", TooLong 10 "too_long",
    }
    CutReason {
        Loss 1 "loss", Timeout 2 "timeout", Ecn 3 "ecn", Report 4 "report",
        NoFeedback 5 "no_feedback",
    }
    TimeoutKind {
        Retransmission 1 "retransmission", Stall 2 "stall",
        NakConfirmation 3 "nak_confirmation", NakRepair 4 "nak_repair",
        SessionExpiry 5 "session_expiry",
    }
    SwitchReason {
        First 1 "first", Slower 2 "slower", Left 3 "left", Silent 4 "silent", Lied 5 "lied",
        Recovered 6 "recovered",
    }
    Shortfall {
        Silent 1 "silent", Left 2 "left", Pruned 3 "pruned", Gaps 4 "gaps", Unnamed 5 "unnamed",
    }
    NodeFaultKind {
        Stopped 1 "stopped", Resumed 2 "resumed", Killed 3 "killed", Started 4 "started", Moved 5 "moved",
    }
    BadInput {
        Truncated 1 "truncated", Malformed 2 "malformed", Checksum 3 "checksum",
        Foreign 4 "foreign", OutOfWindow 5 "out_of_window", Absurd 6 "absurd",
        Duplicate 7 "duplicate", TableFull 8 "table_full", OtherScheme 9 "other_scheme", Program 10 "program",
    }
}

/// Defines the events: code, name, shape, JSON key of each field, and default for older versions.
macro_rules! events {
    ($($code:literal $name:literal ($($shape:tt)*) [$($field:ident $key:literal $(= $default:literal)?),*];)*) => {
        /// All kinds of events.
        pub const KINDS: &[EventKind] =
            &[$(EventKind { code: $code, name: $name, fields: &[$($key),*] }),*];

        fn write_event(event: &Event, out: &mut Vec<u8>) {
            match *event {
                $($($shape)* => {
                    out.extend_from_slice(concat!(",\"kind\":\"", $name, "\"").as_bytes());
                    $(
                        out.extend_from_slice(concat!(",\"", $key, "\":").as_bytes());
                        $field.write(out);
                    )*
                })*
            }
        }

        fn read_event(kind: &str, fields: &mut Fields<'_>) -> Result<Event, String> {
            match kind {
                $($name => {
                    $(let $field = fields.take_or($key, None$(.or(Some($default)))?)?;)*
                    Ok($($shape)*)
                })*
                _ => Err(format!("there is no kind \"{kind}\"")),
            }
        }

        #[inline]
        fn event_words(event: &Event, mut push: impl FnMut(u64)) {
            match *event {
                $($($shape)* => {
                    push($code);
                    $(push($field.word());)*
                })*
            }
        }
    };
}

events! {
    1 "sent" (Event::DataSent { seq, bytes, repair })
        [seq "seq", bytes "bytes", repair "repair"];
    2 "ack" (Event::AckReceived { seq, bytes, from })
        [seq "seq", bytes "bytes", from "from"];
    3 "nak" (Event::NakReceived { seq, count, from })
        [seq "seq", count "packets", from "from"];
    4 "delivered" (Event::Delivered { seq, bytes })
        [seq "seq", bytes "bytes"];
    5 "loss" (Event::LossDetected { seq, count })
        [seq "seq", count "packets" = 1];
    6 "abandoned" (Event::Abandoned { seq, count })
        [seq "seq", count "packets" = 1];
    7 "window" (Event::Window { window_milli, flight })
        [window_milli "window_milli_packets", flight "flight_packets"];
    8 "rate" (Event::Rate { bits_per_s })
        [bits_per_s "bits_per_s"];
    9 "cut" (Event::Cut { reason, window_milli })
        [reason "reason", window_milli "window_milli_packets"];
    10 "timeout" (Event::Timeout { kind, after_ns })
        [kind "timer", after_ns "after_ns"];
    11 "representative" (Event::Representative { node, reason })
        [node "representative", reason "reason"];
    12 "rtt" (Event::RttSample { node, rtt_ns })
        [node "peer", rtt_ns "rtt_ns"];
    13 "completed" (Event::Completed { bytes })
        [bytes "bytes"];
    14 "joined" (Event::Joined) [];
    15 "left" (Event::Left) [];
    16 "bad_input" (Event::BadInput { reason })
        [reason "reason"];
    17 "nak_forwarded" (Event::NakForwarded { seq })
        [seq "seq"];
    18 "nak_suppressed" (Event::NakSuppressed { seq })
        [seq "seq"];
    19 "dropped" (Event::PacketDropped { flow, bytes, reason })
        [flow "packet_flow", bytes "bytes", reason "reason"];
    20 "link_sample" (Event::LinkSample(LinkCounters {
        offered_packets,
        sent_packets,
        sent_bytes,
        dropped_packets,
        busy_ns,
        queue_packet_ns,
        queue_packets,
        queue_max_packets,
    })) [
        offered_packets "offered_packets", sent_packets "sent_packets", sent_bytes "sent_bytes",
        dropped_packets "dropped_packets", busy_ns "busy_ns", queue_packet_ns "queue_packet_ns",
        queue_packets "queue_packets", queue_max_packets "queue_max_packets"
    ];
    21 "duplicated" (Event::PacketDuplicated { flow, bytes })
        [flow "packet_flow", bytes "bytes"];
    22 "corrupted" (Event::PacketCorrupted { flow, bytes, bit })
        [flow "packet_flow", bytes "bytes", bit "bit"];
    23 "delayed" (Event::PacketDelayed { flow, bytes, delay_ns })
        [flow "packet_flow", bytes "bytes", delay_ns "delay_ns"];
    24 "repair_head" (Event::RepairHead { node, level })
        [node "head", level "level"];
    25 "incomplete" (Event::Incomplete { node, receivers, reason })
        [node "member", receivers "receivers", reason "reason"];
    26 "loss_withdrawn" (Event::LossWithdrawn { seq, count })
        [seq "seq", count "packets"];
    27 "session_extent" (Event::SessionExtent { packets })
        [packets "packets"];
    28 "path_limit" (Event::PathLimit { arrives, sent })
        [arrives "arrives_bytes", sent "sent_bytes"];
    29 "attached" (Event::Attached { relay })
        [relay "relay"];
    30 "node_fault" (Event::NodeFault { kind })
        [kind "fault"];
}

/// Appends the record as a line of a trace file.
pub fn write_line(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"t_ns\":");
    record.at.as_nanos().write(out);
    match record.subject {
        Subject::Endpoint { flow, node, sender } => {
            out.extend_from_slice(b",\"flow\":");
            flow.write(out);
            out.extend_from_slice(if sender { b",\"sender\":" } else { b",\"receiver\":" });
            node.write(out);
        }
        Subject::Link(link) => {
            out.extend_from_slice(b",\"link\":");
            link.write(out);
        }
        Subject::Node(node) => {
            out.extend_from_slice(b",\"node\":");
            node.write(out);
        }
    }
    write_event(&record.event, out);
    out.extend_from_slice(b"}\n");
}

fn read_subject(fields: &mut Fields<'_>) -> Result<Subject, String> {
    match ["flow", "link", "node"].map(|key| fields.has(key)) {
        [true, false, false] => {
            let sender = fields.has("sender");
            let flow = fields.take("flow")?;
            let node = fields.take(if sender { "sender" } else { "receiver" })?;
            Ok(Subject::Endpoint { flow, node, sender })
        }
        [false, true, false] => fields.take("link").map(Subject::Link),
        [false, false, true] => fields.take("node").map(Subject::Node),
        _ => Err("exactly one of the fields \"flow\", \"link\" and \"node\" must be there".into()),
    }
}

/// Passes the record to `push` as words. Equal words mean equal records: the code gives the count.
#[inline]
pub(crate) fn record_words(record: &Record, mut push: impl FnMut(u64)) {
    push(record.at.as_nanos());
    let (tag, id) = match record.subject {
        Subject::Endpoint { flow, node, sender } => {
            (u64::from(sender), flow.word() << 32 | node.word())
        }
        Subject::Link(link) => (2, link.word()),
        Subject::Node(node) => (3, node.word()),
    };
    push(id);
    let mut first = true;
    event_words(&record.event, |word| {
        // The first word has the code of the event and the kind of subject.
        push(if first { word | tag << 32 } else { word });
        first = false;
    });
}
