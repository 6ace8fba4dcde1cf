//! Limits of what a scenario may ask for. Beyond each the scenario is refused with a message
//! that names the limit, so that no file can make a run eat all memory or never end.

/// Bytes of a scenario file.
pub const FILE_BYTES_MAX: u64 = 10_000_000;
/// Nanoseconds of virtual time: ten days.
pub const DURATION_NS_MAX: u64 = 10 * 24 * 3_600 * 1_000_000_000;
/// Nodes of one scenario.
pub const NODES_MAX: usize = 200_000;
/// Directions of links of one scenario: a link in both directions counts twice.
pub const LINKS_MAX: usize = 400_000;
/// Flows of one scenario, each `count` spelled out.
pub const FLOWS_MAX: usize = 100_000;
/// Senders of one flow.
pub const SENDERS_MAX: usize = 1_000;
/// Receivers and memberships over all flows; a receiver counts once for each sender.
pub const RECEIVERS_MAX: usize = 1_000_000;
/// Clients of all daemons.
pub const CLIENTS_MAX: u64 = 100_000;
/// Packets of the mean burst of losses.
pub const BURST_PACKETS_MAX: f64 = 1e6;
/// Changes, outages and listed drops over all directions of all links.
pub const CHANGES_MAX: usize = 1_000_000;
/// Bits per second of a link: 1 Tbit/s.
pub const RATE_BITS_PER_S_MAX: u64 = 1_000_000_000_000;
/// Nanoseconds of propagation on one link: 1000 s.
pub const DELAY_NS_MAX: u64 = 1_000 * 1_000_000_000;
/// Packets that a queue holds, or RED thresholds in packets.
pub const QUEUE_PACKETS_MAX: u32 = 10_000_000;
/// Bytes that a queue holds: 1 TB.
pub const QUEUE_BYTES_MAX: u64 = 1_000_000_000_000;
/// Bytes of payload of one packet: what fits into one IP packet with headers to spare.
pub const PACKET_BYTES_MAX: u64 = 65_000;
/// Bytes that a packet may add on the wire.
pub const HEADER_BYTES_MAX: u64 = 1_000;
/// Bytes of one flow's data: 1 PB.
pub const DATA_BYTES_MAX: u64 = 1_000_000_000_000_000;
/// Characters of the name of a node or flow.
pub const NAME_CHARS_MAX: usize = 64;
/// Characters of a title.
pub const TITLE_CHARS_MAX: usize = 500;
/// Levels of a tree.
pub const TREE_LEVELS_MAX: usize = 16;
