//! Tests of objects in faulty networks.

use alloc::vec;
use alloc::vec::Vec;

use faircast_base::Rng;

use super::world::*;
use crate::object::Fec;
use crate::pgm::wire::PacketType;

#[test]
fn loss_of_all_kinds_of_packets_is_made_up_for() {
    for fec in [Fec::Auto, Fec::Off, Fec::Ratio(0.1)] {
        for percent in [0, 1, 5, 10, 20, 30] {
            let choices = Choices { fec, wait_for: 3, ..Choices::default() };
            let share = f64::from(percent) / 100.0;
            let mut world = World::new(120_000, 3, &choices, 1).with_network(losing(share));
            world.complete_by(s(2000));
            assert!(world.source.said(&FlowEvent::Completed), "{fec:?} {percent} %");
            assert_eq!(world.source.machine.next_timeout(), None, "{fec:?} {percent} %");
            // Each lost symbol is sent once more, and each lost repair again.
            let share = 1.0 - (1.0 - share).powi(3);
            let proactive = if fec == Fec::Ratio(0.1) { 0.12 } else { 0.0 };
            let most = 1.15 / (1.0 - share) + proactive;
            let overhead = world.overhead();
            assert!(overhead < most, "{fec:?} {percent} %: {overhead}, not below {most}");
        }
    }
}

