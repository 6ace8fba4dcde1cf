//! Congestion control without cost, for benchmarks of the ends alone.

use faircast_base::{Cx, GroupId, NodeId, Seq, Time};
use faircast_proto::congestion::{
    Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, SenderControl, Wire,
};
use faircast_proto::pgm::wire::OptionType;
use faircast_proto::{Datagram, Destination};

pub(crate) fn datagram(bytes: &[u8], zeros: u32) -> Datagram<'_> {
    let to = Destination::Group(GroupId::SESSION);
    Datagram { zeros, ..Datagram::new(NodeId(1), to, bytes) }
}

pub(crate) struct Nothing;

impl Wire for Nothing {
    const OPTION: u8 = OptionType::PGMCC_DATA;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 12]);
    }

    fn decode(_bytes: &[u8]) -> Option<Self> {
        Some(Self)
    }
}

pub(crate) struct Free;

impl SenderControl for Free {
    type Announce = Nothing;
    type Report = Nothing;

    fn permit(&mut self, _cx: &mut Cx<'_>, _len: u32, _repair: bool) -> Permit {
        Permit::Now
    }

    fn on_sent(&mut self, _cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Nothing {
        Nothing
    }

    fn on_repair_sent(&mut self, _cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Option<Nothing> {
        None
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: Carrier, _: &Nothing) {}

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

pub(crate) struct Silent;

impl ReceiverFeedback for Silent {
    type Announce = Nothing;
    type Report = Nothing;

    fn on_data(&mut self, _cx: &mut Cx<'_>, _arrival: &Arrival, _announce: Option<&Nothing>) {}

    fn on_missing(&mut self, _cx: &mut Cx<'_>, _first: Seq, _last: Seq) {}

    fn poll_report(&mut self, _cx: &mut Cx<'_>) -> Option<(Audience, Nothing)> {
        None
    }

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}
