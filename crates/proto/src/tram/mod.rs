//! TRAM: reliable multicast by a tree of repair heads, with windows that receivers keep and a paced source
//! (src: tram).
//!
//! Reading order: `wire` (what goes between ends), [`TramSource`] and [`TramReceiver`] (the ends), `head` (what
//! both are to their members), `parent` (how a receiver gets a head), `controller` (what says when data may leave:
//! TRAM's own control, which is `window` and `rate`, or a scheme).

mod cache;
mod controller;
mod departures;
mod election;
mod head;
mod identity;
mod members;
mod parent;
mod rate;
mod receiver;
mod reception;
mod settings;
mod source;
mod steering;
mod stream;
mod window;
mod wire;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, GroupId, NodeId, Time};

use crate::congestion::{Floor, Guarantees, Load};
use crate::content::ByOffset;
use crate::options::{OptionSpec, Options};
use crate::pgm::negotiation::{Announced, SchemeAnnouncement, SchemeMismatch};
use crate::pgm::options::DeliveryMode;
use crate::pgm::wire::{Gsi, Tsi};
use crate::stack::Stack;
use crate::transport::{EndSetup, PacketFacts, Role};
use crate::{Destination, FlowEnd, FlowMachine};

pub use receiver::TramReceiver;
pub use settings::{OPTIONS, STEERED_OPTIONS};
pub use source::TramSource;
pub use steering::{steered_floor, steered_reports_max};
pub use stream::{TramStreamReceiver, stream_source, stream_window};
pub(crate) use wire::{DATA_HEADER, HEADER as PACKET_HEADER};
pub use wire::{peek, sender_of, specimens};

use settings::TramSettings;
pub(crate) use steering::Steering;

/// The group of the source and of those who are heads or may be, beside the session's: who looks for a head
/// asks there.
pub const HEADS: GroupId = GroupId(1);

/// What it guarantees to the network.
pub const GUARANTEES: Guarantees = Guarantees { floor, recovery: RECOVERY, reports_max };

/// A forged acknowledgement can hold the window until the next true one, and forged packets of a head make a
/// member look for another.
const RECOVERY: Duration = Duration::from_secs(30);

/// Bytes before the payload of data.
pub const HEADER_BYTES: u32 = DATA_HEADER as u32;

/// The number of the session that an application knows by `tsi`, as its sessions over PGM.
pub fn session_of(tsi: Tsi) -> u64 {
    let Gsi([a, b, c, d, e, f]) = tsi.gsi;
    let [high, low] = tsi.port.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, high, low])
}

/// The same backwards.
pub fn tsi_of(session: u64) -> Tsi {
    let [a, b, c, d, e, f, high, low] = session.to_be_bytes();
    Tsi { gsi: Gsi([a, b, c, d, e, f]), port: u16::from_be_bytes([high, low]) }
}

/// Bytes before the payload of data at most, over this stack.
pub fn header_bytes(tree: Stack) -> u32 {
    HEADER_BYTES + tree.scheme.map_or(0, steering::words_bytes)
}

/// The scheme of a stack at an end that is this node in its reports.
pub(crate) fn steering_at(tree: Stack, node: NodeId) -> Option<Steering> {
    tree.scheme.map(|scheme| Steering { scheme, node })
}

/// Announcement of a source's settings to its receivers; `None` if it is too long.
pub fn announced(tree: Stack, options: &Options) -> Option<Vec<u8>> {
    let own = |key: &str| settings::OWN.contains(&key);
    let all = options.of(&tree.options()).into_iter().filter(|(key, _)| !own(key)).collect();
    SchemeAnnouncement { scheme: tree.name(), settings: all }.encode()
}

/// Negotiation of a receiver.
#[derive(Clone, Copy)]
pub struct TreeNegotiation {
    /// The only stack that the receiver speaks; `None` to follow its source.
    pub insists: Option<Stack>,
    /// All stacks that a receiver can follow.
    pub known: fn() -> Vec<Stack>,
}

/// Stack and settings on which an end agrees with its source.
struct Agreed {
    tree: Stack,
    options: Options,
}

/// Reason why an end agrees on nothing.
enum Disagreement {
    Malformed,
    Other(SchemeMismatch),
}

