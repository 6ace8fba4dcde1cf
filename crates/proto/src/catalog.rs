//! Catalog of all transports, schemes, hop controls and relays. A new scheme needs its row here.

mod ends;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId};

use crate::cbr;
pub use crate::congestion::SchemeEntry;
use crate::congestion::open::Open;
use crate::congestion::ormcc::Ormcc;
use crate::congestion::pgmcc::Pgmcc;
use crate::congestion::tfmcc::Tfmcc;
use crate::congestion::{Guarantees, Scheme};
use crate::credit::{self, ProgramHost};
use crate::options::{OptionSpec, Options};
use crate::pgm;
use crate::pgm::element::ElementConfig;
use crate::pgm::negotiation::{SchemeAnnouncement, SchemeMismatch, scheme_on};
use crate::pgm::wire::{OptionType, Packet};
use crate::relay::Relay;
pub use crate::stack::Stack;
use crate::stack::{self, Alone, HopEntry, Steered, TransportEntry};
use crate::tcp::{self, Flavour};
use crate::tram;
use crate::transport::{KernelTcp, PacketFormat};

use ends::{pgm_element, pgm_end, tree_end, under_credits};

/// Constructor of a relay.
pub type RelayOf = fn(NodeId, &Options, Option<Arc<dyn ProgramHost>>) -> Box<dyn Relay>;

/// Entry of a relay: a program that a router runs beside forwarding.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RelayEntry {
    pub name: &'static str,
    pub about: &'static str,
    pub options: &'static [OptionSpec],
    pub relay: RelayOf,
}

/// Name of the scheme used when a scenario names none.
pub const DEFAULT_SCHEME: &str = Pgmcc::NAME;

/// All congestion control schemes.
pub const SCHEMES: &[SchemeEntry] =
    &[SchemeEntry::of::<Pgmcc>(), SchemeEntry::of::<Tfmcc>(), SchemeEntry::of::<Ormcc>()];

/// Scheme of sources that only the hop control limits. Not in [`SCHEMES`]: it must not run alone.
static OPEN: SchemeEntry = SchemeEntry::of::<Open>();

/// All transports.
pub static TRANSPORTS: &[TransportEntry] = &[
    PGM,
    TransportEntry {
        end: Some(|_, role, setup| tcp::end(Flavour::Reno, role, setup)),
        ..tcp(
            "tcp-reno",
            "TCP Reno: fast recovery ends with the first new acknowledgement",
            KernelTcp { congestion_control: "reno", sack: false, alike: false },
        )
    },
    TransportEntry {
        end: Some(|_, role, setup| tcp::end(Flavour::NewReno, role, setup)),
        ..tcp(
            "tcp-newreno",
            "TCP NewReno: fast recovery repairs all losses of a window",
            KernelTcp { congestion_control: "reno", sack: false, alike: true },
        )
    },
    TransportEntry {
        end: Some(|_, role, setup| tcp::end(Flavour::Sack, role, setup)),
        ..tcp(
            "tcp-sack",
            "TCP with selective acknowledgements",
            KernelTcp { congestion_control: "reno", sack: true, alike: true },
        )
    },
    TransportEntry {
        name: "cbr",
        about: "packets at a constant rate, without control or repair",
        alone: Some(Alone { options: cbr::OPTIONS, guarantees: Guarantees::SILENT }),
        steered: None,
        multicast: true,
        many_to_many: true,
        answers: false,
        own_checksum: false,
        repair_heads: false,
        packets: PacketFormat::Datagrams(cbr::facts),
        end: Some(|_, role, setup| cbr::end(role, setup)),
    },
    TRAM,
    kernel_tcp("tcp-cubic", "the kernel's TCP with CUBIC; in the lab only", "cubic"),
    kernel_tcp("tcp-bbr", "the kernel's TCP with BBR; in the lab only", "bbr"),
];

const PGM: TransportEntry = TransportEntry {
    name: stack::PGM,
    about: "PGM: a stream that is repaired by NAK, or an object that is repaired by what receivers ask for",
    alone: None,
    steered: Some(Steered {
        about: "PGM",
        options: pgm::OPTIONS,
        recovery: Duration::ZERO,
        floor: |own, _| own,
        reports_max: |own, _, _| own,
        // The source multicasts one confirmation (NCF) for each lost packet.
        group_packets: |load| load.data_packets + load.losses,
    }),
    multicast: true,
    many_to_many: false,
    answers: true,
    own_checksum: true,
    repair_heads: false,
    packets: PacketFormat::Datagrams(pgm::facts),
    end: Some(pgm_end),
};

const TRAM: TransportEntry = TransportEntry {
    name: "tram",
    about: "a tree of repair heads, receiver windows, and a paced source",
    alone: Some(Alone { options: tram::OPTIONS, guarantees: tram::GUARANTEES }),
    steered: Some(Steered {
        about: "TRAM's tree of repair heads",
        options: tram::STEERED_OPTIONS,
        recovery: tram::GUARANTEES.recovery,
        floor: tram::steered_floor,
        reports_max: |_, options, load| tram::steered_reports_max(options, load),
        group_packets: |load| load.data_packets,
    }),
    multicast: true,
    many_to_many: false,
    answers: true,
    own_checksum: true,
    repair_heads: true,
    packets: PacketFormat::Datagrams(tram::facts),
    end: Some(tree_end),
};

