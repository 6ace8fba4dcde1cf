//! Trace files: JSON Lines in gzip. The first line is the header, the last one the outcome.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::schema::write_record;
use crate::{Header, Outcome, Record, Sink};

/// Writes a trace file while the run goes on, in bounded memory.
///
/// A run that ends without [`finish`](Self::finish) leaves a file without its last line; the reader
/// says so.
pub struct Writer<W: Write> {
    /// `None` only once it is finished.
    to: Option<GzEncoder<W>>,
    lines: Vec<u8>,
    broken: Option<io::Error>,
}

/// Lines are handed to the compressor in pieces of about this size, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

impl Writer<BufWriter<File>> {
    /// Makes the file `path`, usually `trace.jsonl.gz`, and writes the header.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Self::new(BufWriter::new(File::create(path)?), header)
    }
}

impl<W: Write> Writer<W> {
    /// Writes the header to `to`.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W, header: &Header) -> io::Result<Self> {
        // The fastest level: traces are long, and a second level would halve the speed for a few
        // per cent of size.
        let mut to = GzEncoder::new(to, Compression::fast());
        serde_json::to_writer(&mut to, header)?;
        to.write_all(b"\n")?;
        Ok(Self { to: Some(to), lines: Vec::with_capacity(PIECE_BYTES + 1024), broken: None })
    }

    /// Writes records and outcome alone, for drivers that know the header only at the end: what
    /// [`part`](Self::part) leaves of a writer with the header, and then these bytes, make a file.
    pub fn headless(to: W) -> Self {
        let to = GzEncoder::new(to, Compression::fast());
        Self { to: Some(to), lines: Vec::with_capacity(PIECE_BYTES + 1024), broken: None }
    }

    /// Ends this part of a file, without an outcome: see [`headless`](Self::headless).
    ///
    /// # Errors
    /// The first error that writing met, now or at an earlier record.
    pub fn part(mut self) -> io::Result<W> {
        self.take()?.finish()
    }

    /// Writes the outcome and ends the file.
    ///
    /// # Errors
    /// The first error that writing met, now or at an earlier record.
    pub fn finish(mut self, outcome: &Outcome) -> io::Result<W> {
        let mut to = self.take()?;
        serde_json::to_writer(&mut to, &End { end: outcome })?;
        to.write_all(b"\n")?;
        let mut to = to.finish()?;
        to.flush()?;
        Ok(to)
    }

    /// The compressor, with all records in it.
    fn take(&mut self) -> io::Result<GzEncoder<W>> {
        self.flush_lines();
        let to = self.to.take().expect("whoever takes it consumes the writer");
        self.broken.take().map_or(Ok(to), Err)
    }

    fn flush_lines(&mut self) {
        if let (None, Some(to)) = (&self.broken, &mut self.to) {
            self.broken = to.write_all(&self.lines).err();
        }
        self.lines.clear();
    }
}

impl<W: Write> Sink for Writer<W> {
    fn record(&mut self, record: &Record) {
        write_line(record, &mut self.lines);
        if self.lines.len() >= PIECE_BYTES {
            self.flush_lines();
        }
    }
}

/// A run that panics keeps what it recorded; the compressor ends its stream when it is dropped.
impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        self.flush_lines();
    }
}

/// Appends the record as one line of a trace file.
pub fn write_line(record: &Record, out: &mut Vec<u8>) {
    write_record(record, out);
    out.push(b'\n');
}

/// The last line.
#[derive(Serialize)]
struct End<'a> {
    end: &'a Outcome,
}
