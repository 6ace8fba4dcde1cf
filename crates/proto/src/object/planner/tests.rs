//! Tests of the planner, each with blocks (over PGM) and with symbols (over TRAM) as units.

use super::*;
use crate::object::layout::{BLOCK_SYMBOLS, Layout, block_id};
use crate::object::{Announcement, ObjectResult, Supply};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use faircast_base::{NodeId, Purpose, Rng};

/// Parts of 2, 9 and 1 blocks, all whole.
const BLOCKS: [u64; 3] = [2, 9, 1];
const SYMBOL_BYTES: u16 = 2;

struct NoBytes;

impl Supply for NoBytes {
    fn len(&self, part: Part) -> u64 {
        BLOCKS[part as usize] * u64::from(BLOCK_SYMBOLS) * u64::from(SYMBOL_BYTES)
    }

    fn object(&self) -> [u8; 32] {
        [0; 32]
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        Ok(Some([0; 32]))
    }

    fn read(&mut self, _: Part, _: u64, len: u32, _: &mut Vec<u8>) -> ObjectResult<u32> {
        Ok(len)
    }
}

/// Planner with the offer of an object, addressed by the n-th unit of a part.
struct Bench {
    planner: Planner,
    offer: Offer,
}

impl Bench {
    /// Returns a bench for each kind of unit; `begun` is true if every part may be sent.
    fn both(begun: bool) -> [Self; 2] {
        [Planner::new(1), Planner::new(BLOCK_SYMBOLS)].map(|planner| {
            let mut offer = Offer::new(Box::new(NoBytes), SYMBOL_BYTES);
            if begun {
                offer.begun = true;
                assert!(offer.poll_digests());
            }
            Self { planner, offer }
        })
    }

    fn unit(&self, part: Part, n: u64) -> Unit {
        block_id(part, 0) * self.planner.units_per_block + n
    }

    fn units(&self, part: Part) -> Range<Unit> {
        let count = BLOCKS[part as usize] * self.planner.units_per_block;
        self.unit(part, 0)..self.unit(part, count)
    }

    fn request(&mut self, units: Range<Unit>) {
        self.planner.request([units], [], |repeats| repeats);
    }

    fn send(&mut self) -> Option<Unit> {
        let unit = self.planner.next(&self.offer)?;
        self.planner.on_sent(unit);
        Some(unit)
    }
}

#[test]
fn the_manifest_goes_first_and_the_sweep_goes_round() {
    for mut bench in Bench::both(true) {
        let content = |n| (Part::Content, n);
        let wanted = [content(3), content(5), content(8), (Part::Digests, 0)];
        for (part, n) in wanted {
            let unit = bench.unit(part, n);
            bench.request(unit..unit + 1);
        }
        assert_eq!(bench.send(), Some(bench.unit(Part::Content, 3)));
        assert_eq!(bench.send(), Some(bench.unit(Part::Content, 5)));
        // Passed units wait for the next round, and a manifest moves nothing.
        for unit in [bench.unit(Part::Content, 4), bench.unit(Part::Manifest, 1)] {
            bench.request(unit..unit + 1);
        }
        for (part, n) in [(Part::Manifest, 1), content(8), (Part::Digests, 0), content(4)] {
            assert_eq!(bench.send(), Some(bench.unit(part, n)));
        }
        assert_eq!(bench.send(), None);
        assert!(bench.planner.requested.is_empty());
    }
}

#[test]
fn a_part_waits_until_the_offer_allows_it() {
    for mut bench in Bench::both(false) {
        let [content, digests] = [Part::Content, Part::Digests].map(|part| bench.unit(part, 0));
        bench.request(digests..digests + 1);
        bench.request(content..content + 1);
        assert_eq!(bench.send(), None, "content has not begun");
        let manifest = bench.unit(Part::Manifest, 0);
        bench.request(manifest..manifest + 1);
        assert_eq!((bench.send(), bench.send()), (Some(manifest), None));
        bench.offer.begun = true;
        assert_eq!((bench.send(), bench.send()), (Some(content), None), "digests are unknown");
        assert!(bench.offer.poll_digests());
        assert_eq!((bench.send(), bench.send()), (Some(digests), None));
    }
}