/// All hop controls.
pub static HOPS: &[HopEntry] = &[HopEntry {
    name: "credit",
    about: "credits from hop to hop, and TRAM's tree of repair heads above them",
    below: "with credits from hop to hop below it",
    options: credit::OPTIONS,
    // Settings that each end of a session is configured with, because no packet carries them.
    without: &["delivery", "linger"],
    open: &OPEN,
    over: TRAM.name,
    end: under_credits,
    facts: credit::facts,
    reports_max: credit::credits_max,
}];

/// Returns a TCP transport: one sender and one receiver.
const fn tcp(name: &'static str, about: &'static str, kernel: KernelTcp) -> TransportEntry {
    TransportEntry {
        name,
        about,
        alone: Some(Alone { options: tcp::OPTIONS, guarantees: tcp::GUARANTEES }),
        steered: None,
        multicast: false,
        many_to_many: false,
        answers: true,
        own_checksum: false,
        repair_heads: false,
        packets: PacketFormat::Kernel(kernel),
        end: None,
    }
}

const fn kernel_tcp(
    name: &'static str,
    about: &'static str,
    congestion_control: &'static str,
) -> TransportEntry {
    let options = tcp::KernelSettings::OPTIONS;
    let alone = Some(Alone { options, guarantees: tcp::GUARANTEES });
    TransportEntry {
        alone,
        ..tcp(name, about, KernelTcp { congestion_control, sack: true, alike: true })
    }
}

/// Iterates over all valid stacks: with and without schemes, and above each hop control.
pub fn stacks() -> impl Iterator<Item = Stack> {
    let over = |transport: &'static TransportEntry| {
        let alone = transport.alone.map(|_| Stack { transport, scheme: None, hop: None });
        let schemes = SCHEMES.iter().filter(|_| transport.steered.is_some());
        let steered =
            schemes.map(move |scheme| Stack { transport, scheme: Some(scheme), hop: None });
        alone.into_iter().chain(steered)
    };
    let above = |hop: &'static HopEntry| {
        let transport = TRANSPORTS.iter().find(|transport| transport.name == hop.over);
        let open =
            transport.map(|transport| Stack { transport, scheme: Some(hop.open), hop: Some(hop) });
        let pgm = SCHEMES.iter().map(over_pgm).map(|stack| Stack { hop: Some(hop), ..stack });
        open.into_iter().chain(pgm)
    };
    TRANSPORTS.iter().flat_map(over).chain(HOPS.iter().flat_map(above))
}

/// Returns the stack of a scheme over PGM.
pub fn over_pgm(scheme: &'static SchemeEntry) -> Stack {
    Stack { transport: &TRANSPORTS[0], scheme: Some(scheme), hop: None }
}

/// Returns the stack with this [name](Stack::name).
pub fn stack(name: &str) -> Option<Stack> {
    stacks().find(|stack| stack.name() == name)
}

/// Returns the stacks without hop control whose receivers act as repair heads.
pub fn trees() -> Vec<Stack> {
    stacks().filter(Stack::has_heads).collect()
}

/// Returns the negotiation of a TRAM receiver that follows its source, or accepts `insists` only.
pub fn tree_negotiation(insists: Option<Stack>) -> tram::TreeNegotiation {
    tram::TreeNegotiation { insists, known: trees }
}

/// Iterates over the stacks for programs and the library. Through relays, sessions use credits.
pub fn live_stacks() -> impl Iterator<Item = Stack> {
    reliable_multicast().filter(|stack| stack.hop.is_none())
}

/// Iterates over the stacks that deliver all data to many receivers and limit their own rate.
pub fn reliable_multicast() -> impl Iterator<Item = Stack> {
    stacks().filter(Stack::is_reliable_multicast)
}

/// Returns the scheme of a session's source by one of its packets; `None` if that names none.
pub fn scheme_spoken(packet: &[u8]) -> Option<String> {
    let packet = Packet::decode(packet, 0).ok()?;
    let named = packet.options.find(OptionType::SCHEME);
    match named.and_then(|option| SchemeAnnouncement::decode(option.value)) {
        Some(announced) => Some(announced.scheme),
        None => scheme_on(SCHEMES, &packet).map(ToString::to_string),
    }
}

/// Returns the error for a PGM sender and receiver with these different schemes.
pub fn mismatch(sender: impl Into<String>, receiver: impl Into<String>) -> SchemeMismatch {
    let known = SCHEMES.iter().map(|scheme| scheme.name.to_string()).collect();
    SchemeMismatch { sender: sender.into(), receiver: receiver.into(), known }
}

/// Returns the error for a TRAM sender and receiver with these different stacks.
pub fn tree_mismatch(sender: impl Into<String>, receiver: impl Into<String>) -> SchemeMismatch {
    let known = trees().iter().map(Stack::name).collect();
    SchemeMismatch { sender: sender.into(), receiver: receiver.into(), known }
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

/// Returns the scheme with this name.
pub fn scheme(name: &str) -> Option<&'static SchemeEntry> {
    SCHEMES.iter().find(|entry| entry.name == name)
}

/// Returns the relay with this name.
pub fn relay(name: &str) -> Option<&'static RelayEntry> {
    RELAYS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests;
