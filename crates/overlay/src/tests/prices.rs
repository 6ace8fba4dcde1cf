//! Prices of links among daemons.

use alloc::vec::Vec;

use super::{World, ms, secs};
use crate::daemon::{DaemonSettings, Outgoing};
use crate::price::{FlowControl, PriceProfile};
use crate::wire::{Control, Prices};
use crate::{LinkId, SendError, Service};

fn settings() -> DaemonSettings {
    let flow_control = FlowControl { coin: false, ..FlowControl::profile(PriceProfile::Paper) };
    DaemonSettings { flow_control, ..DaemonSettings::default() }
}

/// Chain of four daemons in one view, with members of `g0` everywhere.
fn chain() -> World {
    let mut world = World::with(4, &[(0, 1), (1, 2), (2, 3)], 1, settings());
    world.run(secs(3));
    world.join_all("g0");
    world.run(secs(2));
    world
}

/// Price of a message of a client of each daemon to all daemons.
fn prices(world: &mut World) -> [f64; 4] {
    [0, 1, 2, 3].map(|at| {
        let (id, mut offer) = (world.hosts[at].clients[0].id, None);
        world.call(at, |daemon, _| offer = daemon.offer(id, Service::Fifo, &[b"g0"]));
        offer.unwrap().0
    })
}

/// Has daemon 2 tell daemon 1 prices of links in the name of the daemon at place `source`.
fn tell(world: &mut World, source: u8, number: u64, links: &[(u8, u16)]) {
    let tag = world.daemon(1).view().0.tag();
    let frame = Control::Prices(Prices { tag, source, number, links: links.to_vec() }).encode();
    let is_between = |link: &&LinkId| world.connections[*link].other(1) == 2;
    let link = *world.hosts[1].links.iter().find(is_between).unwrap();
    world.call(1, |daemon, cx| daemon.handle_control(cx, link, &frame));
    world.run(ms(200));
}

const FREE: [f64; 4] = [1.0; 4];
/// The link from 2 to 3 costs $5. Daemon 2 is not told of its own link.
const DEAR: [f64; 4] = [6.0, 6.0, 1.0, 1.0];

#[test]
fn a_price_reaches_all_daemons_and_counts_where_its_link_is_used() {
    let mut world = chain();
    assert_eq!(prices(&mut world), FREE, "nothing waits: the fee alone");
    tell(&mut world, 2, 1000, &[(3, 500)]);
    assert_eq!(prices(&mut world), DEAR);
    tell(&mut world, 2, 1001, &[(3, 0)]);
    assert_eq!(prices(&mut world), FREE);
}

#[test]
fn a_daemon_knows_all_links_of_its_view_and_an_unknown_price_is_not_zero() {
    let mut world = chain();
    tell(&mut world, 2, 1000, &[(3, 500)]);
    let links = |world: &World, at: usize| -> Vec<_> {
        let members = world.daemon(at).view().1.to_vec();
        let place = |run| members.iter().position(|it| *it == run).unwrap();
        world.daemon(at).view_links().map(|it| (it.ends.map(place), it.prices)).collect()
    };
    let free = [Some(0.0); 2];
    let want = [([0, 1], free), ([1, 2], free), ([2, 3], [Some(5.0), Some(0.0)])];
    assert_eq!(links(&world, 1), want);
    assert!(world.daemon(1).view_links().all(|it| it.cost_us > 0));
    world.cut(2, 3);
    world.run(secs(10));
    assert_eq!(links(&world, 1), [([0, 1], free), ([1, 2], free)]);
    let mut world = World::new(2, &[(0, 1)], 1);
    world.run(secs(3));
    assert_eq!(links(&world, 0), [([0, 1], [None, None])]);
}

#[test]
fn a_price_that_is_old_or_of_nobody_changes_nothing_and_a_view_forgets_who_is_gone() {
    let mut world = chain();
    tell(&mut world, 2, 1000, &[(3, 500)]);
    tell(&mut world, 2, 999, &[(3, 100)]);
    tell(&mut world, 9, 5000, &[(3, 100)]);
    tell(&mut world, 2, 1001, &[(200, 100)]);
    assert_eq!(prices(&mut world), DEAR);
    world.cut(2, 3);
    world.run(secs(10));
    assert_eq!(world.daemon(1).view().1.len(), 3);
    assert_eq!(prices(&mut world), FREE);
}

#[test]
fn a_lie_in_the_name_of_another_daemon_lasts_until_that_daemon_hears_it() {
    let mut world = chain();
    tell(&mut world, 0, 1 << 40, &[(1, u16::MAX)]);
    world.run(secs(1));
    assert_eq!(prices(&mut world), FREE);
    // A price of its own link changes nothing at a daemon.
    tell(&mut world, 1, 1 << 40, &[(0, u16::MAX), (2, u16::MAX)]);
    assert_eq!(prices(&mut world), FREE);
}

#[test]
fn a_client_that_cannot_pay_waits_and_hears_when_to_try_again() {
    let mut world = chain();
    tell(&mut world, 2, 1000, &[(3, 3000)]);
    let id = world.hosts[1].clients[0].id;
    let send = |world: &mut World| {
        let (message, mut result) = (Outgoing::new(Service::Fifo, &[b"g0"], b"m0"), Ok(()));
        world.call(1, |daemon, cx| result = daemon.send(cx, id, &message));
        result
    };
    let retry = |world: &mut World| world.hosts[1].daemon.as_mut().unwrap().poll_retry();
    assert_eq!(send(&mut world), Err(SendError::Price));
    assert_eq!(retry(&mut world), None);
    world.run(ms(100));
    assert_eq!(retry(&mut world), Some(id));
    assert_eq!(send(&mut world), Err(SendError::Price));
    let (_, waited) = world.daemon(1).purse(world.now, id).unwrap();
    assert!(waited >= ms(100), "{waited}");
    tell(&mut world, 2, 1001, &[(3, 0)]);
    world.run(ms(100));
    assert_eq!(send(&mut world), Ok(()));
    let (money, _) = world.daemon(1).purse(world.now, id).unwrap();
    assert!((0.0..20.0).contains(&money), "{money}");
}

#[test]
fn a_client_that_waits_for_money_and_resumes_hears_when_to_try_again() {
    let mut world = chain();
    tell(&mut world, 2, 1000, &[(3, 3000)]);
    let send = |world: &mut World| {
        let (id, mut result) = (world.hosts[1].clients[0].id, Ok(()));
        let message = Outgoing::new(Service::Fifo, &[b"g0"], b"m0");
        world.call(1, |daemon, cx| result = daemon.send(cx, id, &message));
        result
    };
    assert_eq!(send(&mut world), Err(SendError::Price));
    let before = world.hosts[1].clients[0].id;
    world.resume(1, 0);
    let id = world.hosts[1].clients[0].id;
    assert_ne!(id, before);
    assert_eq!(send(&mut world), Err(SendError::Price));
    world.run(ms(100));
    assert_eq!(world.hosts[1].daemon.as_mut().unwrap().poll_retry(), Some(id));
}
