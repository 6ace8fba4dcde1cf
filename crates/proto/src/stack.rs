//! Protocol stack of a flow: [catalog](crate::catalog) rows of its transport, scheme and hop.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Duration, GroupId};

use crate::congestion::{Floor, Guarantees, Load, SchemeEntry};
use crate::options::{OptionSpec, Options};
use crate::transport::{EndSetup, PacketFacts, PacketFormat, Role};
use crate::{Destination, FlowMachine};

/// Protocol stack of a flow.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Stack {
    pub transport: &'static TransportEntry,
    /// Congestion control scheme of the source; `None` if the transport has its own.
    pub scheme: Option<&'static SchemeEntry>,
    pub hop: Option<&'static HopEntry>,
}

/// Entry of a transport.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct TransportEntry {
    pub name: &'static str,
    pub about: &'static str,
    /// Settings and guarantees without a scheme. `None` if the stack bears a scheme's name.
    pub alone: Option<Alone>,
    /// Settings and guarantees with a scheme; `None` if no scheme can steer the transport.
    pub steered: Option<Steered>,
    pub multicast: bool,
    /// True if a flow may have several sources, and ends that are source and receiver at once.
    pub many_to_many: bool,
    pub answers: bool,
    /// True if packets carry a checksum of their own. TCP and UDP checksums are the kernel's.
    pub own_checksum: bool,
    pub repair_heads: bool,
    pub packets: PacketFormat,
    /// Constructor of an end; `None` if only the lab runs the transport, by the kernel.
    pub end: Option<EndOf>,
}

/// Constructor of an end of a flow.
pub type EndOf = fn(Stack, Role, EndSetup<'_>) -> FlowMachine;
/// Parser of the facts of a packet.
pub type FactsOf = fn(&[u8]) -> PacketFacts;

/// Settings and guarantees of a transport with its own congestion control.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields are what their names and types say")]
pub struct Alone {
    pub options: &'static [OptionSpec],
    pub guarantees: Guarantees,
}

/// Settings and guarantees of a transport that a scheme steers.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Steered {
    /// Description of the transport without its congestion control.
    pub about: &'static str,
    pub options: &'static [OptionSpec],
    /// Recovery time after forged packets; a longer time of the scheme prevails.
    pub recovery: Duration,
    /// Function from the scheme's rate floor to that of the stack.
    pub floor: fn(Option<Floor>, &Options) -> Option<Floor>,
    /// Function from the most receiver packets of the scheme over PGM to those of the stack.
    pub reports_max: fn(u64, &Options, &Load) -> u64,
    pub group_packets: fn(&Load) -> u64,
}

/// Entry of a hop control.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct HopEntry {
    pub name: &'static str,
    pub about: &'static str,
    /// Description of the hop control below a scheme, as the end of a sentence.
    pub below: &'static str,
    pub options: &'static [OptionSpec],
    /// Settings of transports with repair heads that have no effect above the hop control.
    pub without: &'static [&'static str],
    /// Scheme of the stack that is named after the hop control alone: no limit at the source.
    pub open: &'static SchemeEntry,
    /// Name of the transport of that stack.
    pub over: &'static str,
    /// Constructor of an end below an end of the transport; true for a source.
    pub end: fn(FlowMachine, bool, EndSetup<'_>) -> FlowMachine,
    /// Parser of a packet's facts, which calls the parser of the packet inside.
    pub facts: fn(&[u8], FactsOf) -> PacketFacts,
    /// Most receiver packets beside the transport's, for a number of packets to the group.
    pub reports_max: fn(&Options, &Load, u64) -> u64,
}

/// Name of the transport of schemes that are named without a transport.
pub const PGM: &str = "pgm";

impl Stack {
    /// Returns the name in scenarios: `pgmcc`, `tram`, `tram-pgmcc`, `credit`, `credit-pgmcc`.
    pub fn name(&self) -> String {
        let below = match (self.hop, self.transport.alone) {
            (Some(hop), _) => Some(hop.name),
            (None, Some(_)) => Some(self.transport.name),
            (None, None) => None,
        };
        match (below, self.steering()) {
            (Some(below), Some(scheme)) => format!("{below}-{}", scheme.name),
            (Some(below), None) => below.to_string(),
            (None, scheme) => scheme.map_or("", |scheme| scheme.name).to_string(),
        }
    }

