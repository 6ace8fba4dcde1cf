//! TRAM: reliable multicast over a tree of repair heads, with receiver windows and a paced source
//! (src: tram). Reading order: `wire`, `membership`, `window`, `rate`, then the two machines:
//! [`TramReceiver`] has the first two parts, [`TramSource`] all three.

mod identity;
mod membership;
mod rate;
mod receiver;
mod settings;
mod source;
mod stream;
mod window;
mod wire;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, GroupId, NodeId, Seq, Time};

use crate::congestion::{BoxControl, BoxFeedback, Floor, Guarantees, Load, SchemeEntry};
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
pub use stream::{TramStreamReceiver, stream_source, stream_window};
use wire::ANNOUNCEMENT_HEADER;
pub(crate) use wire::{DATA_HEADER, HEADER as PACKET_HEADER};
pub use wire::{peek, sender_of, specimens};

use settings::TramSettings;

/// Group of the source and of all potential heads, where receivers solicit a head.
pub const HEADS: GroupId = GroupId(1);

/// Guarantees of TRAM to the network.
pub const GUARANTEES: Guarantees = Guarantees { floor, recovery: RECOVERY, reports_max };

/// Longest recovery from a forged packet, which may hold the window or lose a head: 30 s.
const RECOVERY: Duration = Duration::from_secs(30);

/// Header bytes before the payload of a data packet, without a scheme.
pub const HEADER_BYTES: u32 = DATA_HEADER as u32;

/// Headers of IPv4 and UDP.
const IP_UDP_BYTES: u32 = 28;

/// Shortest time between two reports of a receiver up the tree, as PGM's for unrequested reports:
/// 200 ms. No representative needs replacement sooner.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

fn seq(sequence: u64) -> Seq {
    Seq::new(sequence as u32)
}

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
    HEADER_BYTES + tree.scheme.map_or(0, announcement_bytes)
}

#[derive(Clone, Copy)]
pub(crate) struct Steering {
    pub(crate) scheme: &'static SchemeEntry,
    pub(crate) node: NodeId,
}

impl Steering {
    fn header_bytes(&self) -> u32 {
        HEADER_BYTES + announcement_bytes(self.scheme) + IP_UDP_BYTES
    }

    fn control(&self, options: &Options) -> BoxControl {
        (self.scheme.control)(options, self.header_bytes())
    }

    fn feedback(&self, options: &Options) -> BoxFeedback {
        (self.scheme.feedback)(options, self.node, self.header_bytes())
    }
}

/// Returns the most bytes that a scheme's announcement takes in a data packet.
fn announcement_bytes(scheme: &SchemeEntry) -> u32 {
    (ANNOUNCEMENT_HEADER + scheme.announce_bytes_max) as u32
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

impl TreeNegotiation {
    /// Returns the stack and settings that a source announces. The error is `None` if malformed.
    fn agree(
        &self,
        options: &Options,
        announced: &[u8],
    ) -> Result<(Stack, Options), Option<SchemeMismatch>> {
        let known = (self.known)();
        // A receiver without a stack of its own accepts all; the first known one is plain TRAM.
        let own = self.insists.or(known.first().copied());
        let receiver = own.map_or(String::new(), |tree| tree.name());
        let other = |sender| {
            let known = known.iter().map(Stack::name).collect();
            Some(SchemeMismatch { sender, receiver, known })
        };
        let announced = SchemeAnnouncement::decode_or_newer(announced).ok_or(None)?;
        let all = known.iter().chain(&self.insists);
        let tree = all.into_iter().find(|tree| tree.name() == announced.scheme);
        let tree = tree.filter(|tree| self.insists.is_none_or(|insists| insists == **tree));
        let Some(&tree) = tree else { return Err(other(announced.scheme)) };
        let all = tree.options();
        let specs = all.iter().filter(|spec| !settings::OWN.contains(&spec.name));
        let specs: Vec<OptionSpec> = specs.copied().collect();
        // Both ends must count alike, so the source's common settings replace the receiver's.
        let mut own = options.of(&all);
        own.retain(|(key, _)| !settings::COMMON.contains(&key.as_str()));
        let options = Options::default().under(&own, &all);
        Ok((tree, options.under(&announced.settings, &specs)))
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
    pub(crate) name: u64,
    pub(crate) options: &'a Options,
    pub(crate) steering: Option<Steering>,
}

impl<'a> TramSetup<'a> {
    pub(crate) fn of(tsi: Tsi, source: NodeId, start: Time, options: &'a Options) -> Self {
        let (session, to) = (session_of(tsi), Destination::Group(GroupId::SESSION));
        let (head, name, steering) = (None, 0, None);
        Self { session, source, to, start, head, name, options, steering }
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
    match wire::Packet::decode(packet).map(|packet| packet.body) {
        Ok(wire::Body::Data(data)) => PacketFacts::data(data.payload.len() as u32),
        _ => PacketFacts::default(),
    }
}

/// Returns the least send rate: one packet a second while no receiver allows more.
fn floor(options: &Options) -> Option<Floor> {
    let settings = TramSettings::from_options(options);
    let silence = settings.hello_interval * u64::from(2 + settings.hellos_missed_max);
    let after = silence + Duration::from_secs(10);
    Some(Floor { after, every: Duration::from_secs(1), burst: 1 })
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

/// Returns the floor of a session whose scheme has the floor `own`: both must permit a packet.
pub fn steered_floor(own: Option<Floor>, options: &Options) -> Option<Floor> {
    let tree = floor(options)?;
    let own = own.unwrap_or(tree);
    let (after, every) = (own.after.max(tree.after), own.every.max(tree.every));
    Some(Floor { after, every, burst: own.burst })
}

/// Returns the most packets from receivers with a scheme: those of the tree, one of the
/// representative per data packet, and one report per receiver and interval.
pub fn steered_reports_max(options: &Options, load: &Load) -> u64 {
    let intervals = load.lasted.as_nanos() / REPORT_INTERVAL.as_nanos() + 1;
    let reports = load.receivers * intervals.min(load.losses);
    reports_max(options, load) + load.data_packets + reports
}

/// Decodes a packet and encodes it again with its checksum, for tests; `None` if it is refused.
pub fn written_again(packet: &[u8]) -> Option<Vec<u8>> {
    let packet = wire::Packet::decode(packet).ok().filter(|_| wire::is_sound(packet))?;
    let mut out = Vec::new();
    packet.write(&mut out);
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
                let Ok((tree, options)) = negotiation.agree(&Options::default(), &bytes) else {
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
            let Err(Some(mismatch)) = other else { panic!("{speaks}") };
            assert_eq!(mismatch, catalog::tree_mismatch(speaks, want));
            assert_eq!(mismatch.is_known(), speaks.starts_with("tram") && insists.is_some());
        }
        let negotiation = catalog::tree_negotiation(None);
        let newer = [2, 1, b'x'];
        let other = negotiation.agree(&Options::default(), &newer);
        assert!(matches!(other, Err(Some(it)) if it.is_newer()));
        for bytes in [&[][..], &[1], &[1, 9, b't']] {
            let nothing = negotiation.agree(&Options::default(), bytes);
            assert!(matches!(nothing, Err(None)), "{bytes:?}");
        }
    }
}
