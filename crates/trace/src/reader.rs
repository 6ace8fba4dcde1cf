//! Reader of trace files, which are not trusted.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};

use crate::header::End;
use crate::schema::{Fields, Value};
use crate::{Header, Outcome, Record, SCHEMA_VERSION, Sink, Subject};

/// Longest line in bytes. Headers of 100 000 nodes are far below it.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 20;

/// Reader of a compressed or plain trace file, in bounded memory.
pub struct Reader<'a> {
    lines: Lines<'a>,
    header: Header,
    /// `None` before the last line, and for a run without an end.
    outcome: Option<Outcome>,
    /// True after the last record, or an error.
    is_over: bool,
}

/// Error of a trace file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read, is not a trace, or has a newer version; with file and line.
    #[error("{0}")]
    Broken(String),
    /// The file ends early, as after a killed run; all earlier records were read.
    #[error("{0}: the file ends in the middle of a line")]
    Cut(String),
}

impl Reader<'static> {
    /// Opens the file `path` and reads the header; fails if it is no trace or has a newer version.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(file, &name),
            Err(error) => Err(ReadError::Broken(format!("{name}:1: {error}"))),
        }
    }
}

impl<'a> Reader<'a> {
    /// Reads the header from `from` as [`open`](Self::open) does; `name` is for error messages.
    pub fn new(from: impl Read + 'a, name: &str) -> Result<Self, ReadError> {
        let mut lines = Lines::new(from, name)?;
        if !lines.advance()? {
            return Err(lines.broken("the file is empty"));
        }
        let header = read_header(&lines)?;
        Ok(Self { lines, header, outcome: None, is_over: false })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the outcome after the last record; `None` before, and if the run was killed.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Returns the next record; `None` at the end, also after an invalid line.
    ///
    /// # Errors
    /// The line is invalid. The reader is at its end afterwards.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        if self.is_over {
            return Ok(None);
        }
        let result = self.read_line();
        self.is_over = !matches!(result, Ok(Some(_)));
        result
    }

    /// Feeds the remaining records to `sink`, up to an invalid line. Returns the outcome.
    ///
    /// # Errors
    /// A line is invalid. The records before it have reached `sink`.
    pub fn replay(&mut self, sink: &mut dyn Sink) -> Result<Option<&Outcome>, ReadError> {
        while let Some(record) = self.next_record()? {
            sink.record(&record);
        }
        Ok(self.outcome())
    }

    fn read_line(&mut self) -> Result<Option<Record>, ReadError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let line = &self.lines.line;
        if line.starts_with(b"{\"end\":") {
            let last: End<Outcome> =
                serde_json::from_slice(line).map_err(|e| self.lines.broken(e))?;
            self.outcome = Some(last.end);
            if self.lines.advance()? {
                return Err(self.lines.broken("there are lines after the end"));
            }
            return Ok(None);
        }
        let record = parse_record(line).map_err(|e| self.lines.broken(e))?;
        check_subject(&self.header, record.subject).map_err(|e| self.lines.broken(e))?;
        Ok(Some(record))
    }
}

fn read_header(lines: &Lines<'_>) -> Result<Header, ReadError> {
    /// Fields in the headers of all versions, parsed first to recognise newer versions.
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
        faircast: String,
    }
    let not_a_trace =
        |e: serde_json::Error| lines.broken(format!("this is not the header of a trace: {e}"));
    let version: Version = serde_json::from_slice(&lines.line).map_err(not_a_trace)?;
    if version.schema > SCHEMA_VERSION {
        let (Version { schema, faircast }, file) = (version, &lines.name);
        return Err(ReadError::Broken(format!(
            "{file}: this trace has schema version {schema}, made by faircast {faircast}; this faircast \
             reads versions up to {SCHEMA_VERSION}. Use faircast {faircast} or newer."
        )));
    }
    if version.schema == 0 {
        return Err(lines.broken("there is no schema version 0"));
    }
    let mut header: Header = serde_json::from_slice(&lines.line).map_err(not_a_trace)?;
    header.check().map_err(|e| lines.broken(e))?;
    header.escape();
    Ok(header)
}

fn check_subject(header: &Header, subject: Subject) -> Result<(), String> {
    let Header { nodes, links, flows, .. } = header;
    let (count, what, id) = match subject {
        Subject::Endpoint { flow, .. } if flow.index() >= flows.len() => {
            (flows.len(), "flow", flow.0)
        }
        Subject::Endpoint { node, .. } | Subject::Node(node) => (nodes.len(), "node", node.0),
        Subject::Link(link) => (links.len(), "link", link.0),
    };
    if (id as usize) < count { Ok(()) } else { Err(format!("the header has no {what} {id}")) }
}

pub(crate) fn parse_record(line: &[u8]) -> Result<Record, String> {
    let mut from = serde_json::Deserializer::from_slice(line);
    let fields = from.deserialize_map(FieldsVisitor).map_err(|e| without_line(&e))?;
    from.end().map_err(|e| without_line(&e))?;
    fields.into_record()
}

/// Returns the text of a JSON error without its line number, which is always 1.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column", " at column")
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::new();
        while let Some((key, value)) = map.next_entry::<&'de str, Value<'de>>()? {
            fields.push(key, value).map_err(serde::de::Error::custom)?;
        }
        Ok(fields)
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, true, false, a whole number, or a text without escapes")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(value))
    }
}

struct Lines<'a> {
    name: String,
    from: Box<dyn BufRead + 'a>,
    /// Present line without its end.
    line: Vec<u8>,
    /// Number of the present line, from 1 on.
    number: u64,
}

impl<'a> Lines<'a> {
    fn new(from: impl Read + 'a, name: &str) -> Result<Self, ReadError> {
        const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
        let name = name.to_owned();
        let mut from = BufReader::with_capacity(64 * 1024, from);
        let is_gzip = match from.fill_buf() {
            Ok(start) => start.starts_with(&GZIP_MAGIC),
            Err(error) => return Err(ReadError::Broken(format!("{name}:1: {error}"))),
        };
        let from: Box<dyn BufRead + 'a> = if is_gzip {
            Box::new(BufReader::with_capacity(64 * 1024, MultiGzDecoder::new(from)))
        } else {
            Box::new(from)
        };
        Ok(Self { name, from, line: Vec::new(), number: 0 })
    }

    /// Reads the next line into `self.line`, without its line end; false at the end of the file.
    fn advance(&mut self) -> Result<bool, ReadError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.from).take(LINE_BYTES_MAX as u64 + 1);
        if let Err(error) = limited.read_until(b'\n', &mut self.line) {
            let cut = error.kind() == io::ErrorKind::UnexpectedEof;
            return Err(if cut { self.cut() } else { self.broken(error) });
        }
        if self.line.len() > LINE_BYTES_MAX {
            return Err(self.broken(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        if self.line.is_empty() {
            return Ok(false);
        }
        if self.line.pop() != Some(b'\n') {
            return Err(self.cut());
        }
        Ok(true)
    }

    fn cut(&self) -> ReadError {
        ReadError::Cut(format!("{}:{}", self.name, self.number))
    }

    fn broken(&self, problem: impl fmt::Display) -> ReadError {
        ReadError::Broken(format!("{}:{}: {problem}", self.name, self.number))
    }
}
