//! Tests of a head: admission, answers, advertisements and pruning.

use faircast_base::{Purpose, Rng};

use super::*;
use crate::tram::settings::{Pruning, RepairCast, RightEdge};
use crate::tram::window::{REPAIR_INTERVAL, Repair};
use crate::tram::wire::Packet;
use crate::world::at;

const FIT: HeadStatus = HeadStatus {
    level: 2,
    can_serve: true,
    low: 1,
    high: 99,
    first_kept: 1,
    done: false,
    id: 50,
    name: 6,
};

/// Head with its repair service.
struct Service {
    head: Head,
    repairer: Repairer,
}

impl core::ops::Deref for Service {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

impl core::ops::DerefMut for Service {
    fn deref_mut(&mut self) -> &mut Head {
        &mut self.head
    }
}

impl Service {
    fn on_ack(
        &mut self,
        now: Time,
        from: (NodeId, u64),
        ack: &Ack<'_>,
        end: (u64, u64),
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) -> Checked<bool> {
        self.head.on_ack(now, from, ack, end, &mut self.repairer, can_repair)
    }

    fn on_timeout(&mut self, now: Time, end: u64) -> Vec<NodeId> {
        self.head.on_timeout(now, end, &self.repairer)
    }

    fn next_repair(&mut self, now: Time) -> Option<Repair> {
        let repair = self.repairer.next(now, self.head.members.reach())?;
        self.head.members.on_repair(repair.sequence, repair.to);
        Some(repair)
    }
}

fn head(change: impl FnOnce(&mut TramSettings)) -> (Service, TramSettings) {
    let mut settings = TramSettings { ack_window: 10, members_max: 4, ..TramSettings::default() };
    change(&mut settings);
    let repairer = Repairer::new(&settings, 1);
    (Service { head: Head::new(&settings, HeadRole::Reluctant), repairer }, settings)
}

fn call(role: HeadRole) -> Solicitation {
    Solicitation { role, name: 0 }
}

fn sent(head: &mut Service, now: u64, status: HeadStatus) -> Vec<(Transmit, Vec<u8>)> {
    let mut rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
    let mut cx = Cx::untraced(at(now), &mut rng);
    let (mut identity, mut all) = (Identity::new(7), Vec::new());
    loop {
        let mut buf = Vec::new();
        let Some(transmit) = head.poll(&mut cx, &mut identity, status, false, &mut buf) else {
            return all;
        };
        all.push((transmit, buf));
    }
}

fn bodies(all: &[(Transmit, Vec<u8>)]) -> Vec<Body<'_>> {
    all.iter().map(|(_, bytes)| Packet::decode(bytes).unwrap().body).collect()
}

fn asks(first_missing: u64, name: u64) -> Bind {
    Bind { role: HeadRole::Reluctant, distance: 3, joins: 0, first_missing, name }
}

fn bind(head: &mut Service, node: u32, first_missing: u64) -> Result<(), BadInput> {
    let status = HeadStatus { first_kept: head.repairer.cache.first, ..FIT };
    head.on_bind(at(0), NodeId(node), node.into(), asks(first_missing, 0), status)
}

fn acknowledges(head: &mut Service, node: u32, ack: &Ack<'_>) -> Checked<bool> {
    let has = |cache: &Cache, sequence| cache.get(sequence).is_some();
    head.on_ack(at(1), (NodeId(node), node.into()), ack, (100, 0), has)
}

fn has(first_missing: u64) -> Ack<'static> {
    Ack { first_missing, allowed: first_missing + 15, ..Ack::default() }
}

#[test]
fn a_newcomer_is_promised_what_the_policy_says() {
    use LateJoin::{Full, Limited, None};
    for (late_join, first_missing, want) in
        [(None, 0, 100), (Limited, 0, 30), (Full, 0, 1), (None, 40, 40), (Full, 100, 100)]
    {
        let (mut head, _) = head(|it| it.late_join = late_join);
        head.repairer.cache.forget(30);
        bind(&mut head, 1, first_missing).unwrap();
        let all = sent(&mut head, 0, FIT);
        let accept = Accept { start: want, level: 2 };
        assert_eq!(bodies(&all), [Body::Accept(accept)], "{late_join:?}, {first_missing}");
    }
    let (mut head, _) = head(|_| ());
    assert_eq!(bind(&mut head, 1, 200 + JUMP_MAX), Err(BadInput::Absurd));
    assert!(sent(&mut head, 0, FIT).is_empty() && head.members.by_node.is_empty());
}

