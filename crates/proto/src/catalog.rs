//! Tables of all that a scenario can name: transports, schemes and relays. Adding a scheme is its
//! folder, its page and its row here.

mod ends;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use faircast_base::NodeId;

use crate::Machine;
use crate::cbr;
use crate::congestion::open::Open;
use crate::congestion::ormcc::Ormcc;
use crate::congestion::pgmcc::Pgmcc;
use crate::congestion::tfmcc::Tfmcc;
use crate::congestion::{
    Bounds, Control, Feedback, Guarantees, ReceiverFeedback, RouterView, Scheme, SenderControl,
    Wire, bounded_control, boxed_feedback,
};
use crate::credit::{self, ProgramHost};
use crate::hop::flow;
use crate::options::{OptionSpec, OptionValue, Options, selected};
use crate::pgm;
use crate::pgm::element::ElementConfig;
use crate::pgm::negotiation::{KnownScheme, SchemeAnnouncement, SchemeMismatch, scheme_on};
use crate::pgm::wire::{OptionType, Packet};
use crate::relay::Relay;
use crate::tcp::{self, Flavour};
use crate::tram::{self, Tree};
use crate::transport::{EndSetup, KernelTcp, PacketFacts, PacketFormat, Role};

use ends::{object_end, pgm_element, row_tree, stream_end, tree_end, under_credits};

/// A scheme: a protocol that a multicast flow can run.
#[derive(Clone, Copy, Debug)]
pub struct SchemeEntry {
    /// Its name in scenario files.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Its settings and those of the transport below it.
    pub options: &'static [OptionSpec],
    /// Settings of the scheme itself, among these.
    pub own_options: &'static [OptionSpec],
    /// Guarantees to the network.
    pub guarantees: Guarantees,
    /// The option by which its data is known.
    pub announce_option: u8,
    /// Most bytes of that option's value.
    pub announce_bytes_max: usize,
    /// The option that carries a receiver's report.
    pub report_option: u8,
    /// Parts of the scheme that routers between the ends can read.
    pub view: RouterView,
    /// Makes the sender's half, within the bounds of the transport's settings, for a transport whose
    /// data has headers of so many bytes.
    pub control: fn(&Options, u32) -> Box<dyn Control + Send>,
    /// Makes the receiver's half at a node, for such a transport.
    pub feedback: fn(&Options, NodeId, u32) -> Box<dyn Feedback + Send>,
}

impl SchemeEntry {
    /// The row of scheme `S`; `options` are its own and those of the transport, as
    /// [`scheme_entry!`](crate::scheme_entry) joins them.
    pub const fn of<S: Scheme>(options: &'static [OptionSpec]) -> Self {
        Self {
            name: S::NAME,
            about: S::ABOUT,
            options,
            own_options: S::OPTIONS,
            guarantees: S::GUARANTEES,
            announce_option: <<S::Control as SenderControl>::Announce as Wire>::OPTION,
            announce_bytes_max: <<S::Control as SenderControl>::Announce as Wire>::BYTES_MAX,
            report_option: <<S::Control as SenderControl>::Report as Wire>::OPTION,
            view: RouterView::of::<S>(),
            control: |options, header_bytes| {
                let mut control = S::control(options);
                control.set_header(header_bytes);
                bounded_control(control, Bounds::from_options(options))
            },
            feedback: |options, node, header_bytes| {
                let mut feedback = S::feedback(options, node);
                feedback.set_header(header_bytes);
                boxed_feedback(feedback)
            },
        }
    }
}

/// A transport: what carries a flow.
#[derive(Clone, Copy, Debug)]
pub struct TransportEntry {
    /// Its name in scenario files, where it is steered by no scheme.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Its settings.
    pub options: &'static [OptionSpec],
    /// Whether a flow may have more than one receiver.
    pub multicast: bool,
    /// Whether a flow may have more than one source, and ends that are source and receiver at once.
    pub many_to_many: bool,
    /// Whether its packets carry a checksum: those of TCP and UDP are the kernel's.
    pub own_checksum: bool,
    /// Whether receivers repair for others.
    pub repair_heads: bool,
    /// Packets on real networks.
    pub packets: PacketFormat,
    /// Constructors of its ends.
    pub ends: Ends,
}

