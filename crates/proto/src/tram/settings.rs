//! Settings of TRAM, and the profiles that set them together.

use faircast_base::{Bitrate, Duration};

use crate::options::{OptionSpec, Options, joined, selected};
use crate::pgm::options::{BOUNDS, DeliveryMode};
use crate::settings::{choices, settings};

choices! {
    /// Set of settings that belong together. Each setting can still be changed on its own.
    pub(super) enum Defaults {
        /// Best values: the paper's control, faster timers, and no bound of 2001 on the rate.
        Improved = "improved",
        /// The paper's algorithm and its Table 1.
        Paper = "paper",
        /// The Java implementation of 2001, where it differs from the paper.
        Jrms = "jrms",
        /// Repair as in RMTP (src: rmtp): members report often what they lack.
        Rmtp = "rmtp",
    }

    pub(super) enum CongestionRule {
        /// No fewer losses than in the window before, and at least the threshold (src: tram s3.2).
        Window = "window",
        /// More packets missing than at the last acknowledgement, and the threshold (src: jrms).
        Missing = "missing",
    }

    /// Limit of the packets that a receiver allows, H_a.
    pub(super) enum RightEdge {
        /// Congestion window beyond the end of the present acknowledgement window (src: jrms).
        Rounded = "rounded",
        /// Congestion window beyond the received packets (src: tram s3.2).
        Plain = "plain",
        /// Plain, and half an acknowledgement window more for each head up to the source: the rate
        /// must not depend on depth. Chosen (`docs/schemes/tram.md`, Scale).
        Levels = "levels",
    }

    pub(super) enum RateRule {
        /// Achieved average (src: tram s3.4).
        Average = "average",
        /// Present rate: the earlier design (src: tram s3.4, note 6).
        Current = "current",
    }

    pub(super) enum Clock {
        Fine = "fine",
        /// Milliseconds, slept in tens, with compensation (src: tram s3.5).
        Coarse = "coarse",
    }

    pub(super) enum LateJoin {
        None = "none",
        /// Packets that its head still keeps.
        Limited = "limited",
        /// All data: the source reads again what no head keeps.
        Full = "full",
    }

    pub(super) enum HeadRole {
        Never = "never",
        /// Head where no eager head takes members.
        Reluctant = "reluctant",
        Eager = "eager",
    }

    pub(super) enum Formation {
        /// Advertisements before data, solicitations afterwards (HAMTHA).
        Both = "both",
        Advertise = "advertise",
        /// Solicitations only (MTHA).
        Solicit = "solicit",
    }

    pub(super) enum RepairCast {
        /// Unicast to one or two requesting members; scoped multicast for more.
        Auto = "auto",
        Unicast = "unicast",
        /// Multicast within the reach of the members (src: jrms).
        Scope = "scope",
    }

    pub(super) enum Distance {
        /// Time to live with which the head's packets arrive.
        Ttl = "ttl",
        /// Round trip, for networks in which multicast has no scope.
        RoundTrip = "round_trip",
    }

    pub(super) enum Pruning {
        /// No removal: the source waits for all.
        Off = "off",
        /// Removal of members whose loss is the worst of all, which the sender reports.
        Centralised = "centralised",
        Decentralised = "decentralised",
    }
}

