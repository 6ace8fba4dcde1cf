//! Congestion-control scheme: name, settings, guarantees, and constructors of both halves.

use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Duration, NodeId};

use super::{
    Bounds, BoxControl, BoxFeedback, ReceiverFeedback, SenderControl, Wire, bounded_control,
    boxed_feedback,
};
use crate::options::{OptionSpec, Options};

/// Congestion-control scheme, from which all ends of all flows are made.
pub trait Scheme: 'static {
    /// Name in scenario files.
    const NAME: &'static str;
    /// Description in one line.
    const ABOUT: &'static str;
    /// Settings of the scheme, without the transport's.
    const OPTIONS: &'static [OptionSpec];
    /// Guarantees to the network.
    const GUARANTEES: Guarantees;
    /// Unit of the timestamps that data carries and reports echo, if any.
    const TICK: Duration = Duration::from_millis(1);
    /// Sender half.
    type Control: SenderControl<Report: Send> + Send + 'static;
    /// Receiver half, with the same messages.
    type Feedback: ReceiverFeedback<
            Announce = <Self::Control as SenderControl>::Announce,
            Report = <Self::Control as SenderControl>::Report,
        > + Send
        + 'static;

    /// Makes the sender half from checked settings.
    fn control(options: &Options) -> Self::Control;

    /// Makes the receiver half at a node from checked settings.
    fn feedback(options: &Options, node: NodeId) -> Self::Feedback;

    /// Returns the timestamp of a data packet. Without it routers cannot compare reports.
    fn stamp(_announce: &AnnounceOf<Self>) -> Option<u32> {
        None
    }

    /// Returns the echoed timestamp of a report, plus the report's holding time.
    fn echo(_report: &mut ReportOf<Self>) -> Option<&mut u32> {
        None
    }

    /// Returns the severity of a report from a receiver at this round trip.
    fn reported(_report: &ReportOf<Self>, _round_trip: Duration) -> Option<Reported> {
        None
    }
}

/// Announcement on a scheme's data packets.
pub type AnnounceOf<S> = <<S as Scheme>::Control as SenderControl>::Announce;

/// Report to a scheme's sender.
pub type ReportOf<S> = <<S as Scheme>::Control as SenderControl>::Report;

/// Severity of a report, comparable among the receivers of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reported {
    /// Loss of the receiver.
    pub loss: f64,
    /// Square of the receiver's slowness.
    pub slowness_squared: f64,
}

impl Reported {
    /// Returns the severity for a receiver's known rate. An invalid rate yields zero.
    pub(crate) fn of_rate(bits_per_s: f32) -> Self {
        let slowness = if bits_per_s > 0.0 { 1.0 / f64::from(bits_per_s) } else { 0.0 };
        Self { loss: slowness, slowness_squared: slowness * slowness }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            loss: self.loss.max(other.loss),
            slowness_squared: self.slowness_squared.max(other.slowness_squared),
        }
    }
}

/// Parts of a scheme that routers can read.
#[derive(Clone, Copy, Debug)]
pub struct RouterView {
    /// Option number on data.
    pub announce_option: u8,
    /// Option number on reports.
    pub report_option: u8,
    /// Unit of timestamps.
    pub tick: Duration,
    /// Returns the timestamp of an announcement.
    pub stamp: fn(&[u8]) -> Option<u32>,
    /// Returns the echoed timestamp of a report, plus the report's holding time.
    pub echo: fn(&[u8]) -> Option<u32>,
    /// Returns the severity of a report from a receiver at this round trip.
    pub reported: fn(&[u8], Duration) -> Option<Reported>,
    /// Returns the report with this many ticks of holding time added.
    pub held: fn(&[u8], u32) -> Option<Vec<u8>>,
}

impl RouterView {
    /// Most bytes of a report that a router keeps.
    pub const REPORT_BYTES_MAX: usize = 28;

    /// Returns the view of scheme `S`.
    pub const fn of<S: Scheme>() -> Self {
        const { assert!(ReportOf::<S>::BYTES_MAX <= Self::REPORT_BYTES_MAX, "elements keep no more") };
        Self {
            announce_option: AnnounceOf::<S>::OPTION,
            report_option: ReportOf::<S>::OPTION,
            tick: S::TICK,
            stamp: |announce| S::stamp(&AnnounceOf::<S>::decode(announce)?),
            echo: |report| S::echo(&mut ReportOf::<S>::decode(report)?).copied(),
            reported: |report, rtt| S::reported(&ReportOf::<S>::decode(report)?, rtt),
            held: |report, ticks| {
                let mut report = ReportOf::<S>::decode(report)?;
                let echo = S::echo(&mut report)?;
                *echo = echo.wrapping_add(ticks);
                let mut out = Vec::new();
                report.encode(&mut out);
                Some(out)
            },
        }
    }
}

/// Table row of a scheme.
#[derive(Clone, Copy)]
pub struct SchemeEntry {
    /// Name in scenario files.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Settings of the scheme, without the transport's.
    pub own_options: &'static [OptionSpec],
    /// Guarantees to the network, over PGM.
    pub guarantees: Guarantees,
    /// Most bytes of the announcement option's value.
    pub announce_bytes_max: usize,
    /// Parts of the scheme that routers can read.
    pub view: RouterView,
    /// Constructor of the sender half within the settings' bounds, for data headers of some bytes.
    pub control: &'static (dyn Fn(&Options, u32) -> BoxControl + Sync),
    /// Constructor of the receiver half at a node, for data headers of some bytes.
    pub feedback: &'static (dyn Fn(&Options, NodeId, u32) -> BoxFeedback + Sync),
}