    fn steering(&self) -> Option<&'static SchemeEntry> {
        self.scheme.filter(|scheme| self.hop.is_none_or(|hop| hop.open.name != scheme.name))
    }

    /// Returns the description in one line.
    pub fn about(&self) -> String {
        let over = self.transport.steered.map_or("", |steered| steered.about);
        match (self.steering(), self.hop) {
            (Some(scheme), Some(hop)) => format!("{} over {over}, {}", scheme.name, hop.below),
            (Some(scheme), None) if self.transport.alone.is_none() => scheme.about.to_string(),
            (Some(scheme), None) => format!("{over}, steered by {}", scheme.name),
            (None, hop) => hop.map_or(self.transport.about, |hop| hop.about).to_string(),
        }
    }

    /// Returns the settings of the scheme, of the transport, and of the hop control.
    pub fn options(&self) -> Vec<OptionSpec> {
        let Self { transport, scheme, hop } = self;
        let own = scheme.map_or(&[][..], |scheme| scheme.own_options);
        let mut all = own.to_vec();
        all.extend_from_slice(match (scheme, transport.steered, transport.alone) {
            (Some(_), Some(steered), _) => steered.options,
            (_, _, alone) => alone.map_or(&[], |alone| alone.options),
        });
        if let Some(hop) = hop {
            all.retain(|spec| !transport.repair_heads || !hop.without.contains(&spec.name));
            all.extend_from_slice(hop.options);
        }
        all
    }

    /// True if the stack has a setting of this name.
    pub fn has_option(&self, name: &str) -> bool {
        self.options().iter().any(|spec| spec.name == name)
    }

    fn base(&self) -> Guarantees {
        let alone = self.transport.alone.map(|alone| alone.guarantees);
        self.scheme.map(|scheme| scheme.guarantees).or(alone).unwrap_or(Guarantees::SILENT)
    }

    fn steered(&self) -> Option<Steered> {
        self.transport.steered.filter(|_| self.scheme.is_some())
    }

    /// Returns the rate floor of a sender without feedback; `None` if it never gets feedback.
    pub fn floor(&self, options: &Options) -> Option<Floor> {
        let own = (self.base().floor)(options);
        self.steered().map_or(own, |steered| (steered.floor)(own, options))
    }

    /// Returns the longest recovery of the rate after forged packets, on a path of 2 Mbit/s.
    pub fn recovery(&self) -> Duration {
        let own = self.base().recovery;
        self.steered().map_or(own, |steered| own.max(steered.recovery))
    }

    /// Returns the most packets that all receivers together send under a load without loss.
    pub fn reports_max(&self, options: &Options, load: &Load) -> u64 {
        let own = (self.base().reports_max)(options, load);
        let Some(steered) = self.steered() else { return own };
        let above = (steered.reports_max)(own, options, load);
        let packets = (steered.group_packets)(load);
        above + self.hop.map_or(0, |hop| (hop.reports_max)(options, load, packets))
    }

    /// Returns the facts of a packet on a real network; `None` for segments of the kernel's TCP.
    pub fn facts(&self, packet: &[u8]) -> Option<PacketFacts> {
        let PacketFormat::Datagrams(facts) = self.transport.packets else { return None };
        Some(match self.hop {
            Some(hop) => (hop.facts)(packet, facts),
            None => facts(packet),
        })
    }

    /// True if packets on real networks have the PGM format.
    pub fn is_pgm(&self) -> bool {
        self.transport.name == PGM && self.hop.is_none()
    }

    /// True if receivers can be repair heads, and can be assigned one.
    pub fn has_heads(&self) -> bool {
        self.transport.repair_heads && self.hop.is_none()
    }

    /// True if the simulator runs the stack; false if only the lab does.
    pub fn is_simulated(&self) -> bool {
        self.transport.end.is_some()
    }

    /// True if the stack delivers data to many receivers that answer.
    pub fn is_reliable_multicast(&self) -> bool {
        self.transport.multicast && self.transport.answers
    }

    /// Creates an end of a flow; `None` for a transport of the kernel, or an unsupported role.
    pub fn end(self, role: Role, setup: EndSetup<'_>) -> Option<FlowMachine> {
        let end = self.transport.end?;
        if matches!(role, Role::Both(_)) && !self.transport.many_to_many {
            return None;
        }
        let Some(hop) = self.hop else { return Some(end(self, role, setup)) };
        let is_source = matches!(role, Role::Source(_));
        // The hop control handles packets for a group only, even with a single receiver.
        let setup = EndSetup { to: Destination::Group(GroupId::SESSION), ..setup };
        Some((hop.end)(end(self, role, setup), is_source, setup))
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Stack {}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
