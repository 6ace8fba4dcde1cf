//! Groups: any end multicasts, and every member receives.

use std::cell::RefCell;
use std::rc::Rc;

use faircast_proto::Membership;
use proptest::prelude::*;

use super::*;

type Heard = Rc<RefCell<Vec<(u32, Destination, u32)>>>;

#[derive(Clone, Copy, Debug)]
enum Act {
    Send { group: u32, time_to_live: u8 },
    Change(Membership),
}

struct Scripted {
    node: NodeId,
    script: Vec<(u64, Act)>,
    out: Vec<Act>,
    heard: Heard,
}

impl Machine for Scripted {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.heard.borrow_mut().push((datagram.from.0, datagram.to, self.node.0));
    }
    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let due = |act: &(u64, Act)| Time::from_nanos(act.0 * 1_000_000) <= cx.now;
        let count = self.script.partition_point(due);
        self.out.extend(self.script.drain(..count).map(|(_, act)| act));
    }
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_membership(&mut self) -> Option<Membership> {
        let place = self.out.iter().position(|act| matches!(act, Act::Change(_)))?;
        let Act::Change(change) = self.out.remove(place) else { return None };
        Some(change)
    }
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Transmit> {
        let Some(Act::Send { group, time_to_live }) = self.out.pop() else { return None };
        Some(Transmit {
            to: Destination::Group(GroupId(group)),
            zeros: 100,
            payload_len: 0,
            time_to_live,
            router_alert: false,
            wire_len: None,
        })
    }
    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        self.script.first().map(|(ms, _)| Time::from_nanos(ms * 1_000_000))
    }
}

/// Runs a script of (node, milliseconds, action). Returns the received packets and the log.
fn follow(scenario: &Scenario, scripts: &[(u32, u64, Act)]) -> (Vec<(u32, Destination, u32)>, Log) {
    let heard = Heard::default();
    let ends = Ends(|_: &Flow, node: NodeId, _: Role| -> FlowMachine {
        let own = scripts.iter().filter(|script| script.0 == node.0);
        let mut script: Vec<_> = own.map(|(_, ms, act)| (*ms, *act)).collect();
        script.sort_by_key(|(ms, _)| *ms);
        Box::new(Scripted { node, script, out: Vec::new(), heard: Rc::clone(&heard) })
    });
    let (_, log) = run_with(scenario, &ends, &mut Unobserved);
    (heard.take(), log)
}

fn heard(scenario: &Scenario, scripts: &[(u32, u64, Act)]) -> (Vec<(u32, u32, u32)>, usize) {
    let (heard, log) = follow(scenario, scripts);
    let group = |to: &Destination| match to {
        Destination::Group(group) => group.0,
        Destination::Node(_) => panic!("all of it is multicast"),
    };
    let mut heard: Vec<_> = heard.iter().map(|(a, to, b)| (*a, group(to), *b)).collect();
    heard.sort_unstable();
    (heard, log.drops(DropReason::TimeToLive))
}

const fn send(group: u32, time_to_live: u8) -> Act {
    Act::Send { group, time_to_live }
}

const fn join(group: u32) -> Act {
    Act::Change(Membership::Join(GroupId(group)))
}

const fn leave(group: u32) -> Act {
    Act::Change(Membership::Leave(GroupId(group)))
}

#[test]
fn a_multicast_by_a_receiver_reaches_the_others_and_not_itself() {
    let scenario = scenario(STAR, "cbr", &[2, 3, 4]);
    let (heard, ended) = heard(&scenario, &[(2, 100, send(0, 255)), (0, 200, send(0, 255))]);
    assert_eq!(heard, [(0, 0, 2), (0, 0, 3), (0, 0, 4), (2, 0, 3), (2, 0, 4)]);
    assert_eq!(ended, 0);
}

