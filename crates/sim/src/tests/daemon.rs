//! A daemon of an overlay, in little: it forwards what comes from one neighbour to the next, without any
//! multicast of the network.

use super::*;

/// Sends on to its next neighbour what has come, or gives it to its application where there is none.
struct Daemon {
    next: Option<NodeId>,
    out: u32,
}

impl Machine for Daemon {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        cx.emit(Event::Delivered { seq: 0, bytes: datagram.zeros });
        self.out += 1;
    }
    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Transmit> {
        self.out = self.out.checked_sub(1)?;
        self.next.map(|next| packet(Destination::Node(next)))
    }
    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

#[test]
fn a_daemon_forwards_between_two_neighbours() {
    let scenario = scenario(STAR, "cbr", &[2, 3, 4]);
    let overlay = Ends(|flow: &Flow, node: NodeId, role: Role| -> FlowMachine {
        if let Role::Source(_) = role {
            let (to, next) = (Destination::Node(flow.to[0]), flow.start);
            return Box::new(Ticker { to, time_to_live: 255, next, due: false, closed: false });
        }
        let next = flow.to.iter().skip_while(|to| **to != node).nth(1).copied();
        Box::new(Daemon { next, out: 0 })
    });
    let (_, log) = run_with(&scenario, &overlay, &mut Unobserved);
    let heard = [2, 3, 4].map(|node| log.delivered_at(node).len());
    // One packet each 10 ms; each hop between daemons takes 4 ms.
    assert_eq!(heard, [100, 100, 99]);
}
