//! Settings of credits: of a session, which its source sends in each capsule, and of a relay.

use faircast_base::{Bitrate, Duration, NodeId};
use faircast_relay_sdk::{
    BestPath, BoundedLag, Deadline, LayeredDrop, Policy, Quantile, View, WeightedUtility, WorstPath,
};

use super::programs::{PROGRAM_BYTES_MAX, ProgramPolicy};
use super::wire::Capsule;
use crate::options::{OptionKind, OptionSpec};
use crate::settings::{choices, settings};

choices! {
    /// Branch of the tree that sets the pace (src: credits s3.2 for the slowest; others are ours).
    pub(crate) enum PolicyName {
        WorstPath = "worst-path",
        BestPath = "best-path",
        Quantile = "quantile",
        /// Slowest branch that is not too far behind.
        BoundedLag = "bounded-lag",
        /// Slowest branch; packets that are too old are not sent.
        Deadline = "deadline",
        /// Slowest branch; upper layers wait only for much room.
        LayeredDrop = "layered-drop",
        /// Branch at which most is delivered in all.
        WeightedUtility = "weighted-utility",
    }
}

settings! {
    pub(crate) struct CreditSettings;
    /// Branch of the tree that sets the pace at a relay
    policy: PolicyName = WorstPath;
    /// Buffer of each branch of a relay, and of a receiver, in packets, B (paper: 5) [unset in a
    /// scenario: packets that the longest hop holds in a round trip]
    credit_buffer: u32 [1, 4096] = 5;
    /// Packets per credit, M; at most B (paper: 2)
    credit_unit: u32 [1, 4096] = 2;
    /// With policy = "quantile": percentage of branches that are no faster than the pace
    quantile: u32 [1, 100] = 50;
    /// With policy = "bounded-lag": largest lag of a branch behind the foremost in packets; at most
    /// B - 1
    lag: u32 [1, 4096] = 4;
    /// With policy = "deadline": longest wait of a packet at a relay
    deadline: Duration [1 ms, 60 s] = 1 s;
    /// Number of layers, to which packets belong in turn, for policy = "layered-drop"; the first is
    /// the base layer
    layers: u32 [1, 8] = 1;
    /// Parameter of the session's program (option program)
    parameter: u32 [0, 4294967295] = 0;
}

settings! {
    pub(crate) struct RelaySettings;
    /// Most concurrent sessions; further ones are forwarded as by any router
    sessions_max: u32 [1, 65536] = 1024;
    /// Highest rate of packets through each port, with 28 bytes of headers each
    rate_max: Bitrate [16 kbit, 1000 Gbit] = 1000 Gbit;
    /// Processing time of each credit packet on a slow host, during which the host cannot send
    capsule_time: Duration [0 s, 1 s] = 0 s;
    /// Most concurrent sessions with programs, of up to 2 MiB each; further ones are forwarded as
    /// by any router
    program_sessions_max: u32 [0, 65536] = 128;
}

const HOPS_MAX: u8 = 64;

pub(crate) const PROGRAM: OptionSpec = OptionSpec {
    name: "program",
    kind: OptionKind::File { max_bytes: PROGRAM_BYTES_MAX },
    default: "none",
    doc: "File with a program in WebAssembly, which relays fetch and run in place of a built-in policy",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicyId(pub(crate) [u8; 16]);

impl PolicyId {
    /// Returns the name of a program, or of a built-in policy, as a hash of its bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let digest = blake3::hash(bytes);
        Self(*digest.as_bytes().first_chunk().expect("a digest has 32 bytes"))
    }
}

impl CreditSettings {
    pub(crate) fn capsule(&self, session: u64, node: NodeId, program: Option<&[u8]>) -> Capsule {
        let parameter = match self.policy {
            _ if program.is_some() => self.parameter,
            PolicyName::Quantile => self.quantile,
            PolicyName::BoundedLag => self.lag.min(self.credit_buffer - 1).max(1),
            PolicyName::Deadline => self.deadline.as_millis() as u32,
            _ => 0,
        };
        let policy = PolicyId::of(program.unwrap_or(self.policy.written().as_bytes()));
        let unit = self.credit_unit.min(self.credit_buffer) as u16;
        let buffer = self.credit_buffer as u16;
        let (probe, hops, layer, count, branch) = (false, HOPS_MAX, 0, 0, 0);
        Capsule {
            probe,
            hops,
            layer,
            session,
            policy,
            parameter,
            buffer,
            unit,
            count,
            node,
            branch,
        }
    }
}

pub(crate) enum AnyPolicy {
    WorstPath(WorstPath),
    BestPath(BestPath),
    Quantile(Quantile),
    BoundedLag(BoundedLag),
    Deadline(Deadline),
    LayeredDrop(LayeredDrop),
    WeightedUtility(WeightedUtility),
    Program(ProgramPolicy),
}

macro_rules! any {
    ($self:ident, $policy:ident => $does:expr) => {
        match $self {
            Self::WorstPath($policy) => $does,
            Self::BestPath($policy) => $does,
            Self::Quantile($policy) => $does,
            Self::BoundedLag($policy) => $does,
            Self::Deadline($policy) => $does,
            Self::LayeredDrop($policy) => $does,
            Self::WeightedUtility($policy) => $does,
            Self::Program($policy) => $does,
        }
    };
}

impl AnyPolicy {
    pub(crate) const fn drops(&self) -> bool {
        const fn of<P: Policy>(_policy: &P) -> bool {
            P::DROPS
        }
        match self {
            Self::Program(program) => program.drops,
            _ => any!(self, policy => of(policy)),
        }
    }

    pub(crate) fn of(capsule: &Capsule) -> Option<Self> {
        let parameter = capsule.parameter;
        let is_it = |name: &&PolicyName| PolicyId::of(name.written().as_bytes()) == capsule.policy;
        let name = PolicyName::ALL.iter().find(is_it)?;
        Some(match name {
            PolicyName::WorstPath => Self::WorstPath(WorstPath),
            PolicyName::BestPath => Self::BestPath(BestPath),
            PolicyName::Quantile => Self::Quantile(Quantile { percent: parameter.clamp(1, 100) }),
            PolicyName::BoundedLag => Self::BoundedLag(BoundedLag { packets: parameter }),
            PolicyName::Deadline => Self::Deadline(Deadline { ms: parameter.max(1) }),
            PolicyName::LayeredDrop => Self::LayeredDrop(LayeredDrop),
            PolicyName::WeightedUtility => Self::WeightedUtility(WeightedUtility),
        })
    }
}

impl Policy for AnyPolicy {
    fn credit(&mut self, view: &impl View) -> Option<u32> {
        any!(self, policy => policy.credit(view))
    }

    fn accepts(&mut self, view: &impl View, branch: u32, layer: u8) -> bool {
        any!(self, policy => policy.accepts(view, branch, layer))
    }

    fn discards(&mut self, view: &impl View, branch: u32) -> u32 {
        any!(self, policy => policy.discards(view, branch))
    }

    fn interval_ms(&self) -> Option<u32> {
        any!(self, policy => policy.interval_ms())
    }
}