settings! {
    /// All settings of TRAM. Where `paper` or `jrms` differ from `improved`, the sentence says so.
    pub(super) struct TramSettings;
    from defaults: Defaults = Improved,
        "Base settings: the best known (improved), the paper's, or those of its implementation (jrms)";
    /// Acknowledgement window in packets, W_a: packets from one acknowledgement to the next (paper:
    /// 64)
    ack_window: u32 [4, 1024] = 32;
    /// Largest congestion window in acknowledgement windows, M (paper, jrms: 5)
    window_multiple: u32 [2, 64] = 2;
    /// Growth of the congestion window after an acknowledgement window without congestion, in
    /// packets
    window_growth: f64 [0.0, 1024.0] = 2.0;
    /// Share of lost packets from which on an acknowledgement window counts as congested, L_th
    loss_threshold: f64 [0.0, 1.0] = 0.25;
    /// Rule by which an acknowledgement window counts as congested (jrms: missing)
    congestion_rule: CongestionRule = Window;
    /// Right edge of a receiver's window: a congestion window beyond the last packet in order
    /// (paper: plain), beyond the current acknowledgement window (jrms: rounded), or further by the
    /// level in the tree
    right_edge: RightEdge = Levels;
    /// Lowest rate, R_min: slower members are pruned, and slow start begins at this rate
    rate_min: Bitrate [800 bit, 100 Gbit] = 8 kbit;
    /// Highest payload rate, R_max (paper: 12 Mbit/s, jrms: 512 kbit/s)
    rate_max: Bitrate [8 kbit, 1000 Gbit] = 1000 Gbit;
    /// Input of the next rate while the window opens
    rate_rule: RateRule = Average;
    /// Granularity of the pause between two packets
    clock: Clock = Fine;
    /// Earlier data of a stream that a late member may request (jrms: none; objects: always none)
    late_join: LateJoin = Full;
    /// Later packets after which a packet is no longer repaired; 0 for no limit
    obsolete_after: u32 [0, 1000000000] = 0;
    /// Role of a receiver in repair
    head: HeadRole = Reluctant;
    /// Most direct members of a head (paper: 5)
    members_max: u32 [1, 4096] = 32;
    /// Most direct members of the source that may be heads; limited by members_max (paper, jrms:
    /// 4096)
    source_members_max: u32 [1, 4096] = 8;
    /// Packets that a head keeps for repair
    cache_packets: u32 [16, 1048576] = 1200;
    /// Radius in hops within which receivers elect one head: 1 for a LAN, 2 for hosts behind one
    /// router; 0 for no elections
    lan: u32 [0, 255] = 0;
    /// Measure of the distance to a head
    distance: Distance = Ttl;
    /// Scope of repairs (jrms: scope)
    repair: RepairCast = Auto;
    /// Method by which receivers and heads find each other (paper, jrms: both)
    formation: Formation = Advertise;
    /// Largest scope of control packets in hops (jrms: 1)
    ttl: u32 [1, 255] = 32;
    /// Interval between beacons before and after data
    beacon_interval: Duration [50 ms, 60 s] = 1 s;
    /// Interval between hellos of a head (paper, jrms: 3 s)
    hello_interval: Duration [50 ms, 60 s] = 1 s;
    /// Delay from a detected loss to a request before the end of the acknowledgement window; 0 for
    /// no such requests (paper, jrms: 0)
    ask_interval: Duration [0 s, 60 s] = 50 ms;
    /// Node that decides which members are too slow
    pruning: Pruning = Centralised;
    /// Kind of delivery: a stream in order, or an object of which receivers request missing parts
    /// at any time
    delivery: DeliveryMode = Stream;
    /// Time for which the source of an object serves late receivers after all others are complete
    /// [unset: to the end of the run]
    linger: Duration [0 s, 3600 s] = 0 s;
    /// Receivers that must have joined before data is sent
    wait_for: u32 [0, 1000000] = 1;
    /// Earliest start of data after the start of the session
    gather: Duration [0 s, 3600 s] = 0 s;
    /// Longest wait of the source for the last receivers after all data is sent
    give_up: Duration [1 s, 3600 s] = 30 s;
    by profile:
    /// Acknowledgement windows to which the congestion window grows while nothing is lost.
    lossless_multiple: u32 = 16;
    /// Wait for a gap as long as late packets have shown, within 50 to 250 ms.
    reorder_learn: bool = true;
    /// Time after its join in which a receiver reports no congestion.
    join_grace: Duration = 0 s;
    /// Rate that is added to the least rate when slow start begins.
    rate_initial: Bitrate = 400 kbit;
    /// Slow start goes to no more than twice the rate at which all members acknowledge.
    slow_start_acknowledged: bool = true;
    /// Slow start begins anew after a closed window; repairs keep half of the acknowledged rate.
    restart: bool = true;
    /// Time over which the average rate is taken, T.
    averaging_time: Duration = 2 s;
    /// True if a head sends a repair on as soon as it has the packet itself.
    pass_on: bool = true;
    advertise_interval: Duration = 500 ms;
    hellos_missed_max: u32 = 3;
    /// Least time from one acknowledgement to the next of a receiver that lacks something.
    ack_interval: Duration = 500 ms;
    /// Longest such time, which otherwise is that of two acknowledgement windows.
    ack_interval_max: Duration = 1 s;
}

/// Settings that each end chooses for itself. All others hold at all ends of a session.
pub(super) const OWN: &[&str] = &[
    "clock",
    "delivery",
    "gather",
    "give_up",
    "head",
    "linger",
    "rate_max",
    "rate_min",
    "rate_rule",
    "wait_for",
];

/// Settings that give packet numbers their meaning. The source's values hold at all ends.
pub(super) const COMMON: &[&str] = &["ack_window", "obsolete_after"];

