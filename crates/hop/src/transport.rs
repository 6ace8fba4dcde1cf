//! Settings of QUIC connections.

use std::sync::Arc;

use faircast_base::Duration;
use quinn_proto::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{IdleTimeout, TransportConfig, VarInt};

/// Longest silence before a connection is lost. A node may be stopped for 8 s without losing any.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(15);
/// Interval between packets of an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Initial round trip of a connection, and the least that is taken of another connection.
///
/// src: RFC 9002 s6.2.2
const INITIAL_RTT: Duration = Duration::from_millis(333);
const INITIAL_RTT_MIN: Duration = Duration::from_millis(20);
/// Most bytes of a stream, and of a connection, that wait to be read.
const STREAM_BYTES: u32 = 1 << 20;
const LINK_BYTES: u32 = 1 << 22;
/// Streams that a peer may have open: one for each session, and one for control.
const STREAMS_MAX: u32 = 1024;
/// Packets later than a lost one that reveal the loss. RFC 9002 s6.1.1 has 3, which takes late
/// packets for lost: with 25 % of packets 5 ms late, 1.3 of 20 Mbit/s were left. Time alone reveals
/// losses here.
const PACKET_THRESHOLD: u32 = 1000;
/// Round trips after which a packet is lost if a later one was acknowledged.
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

/// Settings of a connection. A round trip that is known takes the place of the usual initial one,
/// between [`INITIAL_RTT_MIN`] and that.
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
