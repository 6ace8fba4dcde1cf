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
    /// What is lost is sent again
    reliable: bool = true;
    // It costs no memory, since repairs are read from the content again. A window of 1000 packets
    // passes in about a second at 10 Mbit/s: too soon for a packet whose repair is lost as well.
    /// Packets that the source will repair
    transmit_window: u32 [1, 1073741824] = 8192;
    /// Most packets from the first that is missing to the last that a receiver keeps
    receive_window: u32 [1, 1048576] = 8192;
    // src: openpgm, ZeroMQ
    /// Time between ambient SPMs
    spm_interval: Duration [1 ms, 3600 s] = 30 s;
    /// Least time from data to the first heartbeat SPM; it doubles with each
    heartbeat_min: Duration [1 ms, 3600 s] = 100 ms;
    /// Longest time between heartbeat SPMs
    heartbeat_max: Duration [1 ms, 3600 s] = 30 s;
    /// Time from the first NAK for a packet to its repair, to collect more
    repair_delay: Duration [0 s, 3600 s] = 0 ms;
    /// Least time between two repairs of one packet; with adaptive timers only where no round trip
    /// is known
    repair_interval: Duration [0 s, 3600 s] = 100 ms;
    /// How many earlier packets a receiver that joins late may ask for
    late_join: u32 [0, 1073741824] = 0;
    /// Time without NAKs after the end of data until the source rests
    linger: Duration [0 s, 3600 s] = 5 s;
    // OpenPGM's sources announce packets before they may send them: 4 s is right for those.
    /// After how long what only an SPM or a NAK told of counts as missing
    tail_delay: Duration [0 s, 3600 s] = 20 ms;
    /// Where nothing is repaired: least time between two NAKs of a receiver
    report_interval: Duration [0 s, 3600 s] = 200 ms;
    /// Longest back-off before a NAK
    nak_backoff: Duration [1 ms, 3600 s] = 50 ms;
    /// Time to wait for a confirmation
    nak_repeat: Duration [1 ms, 3600 s] = 200 ms;
    /// Time to wait for a confirmed repair
    nak_repair: Duration [1 ms, 3600 s] = 200 ms;
    /// Each NAK also goes to the neighbours, to silence theirs
    nak_copies: bool = false;
    // A tenfold of what any network interface can do.
    /// Most payload that the source sends, whatever the scheme permits, and packets without any
    /// among it; the default binds nobody
    rate_max: Bitrate [1 bit, 1000 Gbit] = 1000 Gbit;
    /// Payload that the source sends though the scheme does not permit it: fair to nobody, for
    /// paths where loss means no congestion
    rate_min: Bitrate [0 bit, 1000 Gbit] = 0 bit;
    /// SPMs name the scheme and its settings, so that receivers follow; real sessions always do
    announce_scheme: bool = false;
    /// Data goes as a stream that repairs itself, or as an object from which receivers ask for what
    /// they lack, whenever they came
    delivery: DeliveryMode = Stream;
    /// Of an object: parity where it repairs more than sending again would; none; or this share of
    /// it with every block unasked
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
            max: binds.then_some(rate_max),
            min: (rate_min.bits_per_s() > 0).then_some(rate_min),
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
        let max = Some(Bitrate::from_bits_per_s(5_000_000));
        let set = checked(&[("rate_max", "5 Mbit/s")]);
        assert_eq!(Bounds::from_options(&set), Bounds { max, min: None });
    }
}
