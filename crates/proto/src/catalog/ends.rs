//! Constructors of ends for the catalog: streams and objects over PGM and TRAM, also with credits.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{Duration, FlowId, NodeId};

use super::{SCHEMES, tree_negotiation};
use crate::congestion::{BoxControl, SchemeEntry};
use crate::content::{ByOffset, Content, Packets};
use crate::credit::{CreditReceiver, CreditSource};
use crate::object::{
    ContentSupply, InOrder, ObjectReceiver, ObjectReceiverSetup, ObjectSource, ObjectSourceSetup,
    SYMBOL_BYTES_MAX, SYMBOL_HEADER, TramObjectReceiver, TramObjectSource,
};
use crate::options::{OptionValue, Options};
use crate::pgm::element::{ElementConfig, PgmElement};
use crate::pgm::negotiation::{Negotiation, PACKET_BYTES, SchemeAnnouncement};
use crate::pgm::options::{DeliveryMode, PgmFlowSettings};
use crate::pgm::wire::{Gsi, Nla, Tsi, data_overhead};
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::relay::Relay;
use crate::stack::Stack;
use crate::tram::{self, GivenHead};
use crate::transport::{EndSetup, Role};
use crate::{FlowEnd, FlowMachine};

impl SchemeEntry {
    /// Creates the source of a stream of `packets`. `config` has the PGM settings of `options`.
    pub fn stream_source(
        &self,
        config: SourceConfig,
        packets: Box<dyn Packets + Send>,
        options: &Options,
    ) -> PgmSource {
        let packet_bytes = Some(self.packet_bytes(config.payload));
        let source = PgmSource::of_packets(config, packets, self.pgm_control(options));
        source.speaking(self.name, self.announced(options, packet_bytes))
    }

    /// Creates the receiver of a stream at `node`, which identifies it in reports of the scheme.
    pub fn stream_receiver(
        &self,
        node: NodeId,
        config: ReceiverConfig,
        options: &Options,
    ) -> PgmReceiver {
        PgmReceiver::speaking(config, self.negotiation(options, node))
    }

    /// Creates the source of an object.
    pub fn object_source(&self, setup: ObjectSourceSetup<'_>) -> ObjectSource {
        let announced = self.announced(setup.options, None);
        let control = self.pgm_control(setup.options);
        ObjectSource::new(setup, control).speaking(self.name, announced)
    }

    /// Creates a receiver of an object.
    pub fn object_receiver(&self, setup: ObjectReceiverSetup<'_>) -> ObjectReceiver {
        let negotiation = self.negotiation(setup.options, setup.node);
        ObjectReceiver::new(setup, negotiation)
    }

    fn packet_bytes(&self, payload: u32) -> u32 {
        data_overhead(self.announce_bytes_max) - IP_AND_UDP + STREAM_OPTIONS + payload
    }

    /// Returns the announcement for SPMs, if enabled. Settings that do not fit are left out.
    fn announced(
        &self,
        options: &Options,
        packet_bytes: Option<u32>,
    ) -> Option<SchemeAnnouncement> {
        if !PgmFlowSettings::from_options(options).announce_scheme {
            return None;
        }
        let announcing = |settings| SchemeAnnouncement { scheme: self.name.to_string(), settings };
        let own = options.of(self.own_options);
        let value = packet_bytes.map(|bytes| OptionValue::Integer(bytes.into()));
        let bytes = value.map(|value| (PACKET_BYTES.to_string(), value));
        let all = [own.iter().cloned().chain(bytes).collect(), own];
        let fits = all.into_iter().map(announcing).find(|all| all.encode().is_some());
        Some(fits.unwrap_or_else(|| announcing(Vec::new())))
    }

    fn pgm_control(&self, options: &Options) -> BoxControl {
        (self.control)(options, data_overhead(self.announce_bytes_max))
    }

    fn negotiation(&self, options: &Options, node: NodeId) -> Negotiation {
        let (feedback, specs, own) = (self.feedback, self.own_options, options.clone());
        let header = data_overhead(self.announce_bytes_max);
        let make =
            Box::new(move |announced: &[_]| feedback(&own.under(announced, specs), node, header));
        Negotiation::of(self.name, SCHEMES, make)
    }
}

/// Length of IPv4 and UDP, counted by [`data_overhead`], and of OPT_JOIN, OPT_SYN and OPT_FIN.
const IP_AND_UDP: u32 = 20 + 8;
const STREAM_OPTIONS: u32 = 8 + 4 + 4;

/// Creates an end of a flow over PGM. Panics if the stack has no scheme, or the role is both.
pub(super) fn pgm_end(stack: Stack, role: Role, setup: EndSetup<'_>) -> FlowMachine {
    let Some(scheme) = stack.scheme else { unreachable!("a scheme steers PGM") };
    let EndSetup { flow, node, start, payload, options, .. } = setup;
    let (group, tsi) = (group(flow), session(flow, setup.source()));
    let settings = PgmFlowSettings::from_options(options);
    match (settings.delivery, role) {
        (_, Role::Both(_)) => unreachable!("{ONE_SOURCE}"),
        (DeliveryMode::Stream, Role::Source(content)) => {
            let config = SourceConfig::from_options(node, group, tsi, options);
            let config = SourceConfig { start, payload, ..config };
            let packets = Box::new(ByOffset::new(content, payload));
            Box::new(FlowEnd(scheme.stream_source(config, packets, options)))
        }
        (DeliveryMode::Stream, Role::Receiver) => {
            let config = ReceiverConfig::from_options(group, options);
            let config = ReceiverConfig { start, tsi: Some(tsi), ..config };
            Box::new(FlowEnd(scheme.stream_receiver(node, config, options)))
        }
        (DeliveryMode::Object, Role::Source(content)) => {
            let source = object_source_setup(content, &setup);
            let source = ObjectSourceSetup { fec: settings.fec(), ..source };
            Box::new(scheme.object_source(source).staying(FLOW_STAYS))
        }
        (DeliveryMode::Object, Role::Receiver) => {
            Box::new(scheme.object_receiver(object_receiver_setup(&setup)))
        }
    }
}

