//! Scheme without congestion control, for transports with other limits, such as hop-by-hop credits.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq};

use super::{
    Arrival, Audience, Carrier, Floor, Gauges, Guarantees, Permit, ReceiverFeedback, Scheme,
    SenderControl, Wire,
};
use crate::options::{OptionSpec, Options};
use crate::pgm::wire::OptionType;

/// Scheme without control, and both its halves. The catalog omits it, since it is unsafe alone.
#[derive(Debug)]
pub struct Open;

/// Empty announcement or report.
#[derive(Debug)]
pub struct Nothing<const OPTION: u8>;

impl<const OPTION: u8> Wire for Nothing<OPTION> {
    const OPTION: u8 = OPTION;
    const BYTES_MAX: usize = 0;

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(Self)
    }
}

type Announce = Nothing<{ OptionType::OPEN_DATA }>;
type Report = Nothing<{ OptionType::OPEN_FEEDBACK }>;

impl Scheme for Open {
    const NAME: &'static str = "open";
    const ABOUT: &'static str = "no control of its own";
    const OPTIONS: &'static [OptionSpec] = &[];
    const GUARANTEES: Guarantees = Guarantees {
        floor: |_| Some(Floor { after: Duration::ZERO, every: Duration::ZERO, burst: 1 }),
        ..Guarantees::SILENT
    };
    type Control = Open;
    type Feedback = Open;

    fn control(_options: &Options) -> Open {
        Open
    }

    fn feedback(_options: &Options, _node: NodeId) -> Open {
        Open
    }
}

impl SenderControl for Open {
    type Announce = Announce;
    type Report = Report;

    fn permit(&mut self, _cx: &mut Cx<'_>, _len: u32, _repair: bool) -> Permit {
        Permit::Now
    }

    fn on_sent(&mut self, _cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Announce {
        Nothing
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _from: NodeId, _carrier: Carrier, _report: &Report) {}

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl ReceiverFeedback for Open {
    type Announce = Announce;
    type Report = Report;

    fn on_data(&mut self, _: &mut Cx<'_>, _arrival: &Arrival, _announce: Option<&Announce>) {}

    fn poll_report(&mut self, _cx: &mut Cx<'_>) -> Option<(Audience, Report)> {
        None
    }
}
