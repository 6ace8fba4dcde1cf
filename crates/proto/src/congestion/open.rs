//! Scheme without congestion control, for transports with other limits, such as hop-by-hop credits.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use super::{
    Arrival, Audience, Carrier, Floor, Gauges, Guarantees, Load, Permit, ReceiverFeedback, Scheme,
    SenderControl, Wire,
};
use crate::options::{OptionSpec, Options};
use crate::pgm::wire::OptionType;

/// Scheme without control. The catalog omits it: the scheme alone is unsafe for a network.
#[derive(Debug)]
pub struct Open;

/// Sender half, which permits everything.
#[derive(Debug)]
pub struct OpenSender;

/// Receiver half, which never reports.
#[derive(Debug)]
pub struct OpenReceiver;

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
    const GUARANTEES: Guarantees =
        Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };
    type Control = OpenSender;
    type Feedback = OpenReceiver;

    fn control(_options: &Options) -> OpenSender {
        OpenSender
    }

    fn feedback(_options: &Options, _node: NodeId) -> OpenReceiver {
        OpenReceiver
    }
}

fn floor(_options: &Options) -> Option<Floor> {
    Some(Floor { after: Duration::ZERO, every: Duration::ZERO, burst: 1 })
}

fn reports_max(_options: &Options, _load: &Load) -> u64 {
    0
}

impl SenderControl for OpenSender {
    type Announce = Announce;
    type Report = Report;

    fn permit(&mut self, _cx: &mut Cx<'_>, _len: u32, _repair: bool) -> Permit {
        Permit::Now
    }

    fn on_sent(&mut self, _cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Announce {
        Nothing
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _from: NodeId, _carrier: Carrier, _report: &Report) {}

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl ReceiverFeedback for OpenReceiver {
    type Announce = Announce;
    type Report = Report;

    fn on_data(&mut self, _: &mut Cx<'_>, _arrival: &Arrival, _announce: Option<&Announce>) {}

    fn on_missing(&mut self, _cx: &mut Cx<'_>, _first: Seq, _last: Seq) {}

    fn poll_report(&mut self, _cx: &mut Cx<'_>) -> Option<(Audience, Report)> {
        None
    }

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}
