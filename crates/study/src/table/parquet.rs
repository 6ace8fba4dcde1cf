//! Writer of Apache Parquet files: one row group, one gzip-compressed page a column.
//!
//! The crate `parquet` would cost a dozen crates and half a minute to compile. Source:
//! <https://parquet.apache.org/docs/file-format> (2.10), metadata in Thrift's compact protocol.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use serde_json::Value;

use super::{ColumnType, Table};

const MAGIC: &[u8] = b"PAR1";

// Numbers of the format's enumerations.
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const GZIP: i64 = 2;
const DATA_PAGE: i64 = 0;
const OPTIONAL: i64 = 1;
const UTF8: i64 = 0;

// Types of the compact protocol.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

struct Chunk {
    offset: usize,
    compressed: usize,
    uncompressed: usize,
}

pub(super) fn parquet(table: &Table) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    let chunks: Vec<Chunk> =
        (0..table.columns.len()).map(|column| chunk(table, column, &mut file)).collect();
    let metadata = metadata(table, &chunks);
    file.extend_from_slice(&metadata);
    let length = u32::try_from(metadata.len()).expect("names are short");
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(MAGIC);
    file
}

fn chunk(table: &Table, column: usize, file: &mut Vec<u8>) -> Chunk {
    let cells = || table.rows.iter().map(|row| &row[column]);
    let mut page = levels(cells());
    match table.columns[column].1 {
        ColumnType::Flag => page.extend(bits(cells().filter_map(Value::as_bool))),
        kind => cells().for_each(|cell| plain(kind, cell, &mut page)),
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&page).expect("memory takes everything");
    let compressed = encoder.finish().expect("memory takes everything");
    let mut header = Compact::default();
    header.number(1, I32, DATA_PAGE);
    header.number(2, I32, len(&page));
    header.number(3, I32, len(&compressed));
    header.field(5, STRUCT);
    header.nested(|data| {
        data.number(1, I32, count(table.rows.len()));
        data.number(2, I32, PLAIN);
        data.number(3, I32, RLE);
        data.number(4, I32, RLE);
    });
    let header = header.finish();
    let chunk = Chunk {
        offset: file.len(),
        compressed: header.len() + compressed.len(),
        uncompressed: header.len() + page.len(),
    };
    file.extend_from_slice(&header);
    file.extend_from_slice(&compressed);
    chunk
}

/// Returns a bit for each cell that is not null: a bit-packed run of the hybrid encoding.
fn levels<'a>(cells: impl ExactSizeIterator<Item = &'a Value>) -> Vec<u8> {
    let groups = cells.len().div_ceil(8);
    let mut run = Vec::new();
    varint((groups as u64) << 1 | 1, &mut run);
    run.extend(bits(cells.map(|cell| !cell.is_null())));
    let length = u32::try_from(run.len()).expect("a table has fewer rows than that");
    [&length.to_le_bytes()[..], &run].concat()
}

fn bits(flags: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut packed: Vec<u8> = Vec::new();
    for (i, flag) in flags.enumerate() {
        if i % 8 == 0 {
            packed.push(0);
        }
        *packed.last_mut().expect("one was pushed") |= u8::from(flag) << (i % 8);
    }
    packed
}

fn plain(kind: ColumnType, cell: &Value, page: &mut Vec<u8>) {
    match (kind, cell) {
        (ColumnType::Float, Value::Number(number)) => {
            page.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        }
        (_, Value::Number(number)) => {
            page.extend_from_slice(&number.as_i64().unwrap_or(i64::MAX).to_le_bytes());
        }
        (_, Value::String(text)) => {
            let length = u32::try_from(text.len()).expect("texts are short");
            page.extend_from_slice(&length.to_le_bytes());
            page.extend_from_slice(text.as_bytes());
        }
        _ => {}
    }
}

fn physical(kind: ColumnType) -> i64 {
    match kind {
        ColumnType::Flag => 0,
        ColumnType::Whole => 2,
        ColumnType::Float => 5,
        ColumnType::Text => 6,
    }
}

fn metadata(table: &Table, chunks: &[Chunk]) -> Vec<u8> {
    let mut file = Compact::default();
    file.number(1, I32, 1);
    file.list(2, STRUCT, 1 + table.columns.len());
    file.nested(|root| {
        root.binary(4, "table");
        root.number(5, I32, count(table.columns.len()));
    });
    for (name, kind) in &table.columns {
        file.nested(|column| {
            column.number(1, I32, physical(*kind));
            column.number(3, I32, OPTIONAL);
            column.binary(4, name);
            if *kind == ColumnType::Text {
                column.number(6, I32, UTF8);
            }
        });
    }
    file.number(3, I64, count(table.rows.len()));
    file.list(4, STRUCT, 1);
    file.nested(|group| {
        group.list(1, STRUCT, chunks.len());
        for (chunk, (name, kind)) in chunks.iter().zip(&table.columns) {
            group.nested(|column| {
                column.number(2, I64, count(chunk.offset));
                column.field(3, STRUCT);
                column.nested(|data| {
                    data.number(1, I32, physical(*kind));
                    data.list(2, I32, 2);
                    data.zigzag(PLAIN);
                    data.zigzag(RLE);
                    data.list(3, BINARY, 1);
                    data.text(name);
                    data.number(4, I32, GZIP);
                    data.number(5, I64, count(table.rows.len()));
                    data.number(6, I64, count(chunk.uncompressed));
                    data.number(7, I64, count(chunk.compressed));
                    data.number(9, I64, count(chunk.offset));
                });
            });
        }
        let bytes: usize = chunks.iter().map(|chunk| chunk.uncompressed).sum();
        group.number(2, I64, count(bytes));
        group.number(3, I64, count(table.rows.len()));
    });
    file.binary(6, concat!("faircast ", env!("CARGO_PKG_VERSION")));
    file.finish()
}

fn len(bytes: &[u8]) -> i64 {
    count(bytes.len())
}

fn count(count: usize) -> i64 {
    i64::try_from(count).expect("nothing is as long")
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[derive(Default)]
struct Compact {
    out: Vec<u8>,
    /// Id of the previous field: the next id is encoded as a difference.
    last: u8,
}

impl Compact {
    /// Writes the header of a field. Ids must rise by less than 16.
    fn field(&mut self, id: u8, kind: u8) {
        self.out.push((id - self.last) << 4 | kind);
        self.last = id;
    }

    fn number(&mut self, id: u8, kind: u8, number: i64) {
        self.field(id, kind);
        self.zigzag(number);
    }

    fn binary(&mut self, id: u8, text: &str) {
        self.field(id, BINARY);
        self.text(text);
    }

    fn list(&mut self, id: u8, kind: u8, items: usize) {
        self.field(id, LIST);
        match items {
            0..15 => self.out.push((items as u8) << 4 | kind),
            _ => {
                self.out.push(0xf0 | kind);
                varint(items as u64, &mut self.out);
            }
        }
    }

    fn zigzag(&mut self, number: i64) {
        varint(((number << 1) ^ (number >> 63)) as u64, &mut self.out);
    }

    fn text(&mut self, text: &str) {
        varint(text.len() as u64, &mut self.out);
        self.out.extend_from_slice(text.as_bytes());
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self)) {
        let last = std::mem::take(&mut self.last);
        write(self);
        self.out.push(0);
        self.last = last;
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(0);
        self.out
    }
}

#[cfg(test)]
mod tests;
