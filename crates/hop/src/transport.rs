//! Settings of QUIC connections.

use std::sync::Arc;

use faircast_base::Duration;
use quinn_proto::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{IdleTimeout, TransportConfig, VarInt};

/// Longest silence before a connection is lost: 15 s. A node may be stopped for 8 s without loss.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(15);
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Initial round-trip time, and minimum of one copied from another connection. src: RFC 9002 s6.2.2
const INITIAL_RTT: Duration = Duration::from_millis(333);
const INITIAL_RTT_MIN: Duration = Duration::from_millis(20);
/// Maximum number of unread bytes of a stream and of a connection.
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