impl TreeNegotiation {
    /// Agreement of an end with settings of its own on the announcement of its source.
    fn agree(&self, options: &Options, announced: &[u8]) -> Result<Agreed, Disagreement> {
        let known = (self.known)();
        // A receiver that follows could speak all; the first is TRAM by itself.
        let own = self.insists.or(known.first().copied());
        let receiver = own.map_or(String::new(), |tree| tree.name());
        let other = |sender| {
            let known = known.iter().map(Stack::name).collect();
            Disagreement::Other(SchemeMismatch { sender, receiver, known })
        };
        let announced = match Announced::decode(announced).ok_or(Disagreement::Malformed)? {
            Announced::Scheme(announced) => announced,
            Announced::Newer => return Err(other(String::new())),
        };
        let tree = known.iter().find(|tree| tree.name() == announced.scheme);
        let tree = tree.filter(|tree| self.insists.is_none_or(|insists| insists == **tree));
        let Some(&tree) = tree else { return Err(other(announced.scheme)) };
        let all = tree.options();
        let specs = all.iter().filter(|spec| !settings::OWN.contains(&spec.name));
        let specs: Vec<OptionSpec> = specs.copied().collect();
        // Both ends count in the same way, whatever a receiver's own settings are.
        let own = options.of(&all).into_iter();
        let own: Vec<_> =
            own.filter(|(key, _)| !settings::COMMON.contains(&key.as_str())).collect();
        let options = Options::default().under(&own, &all);
        Ok(Agreed { tree, options: options.under(&announced.settings, &specs) })
    }
}

/// A head that a receiver is given: it looks for another one only where it cannot have this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenHead {
    /// This node.
    Node(NodeId),
    /// Whoever has the name of this [number](name_number).
    Named(u64),
}

/// The number of a name, by which those are found who have it; never 0.
pub fn name_number(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let first = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first).max(1)
}

/// What the ends of a session are made from.
pub(crate) struct TramSetup<'a> {
    pub(crate) session: u64,
    pub(crate) source: NodeId,
    pub(crate) to: Destination,
    pub(crate) start: Time,
    /// The head that a receiver is to have at first.
    pub(crate) head: Option<GivenHead>,
    /// The number of a receiver's name, by which others may be given it for their head; 0 without one.
    pub(crate) name: u64,
    pub(crate) options: &'a Options,
    /// The scheme that steers the session, where TRAM's own control does not.
    pub(crate) steering: Option<Steering>,
}

impl<'a> TramSetup<'a> {
    /// Those of the session `tsi`, whose data `source` sends to the session's group.
    pub(crate) fn of(tsi: Tsi, source: NodeId, start: Time, options: &'a Options) -> Self {
        let to = Destination::Group(GroupId::SESSION);
        Self {
            session: session_of(tsi),
            source,
            to,
            start,
            head: None,
            name: 0,
            options,
            steering: None,
        }
    }

    fn settings(&self) -> TramSettings {
        TramSettings::of(self.options, self.steering.is_some())
    }
}

/// How a flow with these settings goes.
pub(crate) fn delivery(options: &Options) -> DeliveryMode {
    TramSettings::from_options(options).delivery
}

/// One end of a flow that goes as a stream, in the session `tsi` over a stack.
///
/// # Panics
/// The role is both: a session has one source.
pub fn end(tree: Stack, tsi: Tsi, role: Role, setup: EndSetup<'_>) -> FlowMachine {
    let EndSetup { node, to, start, payload, options, head, .. } = setup;
    let session = TramSetup::of(tsi, setup.source(), start, options);
    let (head, steering) = (head.map(GivenHead::Node), steering_at(tree, node));
    let session = TramSetup { to, head, steering, ..session };
    match role {
        Role::Source(content) => {
            let packets = ByOffset::new(content, payload);
            Box::new(FlowEnd(TramSource::new(&session, Box::new(packets))))
        }
        Role::Receiver => Box::new(FlowEnd(TramReceiver::new(&session))),
        Role::Both(_) => unreachable!("a session has one source, which receives nothing"),
    }
}

/// Facts of a packet. A packet without data of TRAM is control traffic.
pub(crate) fn facts(packet: &[u8]) -> PacketFacts {
    match wire::Packet::decode(packet) {
        Ok(wire::Packet { body: wire::Body::Data(data), .. }) => {
            PacketFacts::data(data.payload.len() as u32)
        }
        _ => PacketFacts::default(),
    }
}

