//! Minimal repair head that retransmits to a local group on request; the source gets no NAKs.

use std::collections::BTreeSet;

use faircast_proto::Membership;

use super::*;

const HEAD: NodeId = NodeId(2);
const LOCAL: GroupId = GroupId(1);

struct Numbered {
    next: u32,
    sent: u32,
    start: Time,
}

#[derive(Default)]
struct Member {
    head: bool,
    joined: bool,
    has: BTreeSet<u32>,
    out: Vec<(Destination, u32)>,
}

fn numbered(buf: &mut Vec<u8>, to: Destination, number: u32) -> Transmit {
    buf.extend_from_slice(&number.to_be_bytes());
    packet(to)
}

impl Machine for Numbered {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _cx: &mut Cx<'_>, _datagram: Datagram<'_>) {
        panic!("all repair is local");
    }
    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        let ms = cx.now.since(self.start).as_millis() as u32;
        self.next = (1 + ms).min(500);
    }
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        (self.sent < self.next).then(|| {
            self.sent += 1;
            numbered(buf, Destination::Group(GroupId::SESSION), self.sent)
        })
    }
    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        let next = self.start + Duration::from_millis(u64::from(self.next));
        (self.next < 500).then_some(next)
    }
}

impl Machine for Member {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let Ok(number) = datagram.bytes.try_into().map(u32::from_be_bytes) else { return };
        if datagram.to == Destination::Node(HEAD) {
            if self.has.contains(&number) {
                self.out.push((Destination::Group(LOCAL), number));
            }
            return;
        }
        let highest = self.has.last().copied().unwrap_or(0);
        let asks = if self.head { 0..0 } else { highest + 1..number };
        self.out.extend(asks.map(|missing| (Destination::Node(HEAD), missing)));
        if self.has.insert(number) {
            cx.emit(Event::Delivered { seq: u64::from(number), bytes: PACKET });
        }
    }
    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_membership(&mut self) -> Option<Membership> {
        (!std::mem::replace(&mut self.joined, true)).then_some(Membership::Join(LOCAL))
    }
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.out.pop().map(|(to, number)| numbered(buf, to, number))
    }
    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

#[test]
fn what_members_lose_their_head_repairs() {
    let mut scenario = scenario(STAR, "cbr", &[2, 3, 4]);
    // The branches of two members drop some original packets, but no retransmissions.
    scenario.links[4].config.drop_list = vec![3, 50, 51, 200];
    scenario.links[6].config.drop_list = vec![50, 120];
    let ends = Ends(|flow: &Flow, node: NodeId, role: Role| -> FlowMachine {
        match role {
            Role::Source(_) => Box::new(Numbered { next: 0, sent: 0, start: flow.start }),
            _ => Box::new(Member { head: node == HEAD, ..Member::default() }),
        }
    });
    let (_, log) = run_with(&scenario, &ends, &mut Unobserved);
    let lost = log.0.iter().filter(|r| matches!(r.event, Event::PacketDropped { .. })).count();
    assert_eq!(lost, 6);
    for member in [2, 3, 4] {
        assert_eq!(log.delivered_at(member).len(), 500, "member {member} has each packet once");
    }
}