#[test]
fn units_under_way_are_not_planned_and_repeats_are_limited() {
    for mut bench in Bench::both(true) {
        let at = |n| bench.unit(Part::Content, n);
        let (all, first, under_way) = (at(0)..at(8), at(0)..at(4), at(2)..at(3));
        bench.request(first.clone());
        while bench.send().is_some() {}
        let planner = &mut bench.planner;
        let asked = |count| {
            move |repeats| {
                assert_eq!(repeats, count);
                1
            }
        };
        assert!(planner.request([all.clone()], [under_way.clone()], asked(3)));
        let requested: Vec<_> = planner.requested.iter().collect();
        assert_eq!(requested, [first.start..first.start + 1, first.end..all.end]);
        let none = |_| panic!("no unit repeats");
        let planned = first.start..first.start + 1;
        assert!(!planner.request([planned], [], none), "it is planned");
        assert!(!planner.request([first.clone()], [first.clone()], none), "it comes anyway");
        assert!(planner.sent.contains(first.start) && !planner.sent.contains(first.end));
    }
}

#[test]
fn a_flood_of_requests_joins_runs() {
    for mut bench in Bench::both(true) {
        let content = bench.unit(Part::Content, 0);
        let unit = |n| 3 * n + content;
        let flood = (0..RUNS_MAX as u64 + 100).map(|n| unit(n)..unit(n) + 1);
        bench.planner.request(flood, [], |repeats| repeats);
        assert!(bench.planner.requested.len() <= RUNS_MAX);
        for n in 0..2 * RUNS_MAX as u64 + 100 {
            bench.planner.on_sent(3 * n + (1 << 40));
        }
        assert!(bench.planner.sent.len() <= 2 * RUNS_MAX);
    }
}

/// Receivers with random beginnings, which lose half of the units, get all that they lack, and
/// nothing else is sent.
#[test]
fn all_receivers_get_what_they_lack_however_much_is_lost() {
    for seed in 0..20 {
        for mut bench in Bench::both(true) {
            let mut rng = Rng::new(seed, NodeId(0), Purpose::Fault);
            let all: Vec<Unit> = Part::ALL.iter().flat_map(|part| bench.units(*part)).collect();
            let mut receivers: Vec<BTreeSet<Unit>> =
                (0..3).map(|_| all.iter().copied().filter(|_| rng.chance(0.3)).collect()).collect();
            for round in 0.. {
                assert!(round < 100, "seed {seed}: {receivers:?}");
                let mut lacking = BTreeSet::new();
                for units in &receivers {
                    lacking.extend(units.iter().copied());
                    let ranges = units.iter().map(|unit| *unit..*unit + 1);
                    bench.planner.request(ranges, [], |repeats| repeats);
                }
                if lacking.is_empty() {
                    break;
                }
                let sent: Vec<_> = core::iter::from_fn(|| bench.send()).collect();
                assert_eq!(sent.iter().copied().collect::<BTreeSet<_>>(), lacking);
                assert_eq!(sent.len(), lacking.len(), "each is sent once");
                for unit in sent {
                    for units in receivers.iter_mut().filter(|_| rng.chance(0.5)) {
                        units.remove(&unit);
                    }
                }
            }
        }
    }
}

#[test]
fn an_offer_grows_ends_and_fails_with_its_supply() {
    struct Pipe(u64, bool);
    impl Supply for Pipe {
        fn len(&self, part: Part) -> u64 {
            if part == Part::Content { self.0 } else { 0 }
        }
        fn growing(&self) -> bool {
            self.1
        }
        fn object(&self) -> [u8; 32] {
            [0; 32]
        }
        fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
            Ok((!self.1).then_some([7; 32]))
        }
        fn read(&mut self, _: Part, _: u64, _: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
            out.push(1);
            Err(crate::object::ObjectError::new("gone"))
        }
    }
    let block = u64::from(BLOCK_SYMBOLS * 2);
    let mut offer = Offer::new(Box::new(Pipe(block + 5, true)), 2);
    assert_eq!(offer.layout.len(Part::Content), block, "whole blocks are announced");
    assert!(!offer.poll_growth(|_| true) && !offer.poll_digests());
    offer.supply = Box::new(Pipe(3 * block, true));
    assert!(!offer.poll_growth(|grown: &Announcement| !grown.growing), "it is too early");
    assert!(offer.poll_growth(|_| true) && offer.announcement.len(Part::Content) == 3 * block);
    offer.supply = Box::new(Pipe(3 * block + 5, false));
    assert!(offer.poll_growth(|_| true) && !offer.announcement.growing);
    assert!(offer.poll_digests() && !offer.poll_digests(), "they become known once");
    let mut out = alloc::vec![9];
    let len = offer.write_payload(12, &mut out, |offer, out| {
        out.push(8);
        offer.read_symbol(block_id(Part::Content, 0), 0, out)
    });
    assert_eq!((len, &out[..], offer.failed.as_deref()), (12, &[9][..], Some("gone")));
    let odd = Offer::new(Box::new(NoBytes), 3);
    assert!(odd.failed.is_some() && odd.layout == Layout::default());
}
