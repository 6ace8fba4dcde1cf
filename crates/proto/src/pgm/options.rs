//! Settings of PGM, for every scheme over it.

use faircast_base::{Bitrate, Duration};

use crate::congestion::Bounds;
use crate::object::Fec;
use crate::options::{OptionSpec, Options, selected};
use crate::settings::{choices, settings};

choices! {
    /// Delivery of a flow's data.
    pub enum DeliveryMode {
        /// Stream in order, with PGM's own repairs.
        Stream = "stream",
        /// Object that receivers complete by requests.
        Object = "object",
    }

    /// Parity of an object.
    pub enum Parity {
        /// See [`Fec::Auto`].
        Auto = "auto",
        /// See [`Fec::Off`].
        Off = "off",
        /// Share of 5 %.
        Percent5 = "5%",
        /// Share of 10 %.
        Percent10 = "10%",
        /// Share of 20 %.
        Percent20 = "20%",
        /// Share of 50 %.
        Percent50 = "50%",
    }
}

settings! {
    /// The settings of PGM.
    pub struct PgmFlowSettings;
    /// Retransmit lost packets
    reliable: bool = true;
    // src: openpgm, ZeroMQ
    /// Interval between ambient SPMs
    spm_interval: Duration [1 ms, 3600 s] = 30 s;
    /// Shortest time from data to the first heartbeat SPM; each further heartbeat doubles it
    heartbeat_min: Duration [1 ms, 3600 s] = 100 ms;
    /// Longest time between heartbeat SPMs
    heartbeat_max: Duration [1 ms, 3600 s] = 30 s;
    /// Delay from the first NAK for a packet to the repair, which collects further NAKs
    repair_delay: Duration [0 s, 3600 s] = 0 ms;
    /// Shortest interval between two repairs of one packet; with adaptive timers only while no
    /// round-trip time is known
    repair_interval: Duration [0 s, 3600 s] = 100 ms;
    /// Time without NAKs after the end of data before the source stops
    linger: Duration [0 s, 3600 s] = 5 s;
    // OpenPGM's sources announce packets before they may send them: 4 s is right for those.
    /// Delay before a packet that only an SPM or a NAK announced counts as missing
    tail_delay: Duration [0 s, 3600 s] = 20 ms;
    /// Without repair: shortest interval between two NAKs of a receiver
    report_interval: Duration [0 s, 3600 s] = 200 ms;
    /// Longest back-off before a NAK
    nak_backoff: Duration [1 ms, 3600 s] = 50 ms;
    /// Longest wait for an NCF before the NAK is repeated
    nak_repeat: Duration [1 ms, 3600 s] = 200 ms;
    /// Longest wait for a confirmed repair before the NAK is repeated
    nak_repair: Duration [1 ms, 3600 s] = 200 ms;
    // A tenfold of what any network interface can do.
    /// Highest rate of the source, above which the scheme has no effect, for payload and for
    /// packets without payload; the default is no limit
    rate_max: Bitrate [1 bit, 1000 Gbit] = 1000 Gbit;
    /// Lowest payload rate of the source, which overrides the scheme: unfair, for paths where loss
    /// is no sign of congestion
    rate_min: Bitrate [0 bit, 1000 Gbit] = 0 bit;
    /// Announce the scheme and its settings in SPMs, so that receivers follow; live sessions always
    /// do
    announce_scheme: bool = false;
    /// Kind of delivery: a stream with repair, or an object of which receivers request missing
    /// parts at any time
    delivery: DeliveryMode = Stream;
    /// Parity of an object: where it repairs more than retransmissions (auto), none (off), or a
    /// share that is sent with every block in advance
    fec: Parity = Auto;
}

/// Table of the settings of PGM.
pub const OPTIONS: &[OptionSpec] = PgmFlowSettings::OPTIONS;

/// Settings that bound the rate of any scheme.
pub(crate) const BOUNDS: &[OptionSpec] = &selected::<2>(OPTIONS, &["rate_max", "rate_min"], true);

impl PgmFlowSettings {
    pub(crate) fn fec(&self) -> Fec {
        match self.fec {
            Parity::Auto => Fec::Auto,
            Parity::Off => Fec::Off,
            Parity::Percent5 => Fec::Ratio(0.05),
            Parity::Percent10 => Fec::Ratio(0.1),
            Parity::Percent20 => Fec::Ratio(0.2),
            Parity::Percent50 => Fec::Ratio(0.5),
        }
    }
}

impl Bounds {
    /// Returns the bounds in `options`, checked against a table that includes [`OPTIONS`].
    pub fn from_options(options: &Options) -> Self {
        let PgmFlowSettings { rate_max, rate_min, .. } = PgmFlowSettings::from_options(options);
        let binds = rate_max < PgmFlowSettings::default().rate_max;
        Self {
            cap: binds.then_some(rate_max),
            floor: (rate_min.bits_per_s() > 0).then_some(rate_min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(raw: &[(&str, &str)]) -> Options {
        crate::world::options(raw, OPTIONS)
    }

    #[test]
    fn a_flow_is_a_stream_unless_it_is_an_object() {
        let settings =
            |fec| PgmFlowSettings::from_options(&checked(&[("delivery", "object"), ("fec", fec)]));
        for (fec, want) in [
            ("auto", Fec::Auto),
            ("off", Fec::Off),
            ("5%", Fec::Ratio(0.05)),
            ("10%", Fec::Ratio(0.1)),
            ("20%", Fec::Ratio(0.2)),
            ("50%", Fec::Ratio(0.5)),
        ] {
            assert_eq!((settings(fec).delivery, settings(fec).fec()), (DeliveryMode::Object, want));
        }
        let stream = PgmFlowSettings::from_options(&checked(&[("fec", "off")]));
        assert_eq!(stream.delivery, DeliveryMode::Stream);
    }

    #[test]
    fn the_defaults_of_rates_bind_nobody() {
        for raw in [&[][..], &[("rate_max", "1000 Gbit/s"), ("rate_min", "0 bit/s")]] {
            assert_eq!(Bounds::from_options(&checked(raw)), Bounds::default());
        }
        let cap = Some(Bitrate::from_bits_per_s(5_000_000));
        let set = checked(&[("rate_max", "5 Mbit/s")]);
        assert_eq!(Bounds::from_options(&set), Bounds { cap, floor: None });
    }
}