/// Constructors of the ends of a transport.
#[derive(Clone, Copy, Debug)]
pub enum Ends {
    /// With a scheme, which steers them.
    Steered(fn(&SchemeEntry, Role, EndSetup<'_>) -> Box<dyn Machine>),
    /// By themselves.
    Alone {
        /// Guarantees to the network.
        guarantees: Guarantees,
        /// Whether receivers answer.
        answers: bool,
        /// Makes one.
        end: fn(Role, EndSetup<'_>) -> Box<dyn Machine>,
    },
    /// Ends of the kernel, in the lab only.
    Kernel {
        /// Guarantees to the network.
        guarantees: Guarantees,
    },
}

/// Constructor of a relay.
pub type RelayOf = fn(NodeId, &Options, Option<Arc<dyn ProgramHost>>) -> Box<dyn Relay>;

/// Program that a router can run beside forwarding.
#[derive(Clone, Copy, Debug)]
pub struct RelayEntry {
    /// Its name in scenario files.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Its settings.
    pub options: &'static [OptionSpec],
    /// Makes the relay of the router at a node, with settings checked against its table, and with what runs the programs of
    /// sessions, where there is such a thing.
    pub relay: RelayOf,
}

/// The scheme of whoever names none.
pub const DEFAULT_SCHEME: &str = Pgmcc::NAME;

/// All schemes.
pub const SCHEMES: &[SchemeEntry] =
    &[crate::scheme_entry!(Pgmcc), crate::scheme_entry!(Tfmcc), crate::scheme_entry!(Ormcc)];

/// The row of TRAM's tree with a scheme that steers it: their settings in one table.
macro_rules! tree_entry {
    ($scheme:ty, $name:literal, $about:literal) => {{
        const ENTRY: SchemeEntry = crate::scheme_entry!($scheme);
        const TREE: &[OptionSpec] = tram::TREE_OPTIONS;
        const BOUNDS: &[OptionSpec] = pgm::options::BOUNDS;
        const OWN: [OptionSpec; ENTRY.own_options.len() + BOUNDS.len()] =
            joined(ENTRY.own_options, BOUNDS);
        const ALL: [OptionSpec; OWN.len() + TREE.len()] = joined(&OWN, TREE);
        let guarantees = Guarantees {
            floor: |options| tram::steered_floor((ENTRY.guarantees.floor)(options), options),
            recovery: tram::GUARANTEES.recovery,
            reports_max: tram::steered_reports_max,
        };
        let end: EndOf = |role, setup| tree_end(row_tree($name), role, setup);
        let ends = Ends::Alone { guarantees, answers: true, end };
        TransportEntry { repair_heads: true, ..reliable($name, $about, &ALL, tram::facts, ends) }
    }};
}

/// TRAM's tree under credits, which are its only control.
mod credits {
    use super::*;

    const OPEN: SchemeEntry = crate::scheme_entry!(Open);
    /// A session's settings do not travel: all its ends are given them.
    const TREE: [OptionSpec; tram::TREE_OPTIONS.len() - 2] =
        selected(tram::TREE_OPTIONS, &["delivery", "linger"], false);
    const OWN: [OptionSpec; credit::OPTIONS.len() + pgm::options::BOUNDS.len()] =
        joined(credit::OPTIONS, pgm::options::BOUNDS);
    pub(super) const OPTIONS: [OptionSpec; OWN.len() + TREE.len()] = joined(&OWN, &TREE);

    pub(super) const GUARANTEES: Guarantees = Guarantees {
        floor: |options| tram::steered_floor(None, options),
        recovery: tram::GUARANTEES.recovery,
        reports_max: |options, load| {
            (tram::GUARANTEES.reports_max)(options, load)
                + credit::credits_max(options, load, load.data_packets)
        },
    };

    pub(super) fn end(role: Role, setup: EndSetup<'_>) -> Box<dyn Machine> {
        let tree = Tree { name: "credit", options: &OPTIONS, steering: Some(&OPEN) };
        let options = of_tree(setup.options);
        let setup = EndSetup { options: &options, ..setup };
        under_credits(role, setup, |role, setup| tree_end(tree, role, setup))
    }

    /// The settings of the tree, where these do not say something else. Repairs go to all, for what goes to one is
    /// under no credits; and nobody asks for what may still wait for it on the way.
    fn of_tree(options: &Options) -> Options {
        let usual = [("repair", "scope"), ("ask_interval", "1 s")];
        let usual =
            usual.map(|(key, value)| (key.to_string(), OptionValue::Text(value.to_string())));
        options.under(&usual, &OPTIONS)
    }
}

/// The row of a scheme over PGM, under credits.
macro_rules! credit_entry {
    ($scheme:ty, $name:literal, $about:literal) => {{
        const ENTRY: SchemeEntry = crate::scheme_entry!($scheme);
        const ALL: [OptionSpec; ENTRY.options.len() + credit::OPTIONS.len()] =
            joined(ENTRY.options, credit::OPTIONS);
        let guarantees = Guarantees {
            reports_max: |options, load| {
                // Each request for a packet is confirmed to all.
                let capsules = load.data_packets + load.losses;
                (ENTRY.guarantees.reports_max)(options, load)
                    + credit::credits_max(options, load, capsules)
            },
            ..ENTRY.guarantees
        };
        let end: EndOf =
            |role, setup| under_credits(role, setup, |role, setup| ENTRY.end(role, setup));
        let facts = |packet: &[u8]| credit::facts(packet, pgm::facts);
        reliable($name, $about, &ALL, facts, Ends::Alone { guarantees, answers: true, end })
    }};
}

/// All transports.
pub const TRANSPORTS: &[TransportEntry] = &[
    reliable(
        "pgm-stream",
        "PGM with repair by NAK, delivered in order",
        pgm::OPTIONS,
        pgm::facts,
        Ends::Steered(stream_end),
    ),
    reliable(
        "pgm-object",
        "an object over PGM, repaired by what receivers ask for",
        pgm::OPTIONS,
        pgm::facts,
        Ends::Steered(object_end),
    ),
    tcp(
        "tcp-reno",
        "TCP Reno: fast recovery ends with the first new acknowledgement",
        KernelTcp { congestion_control: "reno", sack: false, alike: false },
        |role, setup| tcp::end(Flavour::Reno, role, setup),
    ),
    tcp(
        "tcp-newreno",
        "TCP NewReno: fast recovery repairs all losses of a window",
        KernelTcp { congestion_control: "reno", sack: false, alike: true },
        |role, setup| tcp::end(Flavour::NewReno, role, setup),
    ),
    tcp(
        "tcp-sack",
        "TCP with selective acknowledgements",
        KernelTcp { congestion_control: "reno", sack: true, alike: true },
        |role, setup| tcp::end(Flavour::Sack, role, setup),
    ),
    TransportEntry {
        name: "cbr",
        about: "packets at a constant rate, without control or repair",
        options: cbr::OPTIONS,
        multicast: true,
        many_to_many: true,
        own_checksum: false,
        repair_heads: false,
        packets: PacketFormat::Datagrams(cbr::facts),
        ends: Ends::Alone { guarantees: Guarantees::SILENT, answers: false, end: cbr::end },
    },
    TransportEntry {
        repair_heads: true,
        ..reliable(
            "tram",
            "a tree of repair heads, windows that receivers keep, and a paced source",
            tram::OPTIONS,
            tram::facts,
            Ends::Alone {
                guarantees: tram::GUARANTEES,
                answers: true,
                end: |role, setup| tree_end(row_tree("tram"), role, setup),
            },
        )
    },
    tree_entry!(Pgmcc, "tram-pgmcc", "TRAM's tree of repair heads, steered by pgmcc"),
    tree_entry!(Tfmcc, "tram-tfmcc", "TRAM's tree of repair heads, steered by TFMCC"),
    tree_entry!(Ormcc, "tram-ormcc", "TRAM's tree of repair heads, steered by ORMCC"),
    reliable(
        "credit",
        "credits from hop to hop, and TRAM's tree of repair heads above them",
        &credits::OPTIONS,
        |packet| credit::facts(packet, tram::facts),
        Ends::Alone { guarantees: credits::GUARANTEES, answers: true, end: credits::end },
    ),
    credit_entry!(Pgmcc, "credit-pgmcc", "pgmcc over PGM, with credits from hop to hop below it"),
    credit_entry!(Tfmcc, "credit-tfmcc", "TFMCC over PGM, with credits from hop to hop below it"),
    credit_entry!(Ormcc, "credit-ormcc", "ORMCC over PGM, with credits from hop to hop below it"),
    TransportEntry {
        name: "hop",
        about: "the link between two relays: NewReno with SACK, by frames over UDP",
        options: &[],
        multicast: false,
        many_to_many: false,
        own_checksum: false,
        repair_heads: false,
        packets: PacketFormat::Datagrams(flow::facts),
        ends: Ends::Alone { guarantees: flow::GUARANTEES, answers: true, end: flow::end },
    },
    kernel_tcp("tcp-cubic", "cubic", "the kernel's TCP with CUBIC; in the lab only"),
    kernel_tcp("tcp-bbr", "bbr", "the kernel's TCP with BBR; in the lab only"),
];

/// Constructor of an end.
type EndOf = fn(Role, EndSetup<'_>) -> Box<dyn Machine>;

/// A transport that brings everything to many receivers of one source.
const fn reliable(
    name: &'static str,
    about: &'static str,
    options: &'static [OptionSpec],
    facts: fn(&[u8]) -> PacketFacts,
    ends: Ends,
) -> TransportEntry {
    TransportEntry {
        name,
        about,
        options,
        multicast: true,
        many_to_many: false,
        own_checksum: true,
        repair_heads: false,
        packets: PacketFormat::Datagrams(facts),
        ends,
    }
}

const fn tcp(
    name: &'static str,
    about: &'static str,
    kernel: KernelTcp,
    end: EndOf,
) -> TransportEntry {
    let ends = Ends::Alone { guarantees: tcp::GUARANTEES, answers: true, end };
    TransportEntry {
        name,
        about,
        options: tcp::OPTIONS,
        multicast: false,
        many_to_many: false,
        own_checksum: false,
        repair_heads: false,
        packets: PacketFormat::Kernel(kernel),
        ends,
    }
}

const fn kernel_tcp(
    name: &'static str,
    congestion_control: &'static str,
    about: &'static str,
) -> TransportEntry {
    let kernel = KernelTcp { congestion_control, sack: true, alike: true };
    let ends = Ends::Kernel { guarantees: tcp::GUARANTEES };
    TransportEntry {
        name,
        about,
        options: tcp::KernelSettings::OPTIONS,
        multicast: false,
        many_to_many: false,
        own_checksum: false,
        repair_heads: false,
        packets: PacketFormat::Kernel(kernel),
        ends,
    }
}

/// All schemes as ends tell them apart.
pub const KNOWN_SCHEMES: &[KnownScheme] = &known();

const fn known() -> [KnownScheme; SCHEMES.len()] {
    let mut known = [KnownScheme { name: "", announce_option: 0 }; SCHEMES.len()];
    let mut i = 0;
    while i < known.len() {
        let SchemeEntry { name, announce_option, .. } = SCHEMES[i];
        known[i] = KnownScheme { name, announce_option };
        i += 1;
    }
    known
}

/// TRAM by the name of its row: by itself, or its tree with a scheme that steers it.
pub fn tree(name: &str) -> Option<Tree> {
    let entry = transport(name).filter(|entry| entry.repair_heads)?;
    let steering = match entry.name.split_once('-') {
        None => None,
        Some((_, steering)) => Some(scheme(steering)?),
    };
    Some(Tree { name: entry.name, options: entry.options, steering })
}

/// TRAM's rows as ends tell them apart.
pub const KNOWN_TREES: &[KnownScheme] = &trees();

const fn tree_count() -> usize {
    let (mut count, mut row) = (0, 0);
    while row < TRANSPORTS.len() {
        count += TRANSPORTS[row].repair_heads as usize;
        row += 1;
    }
    count
}

const fn trees() -> [KnownScheme; tree_count()] {
    let mut trees = [KnownScheme { name: "", announce_option: 0 }; tree_count()];
    let (mut i, mut row) = (0, 0);
    while row < TRANSPORTS.len() {
        if TRANSPORTS[row].repair_heads {
            // Announcements of schemes have another form there.
            trees[i].name = TRANSPORTS[row].name;
            i += 1;
        }
        row += 1;
    }
    trees
}

/// A sender and a receiver of TRAM that speak these two of its rows.
pub fn tree_mismatch(sender: impl Into<String>, receiver: impl Into<String>) -> SchemeMismatch {
    SchemeMismatch { sender: sender.into(), receiver: receiver.into(), known: KNOWN_TREES }
}

/// Parts of all schemes that routers can read.
pub const ROUTER_VIEWS: &[RouterView] = &views();

const fn views() -> [RouterView; SCHEMES.len()] {
    let mut views = [SCHEMES[0].view; SCHEMES.len()];
    let mut i = 0;
    while i < views.len() {
        views[i] = SCHEMES[i].view;
        i += 1;
    }
    views
}

/// What the source of a session speaks, as far as one of its packets tells: the name on an SPM, or
/// the registered scheme whose announcement rides on data. `None` where it tells nothing.
pub fn scheme_spoken(packet: &[u8]) -> Option<String> {
    let packet = Packet::decode(packet, 0).ok()?;
    let named = packet.options.find(OptionType::SCHEME);
    match named.and_then(|option| SchemeAnnouncement::decode(option.value)) {
        Some(announced) => Some(announced.scheme),
        None => scheme_on(KNOWN_SCHEMES, &packet).map(ToString::to_string),
    }
}

/// A sender and a receiver that speak these two schemes.
pub fn mismatch(sender: impl Into<String>, receiver: impl Into<String>) -> SchemeMismatch {
    SchemeMismatch { sender: sender.into(), receiver: receiver.into(), known: KNOWN_SCHEMES }
}

/// All relays.
pub const RELAYS: &[RelayEntry] = &[
    RelayEntry {
        name: "pgm-element",
        about: "PGM network element: confirms and aggregates NAKs, constrains repairs",
        options: ElementConfig::OPTIONS,
        relay: |node, options, _| pgm_element(node, options),
    },
    RelayEntry {
        name: "credit",
        about: "hop-by-hop credits: queues for branches, and fair turns between flows",
        options: credit::RELAY_OPTIONS,
        relay: |node, options, host| credit::relay(node, options, host),
    },
];

/// Packets of a scheme or transport on real networks; `None` for an unknown name.
pub fn packets(protocol: &str) -> Option<PacketFormat> {
    match scheme(protocol) {
        Some(_) => Some(PacketFormat::Datagrams(pgm::facts)),
        None => Some(transport(protocol)?.packets),
    }
}

/// The protocols that bring everything to many receivers and keep to a rate by themselves, in the order of the
/// tables: all schemes, and transports with a control of their own. With each the settings that it knows.
pub fn reliable_multicast() -> impl Iterator<Item = (&'static str, &'static [OptionSpec])> {
    let schemes = SCHEMES.iter().map(|entry| (entry.name, entry.options));
    let transports = TRANSPORTS
        .iter()
        .filter(|entry| entry.multicast && matches!(entry.ends, Ends::Alone { answers: true, .. }));
    schemes.chain(transports.map(|entry| (entry.name, entry.options)))
}

/// The scheme of this name.
pub fn scheme(name: &str) -> Option<&'static SchemeEntry> {
    SCHEMES.iter().find(|entry| entry.name == name)
}

/// The transport of this name.
pub fn transport(name: &str) -> Option<&'static TransportEntry> {
    TRANSPORTS.iter().find(|entry| entry.name == name)
}

/// One end of a flow that runs `protocol`: a scheme, or a transport that needs none. `None` where there
/// is no such protocol, only the kernel has it, or it has no ends of this role.
pub fn end(protocol: &str, role: Role, setup: EndSetup<'_>) -> Option<Box<dyn Machine>> {
    let both = matches!(role, Role::Both(_));
    if let Some(scheme) = scheme(protocol) {
        return (!both).then(|| scheme.end(role, setup));
    }
    let transport = transport(protocol)?;
    match transport.ends {
        Ends::Alone { end, .. } if transport.many_to_many || !both => Some(end(role, setup)),
        _ => None,
    }
}

/// The relay of this name.
pub fn relay(name: &str) -> Option<&'static RelayEntry> {
    RELAYS.iter().find(|entry| entry.name == name)
}

/// The row of a scheme, with its settings and those of the transport in one table.
///
/// ```
/// use faircast_proto::{catalog::SchemeEntry, scheme_entry, congestion::pgmcc::Pgmcc};
///
/// const ENTRY: SchemeEntry = scheme_entry!(Pgmcc);
/// assert_eq!(ENTRY.name, "pgmcc");
/// ```
#[macro_export]
macro_rules! scheme_entry {
    ($scheme:ty) => {{
        const OWN: &[$crate::options::OptionSpec] =
            <$scheme as $crate::congestion::Scheme>::OPTIONS;
        const TRANSPORT: &[$crate::options::OptionSpec] = $crate::pgm::OPTIONS;
        const ALL: [$crate::options::OptionSpec; OWN.len() + TRANSPORT.len()] =
            $crate::catalog::joined(OWN, TRANSPORT);
        $crate::catalog::SchemeEntry::of::<$scheme>(&ALL)
    }};
}

/// Two tables as one; `N` is the sum of their lengths, and there is one row at least.
///
/// # Panics
///
/// Where `N` is another number, which the compiler then says.
pub const fn joined<const N: usize>(
    first: &[OptionSpec],
    second: &[OptionSpec],
) -> [OptionSpec; N] {
    assert!(N == first.len() + second.len());
    let mut all = [if first.is_empty() { second[0] } else { first[0] }; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

#[cfg(test)]
mod tests;
