//! Writer of trace files: JSON Lines in gzip, with the header first and the outcome last.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::header::End;
use crate::schema::write_line;
use crate::{Header, Outcome, Record, Sink};

/// Writer of a trace file in bounded memory. [`finish`](Self::finish) writes the last line.
pub struct Writer<W: Write> {
    /// `None` once the writer is finished.
    to: Option<GzEncoder<W>>,
    lines: Vec<u8>,
    /// First error of the file. Records after an error are dropped.
    first_error: Option<io::Error>,
}

/// Size of the pieces passed to the compressor, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

impl Writer<BufWriter<File>> {
    /// Creates the file `path`, usually `trace.jsonl.gz`, and writes the header.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Self::new(BufWriter::new(File::create(path)?), header)
    }
}

impl<W: Write> Writer<W> {
    /// Creates a writer to `to`, and writes the header; fails as `to` does.
    pub fn new(to: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self::headless(to);
        let file = writer.to.as_mut().expect("a new writer has its file");
        serde_json::to_writer(&mut *file, header)?;
        file.write_all(b"\n")?;
        Ok(writer)
    }

    /// Creates a writer whose bytes follow the [`part`](Self::part) of a writer with the header.
    pub fn headless(to: W) -> Self {
        // Fastest level: the next one would halve the speed for a few per cent of size.
        let to = GzEncoder::new(to, Compression::fast());
        Self { to: Some(to), lines: Vec::with_capacity(PIECE_BYTES + 1024), first_error: None }
    }

    /// Ends a part of a file, without an outcome. The error is the first one of any record.
    pub fn part(mut self) -> io::Result<W> {
        self.take()?.finish()
    }

    /// Writes the outcome and ends the file. The error is the first one of any record.
    pub fn finish(mut self, outcome: &Outcome) -> io::Result<W> {
        let mut to = self.take()?;
        serde_json::to_writer(&mut to, &End { end: outcome })?;
        to.write_all(b"\n")?;
        let mut to = to.finish()?;
        to.flush()?;
        Ok(to)
    }

    fn take(&mut self) -> io::Result<GzEncoder<W>> {
        self.flush_lines();
        let to = self.to.take().expect("the call that takes the file consumes the writer");
        self.first_error.take().map_or(Ok(to), Err)
    }

    fn flush_lines(&mut self) {
        if let (None, Some(to)) = (&self.first_error, &mut self.to) {
            self.first_error = to.write_all(&self.lines).err();
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

/// Writes buffered records, also when a run panics; the compressor ends its stream when dropped.
impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        self.flush_lines();
    }
}
