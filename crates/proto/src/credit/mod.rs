//! Hop-by-hop credits: a node sends only packets for which the next node has room (docs/credits.md;
//! src: credits).
//!
//! Reading order: `wire`, `branch`, `upstream`, `node` (a session at a relay), `programs`, `relay`,
//! `source` and `receiver`.

mod branch;
mod node;
mod port;
mod programs;
mod receiver;
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

/// Settings of a session under credits.
pub const OPTIONS: &[OptionSpec] =
    &joined::<{ CreditSettings::OPTIONS.len() + 1 }>(CreditSettings::OPTIONS, &[settings::PROGRAM]);

/// Settings of a relay.
pub const RELAY_OPTIONS: &[OptionSpec] = RelaySettings::OPTIONS;
/// Default settings through relay nodes: packets of 4 kB that fill a hop of 100 Mbit/s and 20 ms.
pub const RELAYED: [(&str, i64); 3] = [("credit_buffer", 96), ("credit_unit", 12), ("lag", 64)];

/// Bytes of a packet that relays read: a capsule's header, or all of a credit; 0 for other packets.
pub fn clear_bytes(packet: &[u8]) -> usize {
    if wire::is_ours(packet) { wire::own_bytes(packet) } else { 0 }
}

pub(crate) fn facts(packet: &[u8], inner: fn(&[u8]) -> PacketFacts) -> PacketFacts {
    if !wire::is_ours(packet) {
        return inner(packet);
    }
    match wire::decode(packet) {
        Ok(wire::Packet::Capsule(capsule)) if !capsule.probe => inner(&packet[CAPSULE_BYTES..]),
        _ => PacketFacts::default(),
    }
}

/// Decodes a packet of credits and encodes it again; `None` if invalid. For tests of the format.
pub fn written_again(packet: &[u8]) -> Option<Vec<u8>> {
    wire::decode(packet).ok().filter(|_| wire::is_ours(packet)).map(|packet| packet.encoded())
}

/// Length of a capsule's header.
pub const CAPSULE_BYTES: usize = wire::CAPSULE_BYTES;

/// Creates the relay of the router `node`; `host`, if any, runs the programs of sessions.
pub fn relay(
    node: NodeId,
    options: &Options,
    host: Option<Arc<dyn ProgramHost>>,
) -> Box<dyn Relay + Send> {
    Box::new(CreditRelay::new(node, options, host))
}

/// Returns the name of a program in packets, in hexadecimal digits.
pub fn program_name(code: &[u8]) -> String {
    settings::PolicyId::of(code).0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the most credits of receivers: one for each unit, and one for each refresh interval.
pub(crate) fn credits_max(options: &Options, load: &Load, capsules: u64) -> u64 {
    let settings = CreditSettings::from_options(options);
    let unit = u64::from(settings.credit_unit.min(settings.credit_buffer));
    let refreshed = load.lasted.as_nanos() / upstream::REFRESH.as_nanos() + 1;
    // Receivers answer probes as often as they repeat their credits: twice the refreshes.
    load.receivers * (capsules / unit + 2 * refreshed + 1)
}

const fn tag_of(node: NodeId, session: u64) -> u64 {
    (node.0 as u64) << 32 | (session ^ session >> 32) & 0xffff_ffff
}
