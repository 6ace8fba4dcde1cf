//! Settings of QUIC connections, and connection identifiers that the issuing node can recognize.

use std::sync::Arc;

use faircast_base::{Duration, NodeId, Purpose, Rng};
use quinn_proto::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{
    ConnectionId, ConnectionIdGenerator, IdleTimeout, InvalidCid, TransportConfig, VarInt,
};

/// Longest silence before a connection is lost: 15 s. A node may be stopped for 8 s without loss.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(15);
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Initial round-trip time, and minimum of one copied from another connection. src: RFC 9002 s6.2.2
const INITIAL_RTT: Duration = Duration::from_millis(333);
const INITIAL_RTT_MIN: Duration = Duration::from_millis(20);
const STREAM_BYTES: u32 = 1 << 20;
const LINK_BYTES: u32 = 1 << 22;
const STREAMS_MAX: u32 = 1024;
/// Packets that reveal a loss. With the 3 of RFC 9002 s6.1.1 and 25 % of packets 5 ms late, 1.3 of
/// 20 Mbit/s remained. Here only time reveals losses.
const PACKET_THRESHOLD: u32 = 1000;
/// Number of round trips after which a packet is lost if a later one was acknowledged.
const TIME_THRESHOLD: f32 = 2.0;

/// Congestion control of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// NewReno (RFC 9002 s7).
    #[default]
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
}

pub(crate) fn transport(
    control: CongestionControl,
    rtt: Option<std::time::Duration>,
) -> TransportConfig {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match control {
        CongestionControl::NewReno => Arc::new(NewRenoConfig::default()),
        CongestionControl::Cubic => Arc::new(CubicConfig::default()),
    };
    let system = |duration: Duration| std::time::Duration::from_nanos(duration.as_nanos());
    let idle = IdleTimeout::try_from(system(IDLE_MAX)).expect("the time fits in 62 bits");
    let mut config = TransportConfig::default();
    if let Some(rtt) = rtt {
        config.initial_rtt(rtt.clamp(system(INITIAL_RTT_MIN), system(INITIAL_RTT)));
    }
    config
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(system(KEEP_ALIVE)))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_BYTES))
        .receive_window(VarInt::from_u32(LINK_BYTES))
        .packet_threshold(PACKET_THRESHOLD)
        .time_threshold(TIME_THRESHOLD)
        .datagram_receive_buffer_size(None)
        .allow_spin(false)
        .congestion_controller_factory(factory);
    config
}

const NONCE_BYTES: usize = 4;
const TAG_BYTES: usize = 4;

/// Generator of connection identifiers: a random number and its tag under a key. A restarted node
/// with the same key recognizes identifiers of its earlier run and answers with stateless resets
/// (RFC 9000 s10.3): its peers reconnect at once.
///
/// Unlike in `quinn-proto`, identifiers come from a seeded stream: simulator runs are repeatable.
#[derive(Clone)]
pub(crate) struct Identifiers {
    key: [u8; 32],
    random: Rng,
}

impl Identifiers {
    pub(crate) fn new(key: [u8; 32], seed: u64) -> Self {
        Self { key, random: Rng::new(seed, NodeId(0), Purpose::Relay) }
    }

    fn tag(&self, nonce: &[u8]) -> [u8; TAG_BYTES] {
        let digest = blake3::keyed_hash(&self.key, nonce);
        *digest.as_bytes().first_chunk().expect("a digest has 32 bytes")
    }
}

impl ConnectionIdGenerator for Identifiers {
    fn generate_cid(&mut self) -> ConnectionId {
        let nonce = (self.random.bits() as u32).to_be_bytes();
        let mut bytes = [0; NONCE_BYTES + TAG_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&nonce);
        bytes[NONCE_BYTES..].copy_from_slice(&self.tag(&nonce));
        ConnectionId::new(&bytes)
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        match cid.split_at_checked(NONCE_BYTES) {
            Some((nonce, tag)) if *tag == self.tag(nonce) => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        NONCE_BYTES + TAG_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}