/// One packet a second goes while nobody allows more.
fn floor(options: &Options) -> Option<Floor> {
    let settings = TramSettings::from_options(options);
    let silence = settings.hello_interval * u64::from(2 + settings.hellos_missed_max);
    Some(Floor {
        after: silence + Duration::from_secs(10),
        every: Duration::from_secs(1),
        burst: 1,
    })
}

/// Scheduled acknowledgements, one for each loss that is repaired, and what time alone brings: timers,
/// hellos and the forming of the tree.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let settings = TramSettings::from_options(options);
    let window = u64::from(settings.ack_window);
    let each = |interval: Duration| load.lasted.as_nanos() / interval.as_nanos().max(1) + 1;
    let scheduled = 2 * (load.data_packets / window + 2) * load.receivers;
    let timed = each(settings.ack_interval) + each(settings.hello_interval);
    scheduled + load.losses + load.receivers * (timed + each(parent::SOLICIT_INTERVAL))
}

/// Writes a packet of TRAM again, as it was read, with its checksum. `None` if it is refused. For tests of the wire format.
pub fn written_again(packet: &[u8]) -> Option<Vec<u8>> {
    let packet = wire::Packet::decode(packet).ok().filter(|_| wire::is_sound(packet))?;
    let mut out = Vec::new();
    packet.encode(&mut out);
    wire::seal(&mut out);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use crate::options::OptionValue;
    use alloc::string::ToString;

    fn told(scheme: &str, settings: &[(&str, OptionValue)]) -> Vec<u8> {
        let settings = settings.iter().map(|(key, value)| (key.to_string(), value.clone()));
        let (scheme, settings) = (scheme.to_string(), settings.collect());
        SchemeAnnouncement { scheme, settings }.encode().unwrap()
    }

    #[test]
    fn ends_speak_what_the_source_tells_unless_they_insist_on_something_else() {
        let bias = ("acker_bias", OptionValue::Float(0.5));
        let members = ("members_max", OptionValue::Integer(3));
        let head = ("head", OptionValue::Text("never".into()));
        for name in ["tram", "tram-pgmcc", "tram-tfmcc", "tram-ormcc"] {
            let bytes = told(name, &[bias.clone(), members.clone(), head.clone()]);
            for insists in [None, catalog::stack(name)] {
                let negotiation = catalog::tree_negotiation(insists);
                let Ok(Agreed { tree, options }) = negotiation.agree(&Options::default(), &bytes)
                else {
                    panic!("{name}")
                };
                assert_eq!(tree.name(), name);
                assert_eq!(tree.scheme.map(|it| it.name), name.strip_prefix("tram-"));
                assert_eq!(options.integer("members_max"), Some(3));
                assert_eq!(options.has("acker_bias"), name == "tram-pgmcc", "{name}");
                assert!(!options.has("head"), "that is each end's own");
            }
        }
        for (speaks, insists, want) in [
            ("tram", Some("tram-pgmcc"), "tram-pgmcc"),
            ("tram-ormcc", Some("tram"), "tram"),
            ("tram-unheard-of", None, "tram"),
            ("pgmcc", None, "tram"),
        ] {
            let negotiation = catalog::tree_negotiation(insists.and_then(catalog::stack));
            let other = negotiation.agree(&Options::default(), &told(speaks, &[]));
            let Err(Disagreement::Other(mismatch)) = other else { panic!("{speaks}") };
            assert_eq!(mismatch, catalog::tree_mismatch(speaks, want));
            assert_eq!(mismatch.is_known(), speaks.starts_with("tram") && insists.is_some());
        }
        let negotiation = catalog::tree_negotiation(None);
        let newer = [2, 1, b'x'];
        let other = negotiation.agree(&Options::default(), &newer);
        assert!(matches!(other, Err(Disagreement::Other(it)) if it.is_newer()));
        for bytes in [&[][..], &[1], &[1, 9, b't']] {
            let nothing = negotiation.agree(&Options::default(), bytes);
            assert!(matches!(nothing, Err(Disagreement::Malformed)), "{bytes:?}");
        }
    }
}