#[test]
fn one_hop_reaches_neighbours_and_two_go_through_a_router() {
    let line = &[(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1)];
    let scenario = scenario(line, "cbr", &[1, 2, 3, 4]);
    assert_eq!(heard(&scenario, &[(2, 1, send(0, 1))]), (vec![(2, 0, 1), (2, 0, 3)], 0));
    let two = vec![(1, 0, 2), (1, 0, 3)];
    assert_eq!(heard(&scenario, &[(1, 1, send(0, 2))]), (two, 1), "nodes 3 and 4 are too far");
    let star = super::scenario(STAR, "cbr", &[2, 3, 4]);
    assert_eq!(heard(&star, &[(2, 1, send(0, 1))]), (vec![], 0), "no host is next to another");
}

#[test]
fn a_group_has_the_members_that_have_joined_it_and_not_left() {
    let scenario = scenario(STAR, "cbr", &[2, 3, 4]);
    let scripts = [
        (0, 10, join(7)),
        (3, 10, join(7)),
        (4, 10, join(8)),
        (2, 100, send(7, 255)),
        (3, 200, leave(7)),
        (2, 300, send(7, 255)),
        (4, 300, send(7, 255)),
        (3, 310, join(7)),
        (3, 310, join(7)),
        (0, 400, send(7, 255)),
        (0, 400, send(8, 255)),
        (0, 400, send(9, 255)),
    ];
    let (heard, _) = heard(&scenario, &scripts);
    assert_eq!(heard, [(0, 7, 3), (0, 8, 4), (2, 7, 0), (2, 7, 0), (2, 7, 3), (4, 7, 0)]);
}

#[test]
fn a_branch_without_members_carries_nothing() {
    let mut scenario = scenario(STAR, "cbr", &[2, 3, 4]);
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    scenario.flows[0].join = vec![Join { node: NodeId(3), at: ms(0), leave: Some(ms(300)) }];
    let scripts = [
        (3, 10, join(7)),
        (2, 100, send(7, 255)),
        // Leaving the flow ends the memberships in all of its groups.
        (2, 400, send(7, 255)),
        (2, 400, send(0, 255)),
    ];
    let (heard, log) = follow(&scenario, &scripts);
    let of_group = |group: u32| {
        let to = Destination::Group(GroupId(group));
        heard.iter().filter(|word| word.1 == to).map(|word| word.2).collect::<Vec<_>>()
    };
    assert_eq!((of_group(7), of_group(0)), (vec![3], vec![4]));
    let carried = |link| log.last_sample(link).offered_packets;
    assert_eq!((carried(4), carried(6)), (1, 1));
}

proptest! {
    #[test]
    fn a_multicast_reaches_each_other_member_once(
        edges in prop::collection::vec((0u32..8, 0u32..8, 1u64..4), 6..14),
        members in prop::collection::btree_set(1u32..8, 1..7),
        sender in 0u32..8,
        group in 0u32..2,
    ) {
        let line = (0..7).map(|node| (node, node + 1, 3));
        let others = edges.into_iter().filter(|(a, b, _)| a != b);
        let edges: Vec<_> = line.chain(others).collect();
        let receivers: Vec<u32> = (1..8).collect();
        let mut scenario = scenario(&edges, "cbr", &receivers);
        let at = Time::from_nanos(900_000_000);
        if group == 0 {
            let absent = receivers.iter().filter(|node| !members.contains(node) && **node != sender);
            scenario.flows[0].join =
                absent.map(|node| Join { node: NodeId(*node), at, leave: None }).collect();
        }
        let mut scripts: Vec<_> = members.iter().map(|node| (*node, 1, join(group))).collect();
        scripts.retain(|_| group > 0);
        scripts.push((sender, 100, send(group, 255)));
        let (heard, ended) = heard(&scenario, &scripts);
        let others = members.iter().filter(|node| **node != sender);
        let want: Vec<_> = others.map(|node| (sender, group, *node)).collect();
        prop_assert_eq!(heard, want);
        prop_assert_eq!(ended, 0);
    }
}
