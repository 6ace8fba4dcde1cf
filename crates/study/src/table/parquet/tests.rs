//! Independent reader for the writer's files, made from the format's description alone.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::super::tests::small;
use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Thrift {
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Thrift>),
    Struct(BTreeMap<u8, Thrift>),
}

impl Thrift {
    fn at(&self, id: u8) -> &Self {
        match self {
            Self::Struct(fields) => fields.get(&id).unwrap_or_else(|| panic!("{id} in {self:?}")),
            other => panic!("no structure: {other:?}"),
        }
    }

    fn has(&self, id: u8) -> bool {
        matches!(self, Self::Struct(fields) if fields.contains_key(&id))
    }

    fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("no number: {other:?}"),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("no text: {other:?}"),
        }
    }

    fn list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            other => panic!("no list: {other:?}"),
        }
    }
}

fn byte(from: &mut &[u8]) -> u8 {
    let (first, rest) = from.split_first().expect("there is more");
    *from = rest;
    *first
}

fn varint_of(from: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let next = byte(from);
        number |= u64::from(next & 0x7f) << shift;
        shift += 7;
        if next < 0x80 {
            return number;
        }
    }
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(length);
    *from = rest;
    taken
}

fn value(kind: u8, from: &mut &[u8]) -> Thrift {
    match kind {
        I32 | I64 => {
            let number = varint_of(from);
            Thrift::Number((number >> 1) as i64 ^ -((number & 1) as i64))
        }
        BINARY => {
            let length = varint_of(from) as usize;
            Thrift::Bytes(take(from, length).to_vec())
        }
        LIST => {
            let head = byte(from);
            let items = match head >> 4 {
                15 => varint_of(from),
                few => u64::from(few),
            };
            Thrift::List((0..items).map(|_| value(head & 15, from)).collect())
        }
        STRUCT => {
            let (mut fields, mut id) = (BTreeMap::new(), 0);
            loop {
                let head = byte(from);
                if head == 0 {
                    return Thrift::Struct(fields);
                }
                id += head >> 4;
                fields.insert(id, value(head & 15, from));
            }
        }
        other => panic!("type {other}"),
    }
}

fn column(file: &[u8], schema: &Thrift, data: &Thrift, rows: usize) -> Vec<Value> {
    let offset = data.at(9).number() as usize;
    let length = data.at(7).number() as usize;
    let mut bytes = &file[offset..offset + length];
    let header = value(STRUCT, &mut bytes);
    assert_eq!(header.at(3).number() as usize, bytes.len());
    assert_eq!(header.at(5).at(1).number() as usize, rows);
    let mut page = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut page).unwrap();
    assert_eq!(header.at(2).number() as usize, page.len());
    let mut page = &page[..];
    let length = u32::from_le_bytes(take(&mut page, 4).try_into().unwrap());
    let mut levels = take(&mut page, length as usize);
    let head = varint_of(&mut levels);
    assert_eq!((head & 1, head >> 1), (1, rows.div_ceil(8) as u64), "one packed run");
    let bit = |bytes: &[u8], i: usize| bytes[i / 8] >> (i % 8) & 1 == 1;
    let mut flags = 0;
    let cells = (0..rows).map(|row| match (bit(levels, row), schema.at(1).number()) {
        (false, _) => Value::Null,
        (true, 0) => {
            flags += 1;
            Value::from(bit(page, flags - 1))
        }
        (true, 2) => Value::from(i64::from_le_bytes(take(&mut page, 8).try_into().unwrap())),
        (true, 5) => Value::from(f64::from_le_bytes(take(&mut page, 8).try_into().unwrap())),
        (true, 6) => {
            assert_eq!(schema.at(6).number(), UTF8);
            let length = u32::from_le_bytes(take(&mut page, 4).try_into().unwrap());
            let text = take(&mut page, length as usize);
            Value::from(String::from_utf8(text.to_vec()).unwrap())
        }
        (true, other) => panic!("type {other}"),
    });
    cells.collect()
}

fn read(file: &[u8]) -> Vec<(String, Vec<Value>)> {
    assert!(file.starts_with(MAGIC) && file.ends_with(MAGIC));
    let end = file.len() - 8;
    let length = u32::from_le_bytes(file[end..end + 4].try_into().unwrap()) as usize;
    let mut metadata = &file[end - length..end];
    let metadata = value(STRUCT, &mut metadata);
    let schema = metadata.at(2).list();
    assert_eq!(schema[0].at(5).number() as usize, schema.len() - 1);
    let rows = metadata.at(3).number() as usize;
    let [group] = metadata.at(4).list() else { panic!("one row group") };
    assert_eq!(group.at(3).number() as usize, rows);
    let columns = schema[1..].iter().zip(group.at(1).list()).map(|(schema, chunk)| {
        let (name, data) = (schema.at(4).text(), chunk.at(3));
        assert_eq!(data.at(3).list()[0].text(), name);
        assert!(!schema.has(5), "a column has no children");
        (name, column(file, schema, data, rows))
    });
    columns.collect()
}

#[test]
fn what_was_written_is_read_back() {
    let table = small();
    let columns = read(&table.parquet());
    assert_eq!(columns.len(), 4);
    for (place, (name, cells)) in columns.iter().enumerate() {
        assert_eq!(*name, table.columns[place].0);
        let want: Vec<Value> = table.rows.iter().map(|row| row[place].clone()).collect();
        assert_eq!(*cells, want, "{name}");
    }
}

#[test]
fn many_rows_and_many_columns_are_read_back() {
    let columns = (0..20).map(|i| (format!("c{i}"), ColumnType::Whole)).collect();
    let mut table = Table::new(columns);
    for row in 0..1000_i64 {
        let cell = |column: i64| match (row + column) % 3 {
            0 => Value::Null,
            _ => Value::from(row * column - 500),
        };
        table.push((0..20_i64).map(cell).collect());
    }
    let read = read(&table.parquet());
    assert_eq!(read[19].1[999], Value::from(999 * 19 - 500));
    assert_eq!(read[3].1.iter().filter(|cell| **cell == Value::Null).count(), 334);
    assert_eq!(
        self::read(&Table::new(vec![("a".into(), ColumnType::Text)]).parquet())[0].1,
        Vec::<Value>::new()
    );
}
