//! TRAM: reliable multicast over a tree of repair heads, with receiver windows and a paced source
//! (src: tram). Three parts: `membership` (finding, keeping and being a head), `window` (reception,
//! acknowledgements and repairs) and `rate` (send times of the source). [`TramReceiver`] composes
//! the first two, [`TramSource`] all three. Reading order: `wire`, `membership`, `window`, `rate`,
//! then the two machines.

mod identity;
mod membership;
mod rate;
mod receiver;
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
use crate::pgm::negotiation::{SchemeAnnouncement, SchemeMismatch};
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

/// Group of the source and of all potential heads, where receivers solicit a head.
pub const HEADS: GroupId = GroupId(1);

/// Guarantees of TRAM to the network.
pub const GUARANTEES: Guarantees = Guarantees { floor, recovery: RECOVERY, reports_max };

/// Longest recovery from a forged packet, which may hold the window or lose a head: 30 s.
const RECOVERY: Duration = Duration::from_secs(30);

/// Header bytes before the payload of a data packet, without a scheme.
pub const HEADER_BYTES: u32 = DATA_HEADER as u32;

/// Returns the session number that stands for `tsi`.
pub fn session_of(tsi: Tsi) -> u64 {
    let Gsi([a, b, c, d, e, f]) = tsi.gsi;
    let [high, low] = tsi.port.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, high, low])
}

/// Returns the [`Tsi`] of a session number: the inverse of [`session_of`].
pub fn tsi_of(session: u64) -> Tsi {
    let [a, b, c, d, e, f, high, low] = session.to_be_bytes();
    Tsi { gsi: Gsi([a, b, c, d, e, f]), port: u16::from_be_bytes([high, low]) }
}

/// Returns the most header bytes before the payload of a data packet over this stack.
pub fn header_bytes(tree: Stack) -> u32 {
    HEADER_BYTES + tree.scheme.map_or(0, steering::announcement_bytes)
}

pub(crate) fn steering_at(tree: Stack, node: NodeId) -> Option<Steering> {
    tree.scheme.map(|scheme| Steering { scheme, node })
}

/// Encodes the announcement of a source's settings to its receivers; `None` if it is too long.
pub fn announced(tree: Stack, options: &Options) -> Option<Vec<u8>> {
    let own = |key: &str| settings::OWN.contains(&key);
    let all = options.of(&tree.options()).into_iter().filter(|(key, _)| !own(key)).collect();
    SchemeAnnouncement { scheme: tree.name(), settings: all }.encode()
}

/// Negotiation of a receiver.
#[derive(Clone, Copy)]
pub struct TreeNegotiation {
    /// Only stack that the receiver accepts; `None` to follow its source.
    pub insists: Option<Stack>,
    /// All stacks that a receiver can follow.
    pub known: fn() -> Vec<Stack>,
}

struct Agreed {
    tree: Stack,
    options: Options,
}

enum Disagreement {
    Malformed,
    Other(SchemeMismatch),
}

impl TreeNegotiation {
    fn agree(&self, options: &Options, announced: &[u8]) -> Result<Agreed, Disagreement> {
        let known = (self.known)();
        // A receiver without a stack of its own accepts all; the first known one is plain TRAM.
        let own = self.insists.or(known.first().copied());
        let receiver = own.map_or(String::new(), |tree| tree.name());
        let other = |sender| {
            let known = known.iter().map(Stack::name).collect();
            Disagreement::Other(SchemeMismatch { sender, receiver, known })
        };
        let announced = SchemeAnnouncement::decode_or_newer(announced);
        let announced = announced.ok_or(Disagreement::Malformed)?;
        let all = known.iter().chain(&self.insists);
        let tree = all.into_iter().find(|tree| tree.name() == announced.scheme);
        let tree = tree.filter(|tree| self.insists.is_none_or(|insists| insists == **tree));
        let Some(&tree) = tree else { return Err(other(announced.scheme)) };
        let all = tree.options();
        let specs = all.iter().filter(|spec| !settings::OWN.contains(&spec.name));
        let specs: Vec<OptionSpec> = specs.copied().collect();
        // Both ends must count alike, so the source's common settings replace the receiver's.
        let own = options.of(&all).into_iter();
        let own: Vec<_> =
            own.filter(|(key, _)| !settings::COMMON.contains(&key.as_str())).collect();
        let options = Options::default().under(&own, &all);
        Ok(Agreed { tree, options: options.under(&announced.settings, &specs) })
    }
}

/// Assigned head of a receiver, which looks for another one only if this one is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenHead {
    /// This node.
    Node(NodeId),
    /// Node whose name has this [number](name_number).
    Named(u64),
}

/// Returns the number that stands for a name in packets; never 0.
pub fn name_number(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let first = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first).max(1)
}

pub(crate) struct TramSetup<'a> {
    pub(crate) session: u64,
    pub(crate) source: NodeId,
    pub(crate) to: Destination,
    pub(crate) start: Time,
    pub(crate) head: Option<GivenHead>,
    /// Number of a receiver's name, by which others may be assigned to it; 0 without a name.
    pub(crate) name: u64,
    pub(crate) options: &'a Options,
    /// Scheme that controls the rate; `None` for TRAM's own control.
    pub(crate) steering: Option<Steering>,
}

impl<'a> TramSetup<'a> {
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

pub(crate) fn delivery(options: &Options) -> DeliveryMode {
    TramSettings::from_options(options).delivery
}

/// Creates one end of a stream flow in the session `tsi` over a stack.
///
/// # Panics
/// Panics if the role is `Both`: a session has one source.
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

pub(crate) fn facts(packet: &[u8]) -> PacketFacts {
    match wire::Packet::decode(packet) {
        Ok(wire::Packet { body: wire::Body::Data(data), .. }) => {
            PacketFacts::data(data.payload.len() as u32)
        }
        _ => PacketFacts::default(),
    }
}

/// Returns the least send rate: one packet a second while no receiver allows more.
fn floor(options: &Options) -> Option<Floor> {
    let settings = TramSettings::from_options(options);
    let silence = settings.hello_interval * u64::from(2 + settings.hellos_missed_max);
    Some(Floor {
        after: silence + Duration::from_secs(10),
        every: Duration::from_secs(1),
        burst: 1,
    })
}

/// Returns the most control packets: acknowledgements (schedule, repaired losses) and timers.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let settings = TramSettings::from_options(options);
    let window = u64::from(settings.ack_window);
    let each = |interval: Duration| load.lasted.as_nanos() / interval.as_nanos().max(1) + 1;
    let scheduled = 2 * (load.data_packets / window + 2) * load.receivers;
    let timed = each(settings.ack_interval) + each(settings.hello_interval);
    scheduled + load.losses + load.receivers * (timed + each(membership::SOLICIT_INTERVAL))
}

/// Decodes a packet and encodes it again with its checksum, for tests; `None` if it is refused.
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

    fn announcement(scheme: &str, settings: &[(&str, OptionValue)]) -> Vec<u8> {
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
            let bytes = announcement(name, &[bias.clone(), members.clone(), head.clone()]);
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
            let other = negotiation.agree(&Options::default(), &announcement(speaks, &[]));
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
