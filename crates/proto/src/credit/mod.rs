//! Hop-by-hop credits: no node sends what the next one has no room for, and the branches of a tree decide together how
//! fast that is (src: credits).
//!
//! Reading order: `wire` (capsules and credits), `branch` and `upstream` (what every flow-control node knows of the nodes
//! below it and above it), `node` (a session at a relay), `programs` (policies that come with a session), `relay` (a
//! router's sessions, and its links), `source` and `receiver` (the ends, around machines that know nothing of credits).

mod branch;
mod drr;
mod node;
mod port;
mod programs;
mod receiver;
mod refresh;
mod relay;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod upstream;
mod wire;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::NodeId;

use crate::congestion::Load;
use crate::options::{OptionSpec, Options, joined};
use crate::relay::Relay;
use crate::transport::PacketFacts;

pub use programs::{
    Loaded, PROGRAM_BYTES_MAX, PendingLoad, ProgramFault, ProgramHost, RunningProgram,
    SessionProgram,
};
pub use receiver::CreditReceiver;
use relay::CreditRelay;
pub(crate) use settings::PolicyId;
use settings::{CreditSettings, RelaySettings};
pub use source::CreditSource;
pub(crate) use wire::{header_bytes, specimens};

/// The settings of a session under credits.
pub const OPTIONS: &[OptionSpec] =
    &joined::<{ CreditSettings::OPTIONS.len() + 1 }>(CreditSettings::OPTIONS, &[settings::PROGRAM]);

/// The settings of a relay.
pub const RELAY_OPTIONS: &[OptionSpec] = RelaySettings::OPTIONS;
/// Settings of a session through relay nodes where the user sets none: packets of 4 kB that fill
/// 100 Mbit/s and 20 ms from one relay to the next.
pub const RELAYED: [(&str, i64); 3] = [("credit_buffer", 96), ("credit_unit", 12), ("lag", 64)];

/// How many bytes of a packet are for relays to read: the header of a capsule, which stands before what it carries, or all
/// of a packet of credits that carries nothing. 0 where it is none of these.
pub fn clear_bytes(packet: &[u8]) -> usize {
    if !wire::is_ours(packet) {
        return 0;
    }
    wire::own_bytes(packet)
}

/// Facts of a packet of a session under credits, of what its capsule carries by `inner`.
pub(crate) fn facts(packet: &[u8], inner: fn(&[u8]) -> PacketFacts) -> PacketFacts {
    if !wire::is_ours(packet) {
        return inner(packet);
    }
    match wire::decode(packet) {
        Ok(wire::Packet::Capsule(capsule)) if !capsule.probe => inner(&packet[CAPSULE_BYTES..]),
        _ => PacketFacts::default(),
    }
}

/// Writes a packet of credits again, as it was read. `None` if it is refused. For tests of the wire format.
pub fn written_again(packet: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match wire::decode(packet).ok().filter(|_| wire::is_ours(packet))? {
        wire::Packet::Capsule(it) => it.encode(&mut out),
        wire::Packet::Credit(it) => it.encode(&mut out),
        wire::Packet::Pull(it) => it.encode(&mut out),
        wire::Packet::Part(it) => it.encode(&mut out),
    }
    Some(out)
}

/// Bytes of a capsule before what it carries.
pub const CAPSULE_BYTES: usize = wire::CAPSULE_BYTES;

/// The relay of the router `node`, on which `host` runs the programs of sessions. Where there is none, sessions with
/// programs pass as by any router.
pub fn relay(
    node: NodeId,
    options: &Options,
    host: Option<Arc<dyn ProgramHost>>,
) -> Box<dyn Relay + Send> {
    Box::new(CreditRelay::new(node, options, host))
}

/// The name of a program in packets, in hexadecimal digits.
pub fn program_name(code: &[u8]) -> String {
    settings::PolicyId::of(code).0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The most credits of receivers under a load, of which so many `capsules` come: one for each unit of these, and one each
/// time that nothing comes, again and again.
pub(crate) fn credits_max(options: &Options, load: &Load, capsules: u64) -> u64 {
    let settings = CreditSettings::from_options(options);
    let unit = u64::from(settings.credit_unit.min(settings.credit_buffer));
    let refreshed = load.lasted.as_nanos() / refresh::REFRESH.as_nanos() + 1;
    // Asked with a probe they answer, as often as they would say it again by themselves.
    load.receivers * (capsules / unit + 2 * refreshed + 1)
}

/// The tag of a node in a session: no other node has the same.
const fn tag_of(node: NodeId, session: u64) -> u64 {
    (node.0 as u64) << 32 | (session ^ session >> 32) & 0xffff_ffff
}
