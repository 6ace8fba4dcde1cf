//! Machine that echoes received data, for tests of drivers.

use faircast_base::{Cx, NodeId, Time};
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit};

pub(crate) struct Echo {
    head: Vec<u8>,
    #[allow(dead_code, reason = "not every test looks at it")]
    pub(crate) seen: Vec<(NodeId, usize, bool)>,
    answers: Vec<(NodeId, Vec<u8>)>,
    over: bool,
}

impl Echo {
    pub(crate) fn new(head: &[u8]) -> Self {
        Self { head: head.to_vec(), seen: Vec::new(), answers: Vec::new(), over: false }
    }
}

impl Machine for Echo {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _: &mut Cx<'_>, datagram: Datagram<'_>) {
        let Datagram { from, bytes, congestion_experienced, .. } = datagram;
        self.seen.push((from, bytes.len(), congestion_experienced));
        self.answers.push((from, bytes.to_vec()));
        self.over |= bytes.ends_with(b".");
    }

    fn handle_timeout(&mut self, _: &mut Cx<'_>) {}

    fn handle_close(&mut self, _: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, _: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (to, bytes) = self.answers.pop()?;
        buf.extend_from_slice(&self.head);
        buf.extend_from_slice(&bytes);
        Some(Transmit::control(Destination::Node(to)))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        (!self.over).then_some(Time::MAX)
    }
}