#[test]
fn who_is_called_by_name_says_where_it_is_even_without_a_head() {
    let (mut head, _) = head(|_| ());
    let no = HeadStatus { can_serve: false, ..FIT };
    let heard = (NodeId(1), 4, false);
    for (name, status) in [(7, FIT), (0, no)] {
        let call = Solicitation { role: HeadRole::Eager, name };
        head.on_solicitation(at(0), heard, call, status);
        assert!(sent(&mut head, 0, status).is_empty(), "{name}");
    }
    let call = Solicitation { role: HeadRole::Never, name: 6 };
    head.on_solicitation(at(0), heard, call, no);
    let all = sent(&mut head, 0, no);
    let [Body::Advertisement(said)] = bodies(&all)[..] else { panic!("{all:?}") };
    assert_eq!((said.name, said.level, said.state), (6, 0, HeadState::NotAccepting));
    head.on_solicitation(at(0), heard, call, HeadStatus { name: 0, ..FIT });
    assert!(sent(&mut head, 0, FIT).is_empty());
}

#[test]
fn who_has_no_head_or_resigns_takes_nobody() {
    let (mut head, _) = head(|_| ());
    let no = HeadStatus { can_serve: false, ..FIT };
    head.on_bind(at(0), NodeId(1), 1, Bind { role: HeadRole::Eager, ..asks(0, 0) }, no).unwrap();
    assert_eq!(bodies(&sent(&mut head, 0, no)), [Body::Reject(RejectReason::Resigning)]);
    head.resign(true);
    bind(&mut head, 1, 0).unwrap();
    assert_eq!(bodies(&sent(&mut head, 0, FIT)), [Body::Reject(RejectReason::Resigning)]);
    head.on_solicitation(at(0), (NodeId(1), 4, false), call(HeadRole::Eager), FIT);
    assert!(sent(&mut head, 0, FIT).is_empty());
}

#[test]
fn who_is_no_member_is_told_so_and_changes_nothing() {
    let (mut head, _) = head(|_| ());
    let told = Ack { mask: &[0x80], ..has(5) };
    assert_eq!(acknowledges(&mut head, 1, &told), Err(BadInput::Foreign));
    assert!(!head.repairer.is_waiting());
    assert_eq!(bodies(&sent(&mut head, 0, FIT)), [Body::Reject(RejectReason::NoMember)]);
    let goodbye = Ack { leaves: true, ..has(5) };
    assert!(acknowledges(&mut head, 1, &goodbye).is_err());
    assert!(sent(&mut head, 0, FIT).is_empty());
}

#[test]
fn a_member_in_whose_place_another_has_joined_is_told_that_it_is_none() {
    let (mut head, _) = head(|_| ());
    bind(&mut head, 1, 5).unwrap();
    // Any host can forge a request in the name of this node.
    let forged = Bind { role: HeadRole::Never, ..asks(5, 0) };
    head.on_bind(at(0), NodeId(1), 77, forged, FIT).unwrap();
    sent(&mut head, 0, FIT);
    assert_eq!(acknowledges(&mut head, 1, &has(5)), Err(BadInput::Foreign));
    assert_eq!(bodies(&sent(&mut head, 0, FIT)), [Body::Reject(RejectReason::NoMember)]);
    bind(&mut head, 1, 5).unwrap();
    assert!(acknowledges(&mut head, 1, &has(5)).is_ok(), "it is one again");
}

#[test]
fn answers_that_wait_are_bounded_and_each_is_given_once() {
    let (mut head, _) = head(|it| it.members_max = 4096);
    for node in (0..2 * REPLIES_MAX as u32).flat_map(|node| [node, node]) {
        head.on_solicitation(at(0), (NodeId(node), 4, false), call(HeadRole::Never), FIT);
    }
    let all = sent(&mut head, 0, FIT);
    assert_eq!(all.len(), REPLIES_MAX);
    let once = |to| all.iter().filter(|(other, _)| other.to == to).count() == 1;
    assert!(all.iter().all(|(it, _)| once(it.to)));
}

#[test]
fn what_a_member_lacks_is_repaired_or_waited_for() {
    let (mut head, _) = head(|_| ());
    bind(&mut head, 1, 5).unwrap();
    head.repairer.cache.insert(5, b"five", 0);
    acknowledges(&mut head, 1, &Ack { mask: &[0xc0], ..has(5) }).unwrap();
    let repair = head.next_repair(at(1)).unwrap();
    assert_eq!((repair.sequence, repair.to), (5, Destination::Node(NodeId(1))));
    assert_eq!(head.next_repair(at(1)), None, "6 is not here");
    head.repairer.on_packet(6, false);
    assert_eq!(head.next_repair(at(2)).map(|it| it.sequence), Some(6));
}

