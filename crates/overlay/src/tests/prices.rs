//! Prices of links between daemons.

use alloc::vec::Vec;

use super::{World, ms, secs};
use crate::daemon::{DaemonSettings, Outgoing};
use crate::price::{Benefit, FlowControl, PriceProfile};
use crate::wire::{Control, Prices};
use crate::{ClientId, LinkId, SendError, Service};

fn settings() -> DaemonSettings {
    let flow_control = FlowControl { coin: false, ..FlowControl::profile(PriceProfile::Paper) };
    DaemonSettings { flow_control, ..DaemonSettings::default() }
}

fn chain() -> World {
    chain_with(settings())
}

fn chain_with(settings: DaemonSettings) -> World {
    let mut world = World::with(4, &[(0, 1), (1, 2), (2, 3)], 1, settings);
    world.run(secs(3));
    world.join_all("g0");
    world.run(secs(2));
    world
}

fn prices(world: &mut World) -> [f64; 4] {
    [0, 1, 2, 3].map(|at| {
        let (id, mut quote) = (world.hosts[at].clients[0].id, None);
        world.call(at, |daemon, _| {
            quote = daemon.quote(id, &Outgoing::new(Service::Fifo, &[b"g0"], &[]))
        });
        quote.unwrap().0
    })
}

/// Sends a message of the first client of daemon 1.
fn send(world: &mut World) -> Result<(), SendError> {
    let (id, mut result) = (world.hosts[1].clients[0].id, Ok(()));
    let message = Outgoing::new(Service::Fifo, &[b"g0"], b"m0");
    world.call(1, |daemon, cx| result = daemon.send(cx, id, &message));
    result
}

fn retry(world: &mut World) -> Option<ClientId> {
    world.hosts[1].daemon.as_mut().unwrap().poll_retry()
}

/// Sends daemon 1 prices from daemon 2, in the name of the daemon at place `source`.
fn tell(world: &mut World, source: u8, number: u64, links: &[(u8, u16)]) {
    tell_by(world, (2, 1), source, number, links);
    world.run(ms(200));
}

fn tell_by(
    world: &mut World,
    (by, at): (usize, usize),
    source: u8,
    number: u64,
    links: &[(u8, u16)],
) {
    let tag = world.daemon(at).view().0.tag();
    let frame = Control::Prices(Prices { tag, source, number, links: links.to_vec() }).encode();
    let is_between = |link: &&LinkId| world.connections[*link].other(at) == by;
    let link = *world.hosts[at].links.iter().find(is_between).unwrap();
    world.call(at, |daemon, cx| daemon.handle_control(cx, link, &frame));
}

const FREE: [f64; 4] = [1.0; 4];
/// Prices if the link from 2 to 3 costs $5. Daemon 2 gets no report about its own link.
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
    // A reported price of its own link changes nothing at a daemon.
    tell(&mut world, 1, 1 << 40, &[(0, u16::MAX), (2, u16::MAX)]);
    assert_eq!(prices(&mut world), FREE);
}

#[test]
fn a_client_that_cannot_pay_waits_and_hears_when_to_try_again() {
    let mut world = chain();
    tell(&mut world, 2, 1000, &[(3, 3000)]);
    let id = world.hosts[1].clients[0].id;
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
    assert_eq!(send(&mut world), Err(SendError::Price));
    let before = world.hosts[1].clients[0].id;
    world.resume(1, 0);
    let id = world.hosts[1].clients[0].id;
    assert_ne!(id, before);
    assert_eq!(send(&mut world), Err(SendError::Price));
    world.run(ms(100));
    assert_eq!(retry(&mut world), Some(id));
}

#[test]
fn a_slow_member_of_a_large_group_is_cut_and_holds_nobody_up_whatever_the_benefit() {
    for benefit in Benefit::EACH {
        let flow_control = FlowControl { benefit: *benefit, ..settings().flow_control };
        let settings =
            DaemonSettings { client_bytes: 64 << 10, flow_control, ..DaemonSettings::default() };
        let mut world = chain_with(settings);
        world.hosts[3].clients[1].reads = false;
        let mut sent = 0;
        for turn in 0..2000 {
            sent += usize::from(world.send(turn % 4, 0, Service::Fifo, &["g0"], 1000).is_ok());
            world.run(ms(10));
        }
        world.run(secs(2));
        world.hosts[3].clients[1].reads = true;
        world.read(3, 1);
        world.resume(3, 1);
        world.finish();
        assert!(sent > 1500, "{benefit:?}: {sent} of 2000 messages were cheap enough");
        for (at, client) in (0..4).flat_map(|at| [(at, 0), (at, 1)]) {
            let own = (at, client);
            let got = world.log.deliveries.iter().filter(|it| (it.at, it.client) == own).count();
            let lost = world.log.lost.iter().any(|it| (it.0, it.1) == own);
            let is_slow = own == (3, 1);
            assert_eq!((got == sent, lost), (!is_slow, is_slow), "{benefit:?}: {own:?}");
        }
    }
}

#[test]
fn two_overlays_with_different_prices_agree_once_they_merge() {
    let mut world = chain();
    world.cut(0, 1);
    world.run(secs(10));
    // A forged price of daemon 2's link. The other half of the partition knows no price.
    tell_by(&mut world, (2, 1), 1, 1000, &[(2, 500)]);
    assert_eq!(prices(&mut world), [1.0, 6.0, 1.0, 1.0]);
    world.mend(0, 1);
    world.settle(secs(20));
    world.run(secs(2));
    assert_eq!(prices(&mut world), FREE);
    tell(&mut world, 2, 2000, &[(3, 500)]);
    assert_eq!(prices(&mut world), DEAR);
}

#[test]
fn a_daemon_that_always_says_zero_loses_no_message_and_fills_no_more_than_the_retention() {
    let settings = DaemonSettings { retention_bytes: 1 << 20, ..settings() };
    let mut world = chain_with(settings);
    world.rates.insert((1, 2), 50_000);
    let (mut sent, mut full) = (0, 0);
    for turn in 0..3000 {
        // Only daemon 0 receives the false report; daemon 1, its apparent source, would correct it.
        tell_by(&mut world, (1, 0), 1, 10_000 + turn, &[(2, 0)]);
        match world.send(0, 0, Service::Fifo, &["g0"], 1400) {
            Ok(()) => sent += 1,
            Err(error) => full += usize::from(error == SendError::Retention),
        }
        world.run(ms(5));
        assert!(world.daemon(0).unstable_bytes() <= settings.retention_bytes);
    }
    assert!(sent > 500 && full > 500, "{sent} are sent, {full} wait for the retention");
    world.run(secs(120));
    assert!(world.finish() >= 8 * sent);
}

#[test]
fn a_client_that_does_not_mind_refusals_is_asked_again_once() {
    let mut world = chain();
    tell(&mut world, 2, 1000, &[(3, 3000)]);
    let id = world.hosts[1].clients[0].id;
    for _ in 0..10_000 {
        assert_eq!(send(&mut world), Err(SendError::Price));
    }
    tell(&mut world, 2, 1001, &[(3, 0)]);
    world.run(ms(100));
    assert_eq!([retry(&mut world), retry(&mut world)], [Some(id), None]);
}
