//! The protocols of a flow as a stack: a transport, the scheme that steers it, and a control of the hops below both.
//!
//! Each of the three is a row of a table of the [catalog](crate::catalog). Ends, settings and guarantees of a flow follow
//! from its rows.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Duration, GroupId};

use crate::congestion::{Floor, Guarantees, Load, SchemeEntry};
use crate::options::{OptionSpec, Options};
use crate::transport::{EndSetup, PacketFacts, PacketFormat, Role};
use crate::{Destination, FlowMachine};

/// The protocols of a flow.
#[derive(Clone, Copy)]
pub struct Stack {
    /// Carries the flow.
    pub transport: &'static TransportEntry,
    /// Steers the source; `None` if the transport steers itself.
    pub scheme: Option<&'static SchemeEntry>,
    /// Controls each hop below the transport; `None` without such a control.
    pub hop: Option<&'static HopEntry>,
}

/// A transport.
#[derive(Clone, Copy, Debug)]
pub struct TransportEntry {
    /// Name in scenario files.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Settings and guarantees without a scheme; `None` if the transport needs a scheme, whose name then is that of the
    /// stack.
    pub alone: Option<Alone>,
    /// Settings and guarantees with a scheme; `None` if no scheme can steer the transport.
    pub steered: Option<Steered>,
    /// True if a flow may have more than one receiver.
    pub multicast: bool,
    /// True if a flow may have more than one source, and ends that are source and receiver at once.
    pub many_to_many: bool,
    /// True if receivers answer.
    pub answers: bool,
    /// True if packets carry a checksum: those of TCP and UDP are the kernel's.
    pub own_checksum: bool,
    /// True if receivers repair for others.
    pub repair_heads: bool,
    /// Format of packets on real networks.
    pub packets: PacketFormat,
    /// Makes an end; `None` if only the kernel has the transport, in the lab.
    pub end: Option<EndOf>,
}

/// Constructor of an end.
pub type EndOf = fn(Stack, Role, EndSetup<'_>) -> FlowMachine;
/// Reader of the facts of a packet.
pub type FactsOf = fn(&[u8]) -> PacketFacts;

/// A transport that steers itself.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// Settings.
    pub options: &'static [OptionSpec],
    /// Guarantees to the network.
    pub guarantees: Guarantees,
}

/// A transport that a scheme steers.
#[derive(Clone, Copy, Debug)]
pub struct Steered {
    /// Description of the transport without what steers it.
    pub about: &'static str,
    /// Settings of the transport.
    pub options: &'static [OptionSpec],
    /// Recovery from forged packets, unless that of the scheme takes longer.
    pub recovery: Duration,
    /// Floor of the rate, from that of the scheme.
    pub floor: fn(Option<Floor>, &Options) -> Option<Floor>,
    /// Most packets of receivers under a load, from those of the scheme over PGM.
    pub reports_max: fn(u64, &Options, &Load) -> u64,
    /// Most packets to the group under a load.
    pub group_packets: fn(&Load) -> u64,
}

/// A control of hops.
#[derive(Clone, Copy, Debug)]
pub struct HopEntry {
    /// Name in scenario files.
    pub name: &'static str,
    /// Description in one line of the stack that bears the name of the control alone.
    pub about: &'static str,
    /// Description of the control below a scheme, as the end of a sentence.
    pub below: &'static str,
    /// Settings of a session.
    pub options: &'static [OptionSpec],
    /// Settings of transports with repair heads that have no effect above the hops.
    pub without: &'static [&'static str],
    /// Scheme of the stack that bears the name of the control alone: nothing else steers its source.
    pub open: &'static SchemeEntry,
    /// Name of the transport of that stack.
    pub over: &'static str,
    /// Makes an end, of a source if true, below the end of the transport.
    pub end: fn(FlowMachine, bool, EndSetup<'_>) -> FlowMachine,
    /// Facts of a packet, from those of the packet inside.
    pub facts: fn(&[u8], FactsOf) -> PacketFacts,
    /// Most packets of receivers, beside those of the transport, under a load with this number of packets to the group.
    pub reports_max: fn(&Options, &Load, u64) -> u64,
}

/// Name of the transport of schemes by themselves.
pub const PGM: &str = "pgm";