/// Members 1 to 4: first missing packet, allowed packet, loss, and true if it is from below.
fn with_members(
    change: impl FnOnce(&mut TramSettings),
    of: [(u64, u64, u16, bool); 4],
) -> (Service, TramSettings) {
    let (mut head, settings) = head(change);
    for (node, (first_missing, allowed, loss, of_subtree)) in (1..).zip(of) {
        bind(&mut head, node, 1).unwrap();
        let members = u16::from(of_subtree);
        let ack = Ack { first_missing, allowed, loss, of_subtree, members, ..Ack::default() };
        let first = Ack { first_missing: 1, allowed: 16, members, ..Ack::default() };
        let none = |_: &Cache, _| false;
        head.on_ack(at(0), (NodeId(node), node.into()), &first, (1, 0), none).unwrap();
        acknowledges(&mut head, node, &ack).unwrap();
    }
    sent(&mut head, 1, FIT);
    (head, settings)
}

fn left(head: &Head) -> Vec<u32> {
    head.members.iter().map(|(node, _)| node.0).collect()
}

#[test]
fn members_whose_own_loss_is_the_worst_are_pruned_or_the_one_that_is_furthest_behind() {
    let all =
        [(100, 115, 0, false), (80, 95, 955, false), (60, 75, 1000, false), (50, 65, 1000, true)];
    for (pruning, right_edge, worst, want) in [
        (Pruning::Off, RightEdge::Plain, 1000, &[1, 2, 3, 4][..]),
        (Pruning::Centralised, RightEdge::Plain, 1000, &[1, 4]),
        (Pruning::Centralised, RightEdge::Plain, 2000, &[1, 2, 3, 4]),
        (Pruning::Centralised, RightEdge::Plain, 0, &[1, 4]),
        (Pruning::Decentralised, RightEdge::Plain, 1000, &[1, 2, 4]),
        (Pruning::Decentralised, RightEdge::Rounded, 1000, &[1, 2, 4]),
    ] {
        let set = |it: &mut TramSettings| (it.pruning, it.right_edge) = (pruning, right_edge);
        let (mut head, settings) = with_members(set, all);
        head.prune(&settings, worst, 99);
        assert_eq!(left(&head), want, "{pruning:?}, {right_edge:?}, {worst}");
        let told = sent(&mut head, 2, FIT);
        assert_eq!(told.len(), 4 - want.len());
        let pruned = Body::Reject(RejectReason::Pruned);
        assert!(bodies(&told).iter().all(|body| *body == pruned));
    }
}

#[test]
fn a_member_that_stands_still_is_told_that_it_is_none_any_more() {
    let all =
        [(100, 115, 0, false), (100, 115, 0, false), (80, 95, 0, false), (100, 115, 0, false)];
    let (mut head, settings) = with_members(|_| (), all);
    let mut now = 1;
    while left(&head).contains(&3) {
        now += settings.hello_interval.as_nanos() / 1_000_000;
        assert!(now < 60_000, "it is waited for");
        for (node, first_missing) in [(1, 100), (2, 100), (3, 80), (4, 100)] {
            let ack = has(first_missing);
            let _ = head.on_ack(at(now), (NodeId(node), node.into()), &ack, (100, 0), |_, _| true);
        }
        let gone = head.on_timeout(at(now), 100);
        assert!(gone.iter().all(|node| *node == NodeId(3)));
    }
    assert!(now >= settings.ack_interval_max.as_nanos() / 1_000_000 * 10);
    assert_eq!(left(&head), [1, 2, 4]);
    let told = sent(&mut head, now, FIT);
    let no_member = |(it, bytes): &(Transmit, Vec<u8>)| {
        let body = Packet::decode(bytes).unwrap().body;
        it.to == Destination::Node(NodeId(3)) && body == Body::Reject(RejectReason::NoMember)
    };
    assert!(told.iter().any(no_member));
}