#[test]
fn bursts_reordering_copies_and_damage_are_borne() {
    type Fault = fn(&Hop<'_>, &mut Rng) -> Fate;
    let faults: [(&str, Fault); 5] = [
        ("outages of half a second", |hop, _| {
            let phase = hop.now.as_nanos() / 1_000_000 % 2000;
            if phase < 500 { Fate::drop() } else { Fate::pass() }
        }),
        ("reordering", |_, rng| Fate { delays: vec![DELAY + rng.up_to(ms(15))], damage: false }),
        ("copies", |_, rng| {
            let late = DELAY + rng.up_to(ms(300));
            Fate { delays: vec![DELAY, late], damage: false }
        }),
        ("damage", |_, rng| Fate { delays: vec![DELAY], damage: rng.chance(0.05) }),
        ("all at once", |_, rng| {
            let copies = rng.below(3) as usize;
            let delays = (0..copies).map(|_| DELAY + rng.up_to(ms(40))).collect();
            Fate { delays, damage: rng.chance(0.02) }
        }),
    ];
    for (case, fault) in faults {
        for fec in [Fec::Auto, Fec::Off] {
            let choices = Choices { fec, wait_for: 3, ..Choices::default() };
            let mut world = World::new(120_000, 3, &choices, 2).with_network(fault);
            world.complete_by(s(2000));
            assert!(world.source.said(&FlowEvent::Completed), "{case} {fec:?}");
        }
    }
}

#[test]
fn faults_that_stop_leave_nothing_behind() {
    let mut world = World::new(400_000, 3, &Choices::default(), 3)
        .with_network(losing_if(|hop, _| hop.now > s(0) + ms(300) && hop.now < s(9)));
    world.run_until(s(9));
    assert!(world.receivers.iter().all(|host| host.app.is_empty()), "it was not over before");
    world.complete_by(s(300));
}

#[test]
fn who_comes_late_gets_all() {
    for fec in [Fec::Auto, Fec::Off] {
        let choices = Choices { fec, ..Choices::default() };
        let mut world = World::new(600_000, 2, &choices, 4).with_network(losing_data(0.01));
        world.spacing = ms(1);
        for at in [2, 3, 5] {
            world.add(Disk::default(), s(at));
        }
        world.run_until(s(4));
        let status = world.source.machine.status();
        assert!(status.packets.symbols > 1000, "it is under way: {status:?}");
        world.complete_by(s(300));
        let overhead = world.overhead();
        assert!(overhead < 2.1, "the sweep goes round once more, not {overhead} times");
    }
}

#[test]
fn what_is_there_already_is_not_sent_again() {
    let content = 640_000;
    let mut world = World::new(content, 0, &Choices::default(), 5);
    let mut disk = Disk { slowness: 5, ..Disk::default() };
    disk.parts[1] = world.object.0[1].to_vec();
    disk.found = vec![0..200_000, 250_050..400_070, 500_000..600_000];
    for gap in [200_000..250_050, 400_070..500_000, 600_000..content] {
        disk.parts[1][gap].fill(0xee);
    }
    let i = world.add(disk, s(0));
    world.complete_by(s(100));
    let status = world.receivers[i].machine.status();
    assert!((449_700..=450_020).contains(&status.bytes_found), "{status:?}");
    assert_eq!(status.bytes_done, content as u64);
    let overhead = world.overhead();
    assert!(overhead < 0.33, "190 of 640 kB were missing: {overhead}");
}

#[test]
fn one_who_has_it_all_is_done_at_once() {
    let mut world = World::new(64_000, 1, &Choices::default(), 5);
    let mut disk = Disk { found: Vec::from_iter(Some(0..64_000)), ..Disk::default() };
    disk.parts[1] = world.object.0[1].to_vec();
    world.add(disk, s(0));
    world.complete_by(s(100));
}

#[test]
fn what_is_found_damaged_is_sent_again() {
    let mut world = World::new(300_000, 1, &Choices::default(), 6);
    let disk = Disk { damaged: vec![0..1, 99_950..150_050, 299_999..300_000], ..Disk::default() };
    let i = world.add(disk, s(0));
    world.complete_by(s(100));
    assert_eq!(world.disks[i].lock().unwrap().taken, 300_000 + 100 + 50_200 + 100);
    assert_eq!(world.receivers[i].machine.status().bytes_done, 300_000);
    let overhead = world.overhead();
    assert!(overhead < 1.4, "{overhead}");
}

#[test]
fn a_source_that_is_started_again_goes_on_where_it_was() {
    let mut world = World::new(600_000, 3, &Choices::default(), 7).with_network(losing_data(0.02));
    world.run_until(s(1));
    let before: u64 = world.receivers.iter().map(|host| host.machine.status().bytes_done).sum();
    assert!(before > 20_000 && before < 1_500_000, "it is under way: {before}");
    world.restart_source(&Choices::default());
    world.complete_by(s(200));
    let overhead = world.overhead();
    let missing = 1.0 - before as f64 / 1_800_000.0;
    assert!(overhead < missing * 1.3, "{overhead}, where {missing} was missing");
}

#[test]
fn receivers_killed_at_any_moment_that_come_back_get_all() {
    let (mut resumed, mut interrupted) = (0, 0);
    for moment in 0..60 {
        for sender in [false, true] {
            let mut world =
                World::new(120_000, 2, &Choices::default(), moment).with_network(losing(0.02));
            world.run_until(at(20 * moment + moment % 7));
            let status = world.receivers[1].machine.status();
            interrupted += usize::from(status.bytes_done > 0 && status.bytes_done < 120_000);
            if sender {
                world.restart_source(&Choices::default());
            } else {
                world.restart_receiver(1);
            }
            world.complete_by(s(60));
            assert!(world.source.said(&FlowEvent::Completed), "{moment}, sender: {sender}");
            let found = world.receivers[1].machine.status().bytes_found;
            resumed += usize::from(found > 0 && found < 120_000);
        }
    }
    assert!(resumed > 10 && interrupted > 40, "{resumed} {interrupted}");
}

#[test]
fn what_an_earlier_start_of_a_source_sent_and_comes_late_is_borne() {
    // Data sent before the restart arrives long after the first packet of the new start.
    let mut world = World::new(400_000, 2, &Choices::default(), 13).with_network(|hop, _| {
        let late = hop.is_data() && hop.now > s(1) - ms(50) && hop.now < s(1);
        Fate { delays: vec![if late { ms(700) } else { DELAY }], damage: false }
    });
    world.run_until(s(1));
    let before = world.source.data_sent;
    assert!(world.receivers[0].completed_at().is_none() && before > 500, "{before}");
    world.restart_source(&Choices::default());
    world.complete_by(s(30));
}

#[test]
fn receivers_that_join_every_second_all_get_all() {
    let mut world = World::new(600_000, 1, &Choices::default(), 12).with_network(losing(0.02));
    world.spacing = ms(2);
    for second in 1..20 {
        world.add(Disk::default(), s(second));
    }
    world.run_until(s(10));
    let status = world.source.machine.status();
    assert!(status.packets.symbols > 2000 && status.members.len() > 8, "{status:?}");
    world.complete_by(s(300));
    assert!(world.source.said(&FlowEvent::Completed));
}

#[test]
fn lost_requests_and_confirmations_delay_but_do_not_stop() {
    for (case, kind, option) in [
        ("requests", PacketType::Nnak, 0x21),
        ("confirmations", PacketType::Ncf, 0x22),
        ("members' messages", PacketType::Spmr, 0x23),
        ("answers", PacketType::Spm, 0x23),
    ] {
        let choices = Choices { wait_for: 3, ..Choices::default() };
        let mut world =
            World::new(120_000, 3, &choices, 8).with_network(losing_if(move |hop, rng| {
                let hit = hop.kind == kind && hop.has(option) && rng.chance(0.5);
                hit || hop.is_data() && rng.chance(0.05)
            }));
        world.complete_by(s(600));
        assert!(world.overhead() < 1.6, "{case}: {}", world.overhead());
    }
}