impl Stack {
    /// Name in scenario files and on the command line: `pgmcc`, `tram`, `tram-pgmcc`, `credit`, `credit-pgmcc`.
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

    /// The scheme, unless nothing steers the source but the hops below.
    fn steering(&self) -> Option<&'static SchemeEntry> {
        self.scheme.filter(|scheme| self.hop.is_none_or(|hop| hop.open.name != scheme.name))
    }

    /// Description in one line.
    pub fn about(&self) -> String {
        let over = self.transport.steered.map_or("", |steered| steered.about);
        match (self.steering(), self.hop) {
            (Some(scheme), Some(hop)) => format!("{} over {over}, {}", scheme.name, hop.below),
            (Some(scheme), None) if self.transport.alone.is_none() => scheme.about.to_string(),
            (Some(scheme), None) => format!("{over}, steered by {}", scheme.name),
            (None, hop) => hop.map_or(self.transport.about, |hop| hop.about).to_string(),
        }
    }

    /// Settings: those of the scheme, of the transport, and of the hops.
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

    /// True if there is a setting of this name.
    pub fn has_option(&self, name: &str) -> bool {
        self.options().iter().any(|spec| spec.name == name)
    }

    /// Guarantees of the scheme over PGM, or of the transport alone.
    fn base(&self) -> Guarantees {
        let alone = self.transport.alone.map(|alone| alone.guarantees);
        self.scheme.map(|scheme| scheme.guarantees).or(alone).unwrap_or(Guarantees::SILENT)
    }

    /// The row of the transport with a scheme, where a scheme steers it.
    fn steered(&self) -> Option<Steered> {
        self.transport.steered.filter(|_| self.scheme.is_some())
    }

    /// Floor of the rate of a sender that hears nothing; `None` for a sender that never hears anything.
    pub fn floor(&self, options: &Options) -> Option<Floor> {
        let own = (self.base().floor)(options);
        self.steered().map_or(own, |steered| (steered.floor)(own, options))
    }

    /// Longest time after the last of some forged packets until a session is at its old rate, on a path of 2 Mbit/s.
    pub fn recovery(&self) -> Duration {
        let own = self.base().recovery;
        self.steered().map_or(own, |steered| own.max(steered.recovery))
    }

    /// Most packets that all receivers together send under a load, if no packet of theirs is lost.
    pub fn reports_max(&self, options: &Options, load: &Load) -> u64 {
        let own = (self.base().reports_max)(options, load);
        let Some(steered) = self.steered() else { return own };
        let above = (steered.reports_max)(own, options, load);
        let packets = (steered.group_packets)(load);
        above + self.hop.map_or(0, |hop| (hop.reports_max)(options, load, packets))
    }

    /// Facts of a packet of the flow on real networks; `None` for segments of the kernel's TCP.
    pub fn facts(&self, packet: &[u8]) -> Option<PacketFacts> {
        let PacketFormat::Datagrams(facts) = self.transport.packets else { return None };
        Some(match self.hop {
            Some(hop) => (hop.facts)(packet, facts),
            None => facts(packet),
        })
    }

    /// True if packets on real networks are those of PGM.
    pub fn is_pgm(&self) -> bool {
        self.transport.name == PGM && self.hop.is_none()
    }

    /// True if receivers repair for others, and can be told who repairs for them.
    pub fn has_heads(&self) -> bool {
        self.transport.repair_heads && self.hop.is_none()
    }

    /// True if the simulator runs the stack; else only the lab does.
    pub fn is_simulated(&self) -> bool {
        self.transport.end.is_some()
    }

    /// True if the stack brings data to many receivers that answer.
    pub fn is_reliable_multicast(&self) -> bool {
        self.transport.multicast && self.transport.answers
    }

    /// One end of a flow; `None` if only the kernel has the transport, or the transport has no ends of the role.
    pub fn end(self, role: Role, setup: EndSetup<'_>) -> Option<FlowMachine> {
        let end = self.transport.end?;
        if matches!(role, Role::Both(_)) && !self.transport.many_to_many {
            return None;
        }
        let Some(hop) = self.hop else { return Some(end(self, role, setup)) };
        let is_source = matches!(role, Role::Source(_));
        // Packets for a group are under the control of hops, even with one receiver.
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
