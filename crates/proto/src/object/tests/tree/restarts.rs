//! Tests of restarted receivers over TRAM, and of the session's rate meanwhile.

use super::*;

#[test]
fn receivers_that_start_again_one_after_the_other_go_on_at_once() {
    let mut tree = Tree::new(10_000_000, 1, &[("rate_max", "4 Mbit/s")]);
    tree.add(Disk::default(), &[]);
    while tree.source.machine.status().packets.symbols < 60_000 {
        tree.run_for(ms(10));
    }
    for found in [0, 1_000_000] {
        let disk = tree.disk_with(Some(0..found));
        let late = tree.add(disk, &[]);
        tree.run_for(Duration::from_secs(8));
        let status = tree.receivers[late].machine.status();
        assert!(status.bytes_done > found + 50_000, "{found}: {status:?}");
    }
    tree.run_for(Duration::from_secs(60));
    tree.assert_over();
}

#[test]
fn a_receiver_that_looks_for_long_what_it_has_keeps_nobody_waiting() {
    let mut tree = Tree::new(10_000_000, 1, &[("rate_max", "2 Mbit/s")]);
    tree.add(Disk::default(), &[]);
    tree.run_until(s(12));
    let usual = pace(&mut tree, 1)[0];
    let disk = Disk { slowness: u32::MAX, ..tree.disk_with(Some(0..1_000_000)) };
    let late = tree.add(disk, &[]);
    let during = pace(&mut tree, 12);
    let slow = during.iter().filter(|sent| **sent < usual * 9 / 10).count();
    assert!(slow <= 2, "usually {usual}: {during:?}");
    assert_eq!(tree.receivers[late].machine.status().bytes_done, 0);
    tree.disks[late].lock().unwrap().slowness = 0;
    tree.run_for(Duration::from_secs(60));
    tree.assert_over();
}

/// Returns the symbols sent in each half second of the next `seconds`.
fn pace(tree: &mut Tree, seconds: u64) -> Vec<u64> {
    let sent = |tree: &Tree| tree.source.machine.status().packets.symbols;
    let halves = (0..2 * seconds).map(|_| {
        let before = sent(tree);
        tree.run_for(ms(500));
        sent(tree) - before
    });
    halves.collect()
}

#[test]
fn a_program_that_is_killed_or_stopped_holds_the_session_up_for_seconds() {
    for killed_ms in [None, Some(1500), Some(3600)] {
        for which in 0..3 {
            let mut tree = Tree::new(12_000_000, 3, &[("rate_max", "2 Mbit/s")]);
            tree.add_all(3, &[]);
            tree.run_until(s(12));
            let usual = pace(&mut tree, 1)[0];
            match killed_ms {
                Some(pause) => tree.kill(which, ms(pause), &[]),
                None => tree.paused = Some(which),
            }
            let case = alloc::format!("{which}, killed for {killed_ms:?} ms, usually {usual}");
            let during = pace(&mut tree, 14);
            tree.go_on();
            let before = tree.receivers[which].machine.status().bytes_done;
            let after = pace(&mut tree, 10);
            let slow = |halves: &[u64]| halves.iter().filter(|it| **it < usual * 8 / 10).count();
            assert!(slow(&during) <= 2 * 9, "{case}: {during:?}");
            assert!(slow(&after) <= 2 * 4, "{case}: {after:?}");
            let done = tree.receivers[which].machine.status().bytes_done - before;
            assert!(done >= after.iter().sum::<u64>() * 6 / 10 * 100, "{case}: {done} bytes");
            tree.run_for(Duration::from_secs(60));
            tree.assert_over();
        }
    }
}

#[test]
fn the_earlier_self_of_a_receiver_at_another_address_holds_the_session_up_for_less() {
    // Half seconds below 0.8 of the usual rate.
    let slow = |which: usize, name: &str| {
        let mut tree = Tree::new(12_000_000, 3, &[("rate_max", "2 Mbit/s")]);
        tree.add_all(3, &[]);
        tree.run_until(s(12));
        let usual = pace(&mut tree, 1)[0];
        assert!(usual > 100, "{usual}");
        let found = tree.receivers[which].machine.status().bytes_done;
        tree.paused = Some(which);
        let disk = tree.disk_with(Some(0..found));
        let late = tree.add_named(name, disk, &[]);
        let during = pace(&mut tree, 12);
        let done = tree.receivers[late].machine.status().bytes_done;
        assert!(done > found + 100_000, "{which}, {name}: {done} bytes");
        during.iter().filter(|sent| **sent < usual * 8 / 10).count()
    };
    for which in 0..3 {
        let (same, other) = (slow(which, &alloc::format!("r{which}")), slow(which, "other"));
        assert!(same <= 2 * 5 && same + 3 <= other, "{which}: {same} and {other} half seconds");
    }
}
