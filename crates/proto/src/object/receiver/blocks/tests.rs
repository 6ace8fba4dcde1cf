//! Tests of the receiver's blocks: symbols in any order, damage in the store, bounds of memory.

use super::*;
use crate::object::fec::ParitySource;
use crate::object::layout::BLOCK_ID_END;
use crate::object::{Announcement, InOrder};
use alloc::vec;
use core::convert::Infallible;
use faircast_base::{NodeId, Purpose, Rng};
use proptest::prelude::*;

impl Blocks {
    fn check(&self) {
        assert!(self.partial.len() <= PARTIAL_MAX && self.parity_bytes <= PARITY_BYTES_MAX);
        for part in Part::ALL {
            let block_ids = self.layout.block_ids(part);
            let absent: u64 = self.absent.within(block_ids.clone()).map(|r| r.end - r.start).sum();
            let partial = self.partial.range(block_ids).count() as u64;
            assert_eq!(absent + partial, self.left(part), "{part:?}");
        }
        for (block_id, partial) in &self.partial {
            assert!(partial.missing != 0 && partial.missing & !self.layout.mask(*block_id) == 0);
            assert!(!self.absent.contains(*block_id) && *block_id < BLOCK_ID_END);
        }
    }
}

fn announcement(content: u64) -> Announcement {
    let lens = [0, content, 0];
    Announcement { lens, growing: false, symbol_bytes: 10, object: [0; 32], digests: None }
}

fn layout(content: u64) -> Layout {
    Layout::new(&announcement(content)).unwrap()
}

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i * 13 + i / 640) as u8).collect()
}

fn symbol(layout: &Layout, all: &[u8], at: BlockId, number: u32) -> Vec<u8> {
    let bytes = |symbol| {
        let (offset, len) = layout.extent(at, symbol);
        &all[offset as usize..(offset + u64::from(len)) as usize]
    };
    if number < BLOCK_SYMBOLS {
        return bytes(number).to_vec();
    }
    let mut out = Vec::new();
    let size = (layout.symbols(at), layout.symbol_bytes);
    let written =
        ParitySource::default().write(at, number - BLOCK_SYMBOLS, size, &mut out, |out| {
            (0..layout.symbols(at)).for_each(|symbol| out.extend_from_slice(bytes(symbol)));
            out.resize((size.0 * size.1) as usize, 0);
            Ok::<_, Infallible>(true)
        });
    assert_eq!(written, Ok(0));
    out
}

proptest! {
    #[test]
    fn any_order_of_symbols_gives_the_content(seed in any::<u64>(), len in 1..2500u64) {
        let (layout, all) = (layout(len), content(len));
        let (mut blocks, mut store) = (Blocks { layout, ..Blocks::default() }, InOrder::default());
        store.begin(&announcement(len)).unwrap();
        blocks.want_part(Part::Content);
        let mut rng = Rng::new(seed, NodeId(1), Purpose::Fault);
        let block_ids = layout.block_ids(Part::Content);
        let mut sent = 0;
        while blocks.left(Part::Content) > 0 {
            let at = block_ids.start + rng.below(block_ids.end - block_ids.start);
            let number = rng.below(128) as u32;
            if number < BLOCK_SYMBOLS && number >= layout.symbols(at) {
                continue;
            }
            let bytes = symbol(&layout, &all, at, number);
            let lacks = blocks.lacks(at).map(u64::count_ones);
            let taken = blocks.take(&mut store, (at, number), &bytes, 0).unwrap();
            blocks.check();
            match taken {
                Taken::Completed => prop_assert_eq!(blocks.lacks(at), None),
                Taken::Fresh => {
                    let before = lacks.unwrap_or(layout.symbols(at));
                    prop_assert_eq!(blocks.lacks(at).map(u64::count_ones), Some(before - 1));
                }
                Taken::Useless => {}
                Taken::NoRoom => prop_assert!(false, "there is room"),
            }
            sent += 1;
            prop_assert!(sent < 100_000);
        }
        let mut got = Vec::new();
        while let Some((bytes, zeros)) = store.poll_delivered() {
            got.extend_from_slice(&bytes);
            got.resize(got.len() + zeros as usize, 0);
        }
        prop_assert_eq!(got, all);
        prop_assert_eq!(blocks.content_bytes, len);
    }

    #[test]
    fn what_was_found_and_what_was_damaged_add_up(
        len in 1..4000u64,
        found in proptest::collection::vec((0..4000u64, 0..900u64), 0..6),
        damaged in proptest::collection::vec((0..4000u64, 1..900u64), 0..6),
    ) {
        let layout = layout(len);
        let mut blocks = Blocks { layout, ..Blocks::default() };
        blocks.want_part(Part::Content);
        let mut model = vec![false; len.div_ceil(10) as usize];
        for (start, span) in found {
            let range = start.min(len)..(start + span).min(len);
            blocks.found(&range);
            blocks.check();
            for (i, here) in model.iter_mut().enumerate() {
                let symbol = i as u64 * 10..(i as u64 * 10 + 10).min(len);
                *here |= range.start <= symbol.start && symbol.end <= range.end;
            }
        }
        for (start, span) in damaged {
            let range = start.min(len)..(start + span).min(len);
            blocks.damaged(&range);
            blocks.check();
            for (i, here) in model.iter_mut().enumerate() {
                let symbol = i as u64 * 10..(i as u64 * 10 + 10).min(len);
                *here &= symbol.end <= range.start || range.end <= symbol.start || range.is_empty();
            }
        }
        let lacking: u64 = model
            .iter()
            .enumerate()
            .filter(|(_, here)| !**here)
            .map(|(i, _)| (i as u64 * 10 + 10).min(len) - i as u64 * 10)
            .sum();
        prop_assert_eq!(blocks.content_lacking(), lacking);
    }
}

#[test]
fn a_flood_of_beginnings_and_of_parity_fills_the_tables_and_no_more() {
    let layout = layout(640 * 10_000);
    let (mut blocks, mut store) = (Blocks { layout, ..Blocks::default() }, InOrder::default());
    blocks.want_part(Part::Content);
    let first = layout.block_ids(Part::Content).start;
    let mut refused = 0;
    for at in 0..10_000 {
        let taken = blocks.take(&mut store, (first + at, 0), &[7; 10], 0).unwrap();
        refused += usize::from(taken == Taken::NoRoom);
    }
    assert_eq!(refused, 10_000 - PARTIAL_MAX);
    let mut held = 0;
    for at in 0..PARTIAL_MAX as u64 {
        for number in 64..126 {
            let symbol = (first + at, number);
            let taken = blocks.take(&mut store, symbol, &[number as u8; 10], 0).unwrap();
            held += usize::from(taken == Taken::Fresh);
        }
    }
    assert_eq!(held, PARITY_BYTES_MAX / (PARITY_COST + 10));
    blocks.check();
    blocks.drop_part(Part::Content);
    assert_eq!(blocks.parity_bytes, 0);
}