#[test]
fn a_head_stands_for_its_lan_and_is_quiet_where_another_does() {
    let (mut head, settings) = head(|it| it.lan = 1);
    head.begin(at(0), Formation::Advertise);
    head.on_timeout(at(0), 1);
    let flags = |all: &[(Transmit, Vec<u8>)]| -> Vec<(u8, bool)> {
        let lan = |(it, bytes): &(Transmit, Vec<u8>)| match Packet::decode(bytes).unwrap().body {
            Body::Advertisement(said) => (it.time_to_live, said.lan),
            other => panic!("{other:?}"),
        };
        all.iter().map(lan).collect()
    };
    assert_eq!(flags(&sent(&mut head, 0, FIT)), [(1, true), (2, false)]);
    let (members, members_max, low, lan) = (0, 5, 1, true);
    let (state, role, level) = (HeadState::Accepting, HeadRole::Reluctant, 2);
    let other = Advertisement { state, role, level, members, members_max, low, lan, name: 0 };
    head.election.on_advertisement(at(1), (NodeId(3), FIT.id - 1, 1), &other);
    let next = settings.advertise_interval.as_nanos() / 1_000_000;
    head.on_timeout(at(next), 1);
    head.on_solicitation(at(next), (NodeId(8), 4, false), call(HeadRole::Never), FIT);
    assert!(sent(&mut head, next, FIT).is_empty(), "another one is its LAN's head");
    let full = Advertisement { state: HeadState::NotAccepting, ..other };
    head.election.on_advertisement(at(next + 1), (NodeId(3), FIT.id - 1, 1), &full);
    head.on_timeout(at(3 * next), 1);
    assert_eq!(flags(&sent(&mut head, 3 * next, FIT)), [(1, true), (6, false)]);
}

fn repairs_in_vain(members: u32, catches_up: bool) -> [usize; 3] {
    let (mut head, _) = head(|it| it.repair = RepairCast::Scope);
    let lacks = if catches_up { 5 } else { 100 };
    assert!(head.repairer.cache.insert(5, &[1], 0) && head.repairer.cache.insert(100, &[1], 0));
    for node in 1..=members {
        let asks = Bind { distance: 1, ..asks(5, 0) };
        head.on_bind(at(0), NodeId(node), node.into(), asks, FIT).unwrap();
        for _ in 0..if catches_up { 0 } else { 2 } {
            acknowledges(&mut head, node, &has(100)).unwrap();
        }
    }
    let ack = Ack { mask: &[0x80], ..has(lacks) };
    let mut kinds = [0; 3];
    for round in 1..=15 {
        let now = at(1 + round * REPAIR_INTERVAL.as_nanos() / 1_000_000);
        let has = |cache: &Cache, sequence| cache.get(sequence).is_some();
        for node in 1..=members {
            head.on_ack(now, (NodeId(node), node.into()), &ack, (101, 0), has).unwrap();
        }
        while let Some(repair) = head.next_repair(now) {
            let kind = match (repair.to, repair.ttl) {
                (Destination::Node(_), _) => 2,
                (_, ttl) => usize::from(ttl > 1),
            };
            assert!(kinds[kind + 1..].iter().all(|count| *count == 0), "{kinds:?} {repair:?}");
            kinds[kind] += 1;
        }
    }
    kinds
}

#[test]
fn members_that_repairs_within_their_reach_do_not_reach_have_them_alone_and_many_have_them_from_further()
 {
    for catches_up in [false, true] {
        assert_eq!(repairs_in_vain(1, catches_up), [3, 0, 12]);
        assert_eq!(repairs_in_vain(2, catches_up), [3, 0, 24]);
        assert_eq!(repairs_in_vain(3, catches_up), [10, 5, 0]);
    }
}

#[test]
fn the_earlier_member_of_a_name_is_asked_and_leaves_where_it_does_not_answer() {
    for (case, name, binds, answers, stays) in [
        ("killed", 7, true, false, false),
        ("killed, and elsewhere now", 7, false, false, false),
        ("alive", 7, true, true, true),
        ("of another name", 8, true, false, true),
        ("without a name", 0, true, false, true),
    ] {
        let (mut head, _) = head(|_| ());
        for (node, name) in [(1, 7), (2, 5), (3, 0)] {
            head.on_bind(at(0), NodeId(node), node.into(), asks(90, name), FIT).unwrap();
            acknowledges(&mut head, node, &has(95)).unwrap();
        }
        let mut asked = 0;
        for ms in (0..1500).step_by(50) {
            if ms % 500 == 0 && binds {
                head.on_bind(at(ms), NodeId(4), 4, asks(90, name), FIT).unwrap();
            } else if ms % 500 == 0 {
                head.supersede(at(ms), None, name);
            }
            head.on_timeout(at(ms), 100);
            let told = sent(&mut head, ms, FIT);
            for (transmit, bytes) in &told {
                let Body::Hello(hello) = Packet::decode(bytes).unwrap().body else { continue };
                if hello.asks(1) && transmit.to == Destination::Node(NodeId(1)) {
                    asked += 1;
                    if answers {
                        acknowledges(&mut head, 1, &has(95)).unwrap();
                    }
                }
            }
        }
        assert_eq!(left(&head).contains(&1), stays, "{case}");
        assert_eq!(left(&head).contains(&4), binds, "{case}");
        assert!(left(&head).contains(&2) && left(&head).contains(&3), "{case}");
        assert_eq!(asked > 0, name == 7, "{case}");
    }
}