impl fmt::Debug for SchemeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl SchemeEntry {
    /// Returns the row of scheme `S`.
    pub const fn of<S: Scheme>() -> Self {
        Self {
            name: S::NAME,
            about: S::ABOUT,
            own_options: S::OPTIONS,
            guarantees: S::GUARANTEES,
            announce_bytes_max: AnnounceOf::<S>::BYTES_MAX,
            view: RouterView::of::<S>(),
            control: &|options, header_bytes| {
                let mut control = S::control(options);
                control.set_header(header_bytes);
                bounded_control(control, Bounds::from_options(options))
            },
            feedback: &|options, node, header_bytes| {
                let mut feedback = S::feedback(options, node);
                feedback.set_header(header_bytes);
                boxed_feedback(feedback)
            },
        }
    }
}

/// Guarantees of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Guarantees {
    /// Floor of a sender without feedback, by its settings; `None` without any feedback.
    pub floor: fn(&Options) -> Option<Floor>,
    /// Longest time below the old rate on a 2 Mbit/s path after forgery.
    pub recovery: Duration,
    /// Most packets of all receivers together under a load, by the settings, if none is lost.
    pub reports_max: fn(&Options, &Load) -> u64,
}

/// Floor of the rate of a sender without feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Time without any report after which the floor applies.
    pub after: Duration,
    /// Span in which at most `burst` data packets leave, and reports take effect again.
    pub every: Duration,
    /// Most data packets in a span: one, unless a timeout sends more.
    pub burst: usize,
}

/// Events on which receivers had to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of receivers.
    pub receivers: u64,
    /// Data packets sent, new and repeated.
    pub data_packets: u64,
    /// Missing packets, counted once for each receiver that missed them.
    pub losses: u64,
    /// Sum over `losses` of the time from loss to delivery, abandonment or the end of the run.
    pub missing: Duration,
    /// Duration of the session.
    pub lasted: Duration,
}

impl Guarantees {
    /// Guarantees of a protocol without feedback.
    pub const SILENT: Self =
        Self { floor: |_| None, recovery: Self::RECOVERY, reports_max: |_, _| 0 };

    /// Longest recovery time of a session after forged packets: 3 s.
    pub const RECOVERY: Duration = Duration::from_secs(3);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SCHEMES;
    use crate::congestion::common::bench::encoded;
    use crate::congestion::ormcc::{Ormcc, OrmccReport};
    use crate::congestion::pgmcc::{Pgmcc, PgmccReport};
    use crate::congestion::tfmcc::{Tfmcc, TfmccReport};

    fn reports(echo: u32, worse: u16) -> [Vec<u8>; 3] {
        let (rate, receiver) = (1e6 / f32::from(worse), Some(NodeId(9)));
        let report = TfmccReport {
            receiver,
            have_rtt: true,
            have_loss: true,
            leaving: false,
            on_nak: true,
            round: 3,
            sent_us: 5,
            echo_us: echo,
            bits_per_s: rate,
        };
        [
            encoded(&PgmccReport { echo_ms: echo, loss: 1000 * worse, receiver }),
            encoded(&report),
            encoded(&OrmccReport {
                echo_us: echo,
                rate: Some(rate),
                receiver,
                congestion: true,
                withdraws: false,
            }),
        ]
    }

    #[test]
    fn a_report_that_a_router_holds_shifts_its_echo_by_that_and_nothing_else() {
        assert_eq!(SCHEMES.len(), reports(1, 1).len(), "each has one here");
        for echo in [1000, u32::MAX - 2] {
            let shifted = reports(echo.wrapping_add(7), 1);
            for ((SchemeEntry { view, .. }, report), want) in
                SCHEMES.iter().zip(reports(echo, 1)).zip(shifted)
            {
                assert_eq!((view.echo)(&report), Some(echo), "{view:?}");
                assert_eq!((view.held)(&report, 7), Some(want), "{view:?}");
            }
        }
    }

    #[test]
    fn the_slower_receiver_is_reported_as_worse() {
        let round_trip = Duration::from_millis(80);
        for worse in 1..4 {
            let pairs = reports(1, worse).into_iter().zip(reports(1, worse + 1));
            for (SchemeEntry { view, .. }, (less, more)) in SCHEMES.iter().zip(pairs) {
                let reported = |report: &[u8]| (view.reported)(report, round_trip).unwrap();
                let (less, more) = (reported(&less), reported(&more));
                assert!(more.loss > less.loss, "{view:?}");
                assert!(more.slowness_squared > less.slowness_squared, "{view:?}");
            }
        }
    }

    #[test]
    fn a_report_without_a_rate_claims_nothing() {
        for rate in [0.0, -1e6, f32::NAN] {
            let reported = Reported::of_rate(rate);
            assert_eq!((reported.loss, reported.slowness_squared), (0.0, 0.0));
        }
        for SchemeEntry { view, .. } in SCHEMES {
            assert_eq!((view.reported)(&[1; 5], Duration::ZERO), None);
            assert_eq!(((view.echo)(&[]), (view.held)(&[], 1)), (None, None));
        }
    }

    fn survives<W: Wire>(bytes: &[u8]) {
        if let Some(value) = W::decode(bytes) {
            let again = encoded(&value);
            assert_eq!(W::decode(&again).map(|value| encoded(&value)), Some(again));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(0u8.., 0..32)) {
            survives::<AnnounceOf<Pgmcc>>(&bytes);
            survives::<ReportOf<Pgmcc>>(&bytes);
            survives::<AnnounceOf<Tfmcc>>(&bytes);
            survives::<ReportOf<Tfmcc>>(&bytes);
            survives::<AnnounceOf<Ormcc>>(&bytes);
            survives::<ReportOf<Ormcc>>(&bytes);
        }
    }
}
