//! Tests of a table of departed receivers: order of reports, room, and the names at the end.

use alloc::vec;
use proptest::prelude::*;

use faircast_base::Shortfall;

use super::*;

fn went(id: u64, joins: u16, fate: Fate) -> Departed {
    Departed { id, node: Some(NodeId(id as u32)), fate, joins, below: 0, came_from: 0 }
}

fn below(below: u32, it: Departed) -> Departed {
    Departed { below, ..it }
}

fn came_from(came_from: u64, it: Departed) -> Departed {
    Departed { came_from, ..it }
}

fn named(table: &Departures) -> (Vec<(u64, Shortfall)>, u64) {
    let (named, unnamed) = table.shortfall(|_| false, 0);
    (named.iter().map(|it| (it.id, it.reason)).collect(), unnamed)
}

#[test]
fn receivers_that_did_not_come_back_are_named_at_the_end() {
    use Fate::{Back, Complete, Gaps, Left, Pruned, Silent};
    use Shortfall as S;
    let all = [went(1, 0, Silent), went(2, 0, Left), went(3, 0, Pruned), went(4, 0, Gaps)];
    let reasons = vec![(1, S::Silent), (2, S::Left), (3, S::Pruned), (4, S::Gaps)];
    let (lost, silent, back) = (below(10, all[0]), vec![(1, S::Silent)], went(1, 1, Back));
    let found = |id, count| below(count, came_from(1, went(id, 1, Back)));
    let again = vec![all[0], back, went(1, 1, Silent)];
    let other = vec![back, found(2, 9), below(3, went(5, 0, Silent))];
    let unknown = vec![lost, came_from(99, went(7, 1, Back))];
    let pruned = below(3, went(1, 0, Pruned));
    for (case, told, want, unnamed) in [
        ("nobody", vec![], &[][..], 0),
        ("each with its reason", all.to_vec(), &reasons, 0),
        ("it came back", vec![all[0], back], &[], 0),
        ("and was lost again", again, &silent, 0),
        ("a head and all below it", vec![lost], &silent, 10),
        ("a head with some found members", vec![lost, found(2, 0), found(3, 4)], &silent, 4),
        ("a head with all members found", vec![lost, found(2, 5), found(3, 6)], &silent, 0),
        ("found, but it is back", other, &[(5, S::Silent)], 3),
        ("a head with unknown members", unknown, &silent, 9),
        ("it had all, those below it may not", vec![below(3, went(1, 0, Complete))], &[], 3),
        ("a pruned head lets go of its members", vec![pruned], &[(1, S::Pruned)], 0),
    ] {
        for backwards in [false, true] {
            let mut table = Departures::new();
            for round in 0..3 {
                let mut told = told.clone();
                if backwards {
                    told.reverse();
                }
                for departed in told {
                    assert!(table.on_report(NodeId(90 + round), departed), "{case}");
                }
            }
            assert_eq!(named(&table), (want.to_vec(), unnamed), "{case}, {backwards}");
        }
    }
}

#[test]
fn a_receiver_that_is_there_at_the_end_is_not_accused_by_others() {
    let mut table = Departures::new();
    table.record(below(7, went(1, 0, Fate::Silent)));
    let (named, unnamed) = table.shortfall(|id| id == 1, 2);
    assert_eq!((named, unnamed), (Vec::new(), 2));
}

#[test]
fn a_goodbye_after_all_says_how_it_went() {
    for (before, lacks, want) in [
        (Fate::Silent, None, None),
        (Fate::Silent, Some(Fate::Left), Some(Shortfall::Left)),
        (Fate::Silent, Some(Fate::Gaps), Some(Shortfall::Gaps)),
        (Fate::Pruned, None, Some(Shortfall::Pruned)),
    ] {
        let mut table = Departures::new();
        table.record(went(1, 0, before));
        table.amend(1, lacks);
        table.amend(2, lacks);
        let reasons: Vec<Shortfall> = named(&table).0.iter().map(|it| it.1).collect();
        assert_eq!(reasons, Vec::from_iter(want), "{before:?}, {lacks:?}");
    }
    let mut table = Departures::new();
    table.on_report(NodeId(5), went(1, 0, Fate::Silent));
    table.amend(1, None);
    assert_eq!(named(&table).0.len(), 1, "it was no member here");
}

#[test]
fn a_full_table_counts() {
    let mut table = Departures::new();
    for id in 1..=DEPARTURES_MAX as u64 {
        table.record(went(id, 0, Fate::Silent));
    }
    table.record(below(4, went(900, 0, Fate::Silent)));
    assert_eq!(table.unlisted, 5);
    assert!(!table.on_report(NodeId(1), went(901, 0, Fate::Left)), "who told counts it");
    let back = went(902, 1, Fate::Back);
    assert!(table.on_report(NodeId(1), back), "a receiver that is back needs no room");
    table.record(went(1, 1, Fate::Back));
    table.record(went(900, 0, Fate::Silent));
    let (named, unnamed) = named(&table);
    assert_eq!((named.len(), unnamed), (DEPARTURES_MAX, 5), "it takes the place of who is back");
}

#[test]
fn one_member_fills_no_table_of_the_source() {
    let mut table = Departures::new();
    table.entries_max = SOURCE_MAX;
    for id in 1..=5000 {
        assert!(table.on_report(NodeId(1), went(id, 0, Fate::Silent)));
    }
    assert_eq!(named(&table).0.len(), OF_ONE_MAX);
    for (by, id) in (2..40).zip(10_000..) {
        assert!(table.on_report(NodeId(by), went(id, 0, Fate::Silent)));
    }
    assert_eq!(named(&table).0.len(), OF_ONE_MAX + 38);
}

#[test]
fn news_is_told_a_few_times_and_again_to_another_head() {
    let mut table = Departures::new();
    table.report_again();
    assert!(table.is_empty() && !table.is_due(), "there is none");
    table.record(went(1, 0, Fate::Silent));
    for _ in 0..REPORTS {
        assert!(table.is_due());
        table.on_reported();
    }
    assert!(!table.is_due());
    table.on_report(NodeId(1), went(1, 0, Fate::Silent));
    assert!(!table.is_due(), "that is no news");
    table.report_again();
    assert!(table.is_due());
}

proptest! {
    /// A table keeps its bound, and the order of reports does not change the result.
    #[test]
    fn the_order_of_words_does_not_matter(
        words in proptest::collection::vec((1u64..12, 0u16..4, 0usize..6), 0..60), seed: u64,
    ) {
        let say = |words: &[(u64, u16, usize)]| {
            let mut table = Departures::new();
            for (id, joins, fate) in words {
                table.on_report(NodeId(1), went(*id, *joins, Fate::ALL[*fate]));
            }
            named(&table)
        };
        let mut other = words.clone();
        if !other.is_empty() {
            let middle = seed as usize % other.len();
            other.rotate_left(middle);
        }
        other.extend_from_slice(&words);
        prop_assert_eq!(say(&words), say(&other));
    }

    #[test]
    fn tables_stay_small(words in proptest::collection::vec((1u64..1000, 0usize..6, any::<bool>()), 0..300)) {
        let mut table = Departures::new();
        for (id, fate, own) in words {
            let departed = below(u32::MAX, went(id, 0, Fate::ALL[fate]));
            if own {
                table.record(departed);
            } else {
                table.on_report(NodeId(id as u32 % 3), departed);
            }
            prop_assert!(table.iter().count() <= DEPARTURES_MAX);
        }
        named(&table);
    }
}