/// Table of all settings.
pub const OPTIONS: &[OptionSpec] = TramSettings::OPTIONS;

/// Settings of TRAM's own control, without effect if a scheme controls the rate.
const CONTROL: &[&str] = &[
    "window_multiple",
    "window_growth",
    "loss_threshold",
    "congestion_rule",
    "right_edge",
    "rate_min",
    "rate_max",
    "rate_rule",
    "clock",
    "pruning",
];

const TREE_OPTIONS: &[OptionSpec] =
    &selected::<{ OPTIONS.len() - CONTROL.len() }>(OPTIONS, CONTROL, false);

/// Settings of a tree with a scheme, without the scheme's own settings.
pub const STEERED_OPTIONS: &[OptionSpec] =
    &joined::<{ TREE_OPTIONS.len() + BOUNDS.len() }>(BOUNDS, TREE_OPTIONS);

impl TramSettings {
    pub(super) fn of(options: &Options, steered: bool) -> Self {
        let settings = Self::from_options(options);
        if steered { settings.steered() } else { settings }
    }

    /// Adapts the settings to a scheme that controls the rate. Windows become flow control of half
    /// of a head's cache; the other half is for late requests. No member is pruned for a low rate.
    fn steered(self) -> Self {
        let windows = self.cache_packets / 2 / self.ack_window;
        Self {
            // The rest of that half is for late requests: see `cache_floor`.
            window_multiple: windows.saturating_sub(2).max(2),
            lossless_multiple: 0,
            window_growth: f64::INFINITY,
            loss_threshold: f64::INFINITY,
            right_edge: RightEdge::Plain,
            congestion_rule: CongestionRule::Window,
            pruning: Pruning::Off,
            ..self
        }
    }

    fn profile(defaults: Defaults) -> Self {
        let paper = || Self {
            ack_window: 64,
            window_multiple: 5,
            lossless_multiple: 0,
            right_edge: RightEdge::Plain,
            rate_max: Bitrate::from_bits_per_s(12_000_000),
            pass_on: false,
            reorder_learn: false,
            ask_interval: Duration::ZERO,
            rate_initial: Bitrate::from_bits_per_s(0),
            slow_start_acknowledged: false,
            restart: false,
            averaging_time: Duration::from_secs(5),
            members_max: 5,
            source_members_max: 4096,
            formation: Formation::Both,
            advertise_interval: Duration::from_secs(2),
            hello_interval: Duration::from_secs(3),
            hellos_missed_max: 5,
            ack_interval: Duration::from_secs(3),
            ack_interval_max: Duration::from_secs(60),
            ..Self::default()
        };
        match defaults {
            Defaults::Improved => Self::default(),
            Defaults::Paper => paper(),
            Defaults::Jrms => Self {
                ack_window: 32,
                right_edge: RightEdge::Rounded,
                congestion_rule: CongestionRule::Missing,
                join_grace: Duration::from_secs(10),
                rate_max: Bitrate::from_bits_per_s(512_000),
                rate_initial: Bitrate::from_bits_per_s(40_000),
                members_max: 32,
                late_join: LateJoin::None,
                repair: RepairCast::Scope,
                ttl: 1,
                ..paper()
            },
            // RMTP sends a status each T_ack, at least 50 ms apart. Any node with the data repairs,
            // near ones first; by unicast to few, by multicast to many.
            Defaults::Rmtp => Self {
                ack_window: 4,
                ack_interval: Duration::from_millis(50),
                ack_interval_max: Duration::from_millis(50),
                ask_interval: Duration::ZERO,
                pass_on: false,
                ..Self::default()
            },
        }
    }

    pub(super) fn forget_before(&self, sequence: u64) -> u64 {
        match u64::from(self.obsolete_after) {
            0 => 0,
            packets => (sequence + 1).saturating_sub(packets),
        }
    }

    /// Returns the fewest packets that a head keeps: all that a member can lack within its window.
    pub(super) fn cache_floor(&self) -> usize {
        (self.ack_window * (self.window_multiple + 2)) as usize
    }

    /// Returns the largest congestion window, in packets: M W_a bounds TRAM's share under
    /// congestion, and a path without losses needs more. Half of a cache stays free for repairs.
    pub(super) fn window_max(&self, ack_window: u64) -> u64 {
        let lossless = u64::from(self.lossless_multiple) * ack_window;
        let lossless = lossless.min(u64::from(self.cache_packets / 2));
        lossless.max(u64::from(self.window_multiple) * ack_window)
    }
}