pub(super) fn under_credits(end: FlowMachine, is_source: bool, setup: EndSetup<'_>) -> FlowMachine {
    let EndSetup { flow, node, start, options, .. } = setup;
    let session = tram::session_of(session(flow, setup.source()));
    match is_source {
        true => Box::new(CreditSource::new(end, session, node, start, options)),
        false => Box::new(CreditReceiver::new(end, session, node)),
    }
}

pub(super) fn tree_end(tree: Stack, role: Role, setup: EndSetup<'_>) -> FlowMachine {
    let options = of_tree(tree, setup.options);
    let setup = EndSetup { options: &options, ..setup };
    match (tram::delivery(setup.options), role) {
        (_, Role::Both(_)) => unreachable!("{ONE_SOURCE}"),
        (DeliveryMode::Stream, role) => {
            tram::end(tree, session(setup.flow, setup.source()), role, setup)
        }
        (DeliveryMode::Object, Role::Source(content)) => {
            let source = TramObjectSource::new(object_source_setup(content, &setup), tree);
            Box::new(source.staying(FLOW_STAYS))
        }
        (DeliveryMode::Object, Role::Receiver) => {
            let head = setup.head.map(GivenHead::Node);
            let receiver = ObjectReceiverSetup { head, ..object_receiver_setup(&setup) };
            let negotiation = tree_negotiation(Some(tree));
            Box::new(TramObjectReceiver::new(receiver, setup.source(), negotiation))
        }
    }
}

/// Options of a tree, with other defaults above a hop control: multicast repairs and rare requests.
fn of_tree(tree: Stack, options: &Options) -> Options {
    if tree.hop.is_none() {
        return options.clone();
    }
    let usual = [("repair", "scope"), ("ask_interval", "1 s")];
    let usual = usual.map(|(key, value)| (key.to_string(), OptionValue::Text(value.to_string())));
    options.under(&usual, &tree.options())
}

/// Returns the length of the IPv4 and UDP headers; zero if the scenario sets a header size.
fn headers_below(setup: &EndSetup<'_>) -> u32 {
    if setup.header.is_none() { 28 } else { 0 }
}

fn object_source_setup<'a>(
    content: Box<dyn Content>,
    setup: &EndSetup<'a>,
) -> ObjectSourceSetup<'a> {
    let EndSetup { flow, node, start, options, .. } = *setup;
    // Even, and within limits: a payload has at most 65535 bytes.
    let symbol_bytes = setup.payload.saturating_sub(SYMBOL_HEADER as u32);
    let symbol_bytes = (symbol_bytes.clamp(2, SYMBOL_BYTES_MAX) & !1) as u16;
    let supply = Box::new(ContentSupply::new(content, symbol_bytes));
    let (group, tsi) = (group(flow), session(flow, setup.source()));
    let object = ObjectSourceSetup::new(node, group, tsi, supply, symbol_bytes, options);
    let give_up = options.duration("give_up").unwrap_or(FLOW_GIVE_UP);
    let wait_for = options.integer("wait_for").and_then(|count| count.try_into().ok());
    let wait_for = wait_for.unwrap_or(object.wait_for);
    ObjectSourceSetup { start, give_up, wait_for, headers: headers_below(setup), ..object }
}

fn object_receiver_setup<'a>(setup: &EndSetup<'a>) -> ObjectReceiverSetup<'a> {
    let EndSetup { flow, node, start, options, .. } = *setup;
    let (group, tsi) = (group(flow), session(flow, setup.source()));
    let object = ObjectReceiverSetup::new(node, group, tsi, Box::new(InOrder::default()), options);
    ObjectReceiverSetup { start, headers: headers_below(setup), ..object }
}

const ONE_SOURCE: &str = "a session has one source, which receives nothing";

/// Default of `give_up`, the silence after which a receiver counts as lost: 120 s.
const FLOW_GIVE_UP: Duration = Duration::from_secs(120);

/// Time that a source waits for late receivers: longer than any run. Default of `linger`.
const FLOW_STAYS: Duration = Duration::from_secs(1_000_000);

pub(super) fn pgm_element(node: NodeId, options: &Options) -> Box<dyn Relay> {
    Box::new(PgmElement::new(node, ElementConfig::from_options(options), SCHEMES))
}

/// Returns the session of a flow: source address by node, port by flow. Both ends compute the same.
pub(super) fn session(flow: FlowId, source: NodeId) -> Tsi {
    let [a, b, c, d] = source.0.to_be_bytes();
    // "fc" for faircast: differs from the id that other implementations derive from a host name.
    let gsi = Gsi([b'f', b'c', a, b, c, d]);
    // Port numbers in the upper half, so that none is the data-destination port.
    Tsi { gsi, port: 0x8000 | (flow.0 & 0x7fff) as u16 }
}

/// Returns the group of a flow, in the organisation-local block 239.192.0.0/14 of RFC 2365.
pub(super) fn group(flow: FlowId) -> Nla {
    Nla::V4((0xefc0_0001 + (flow.0 & 0x1_ffff)).to_be_bytes())
}
