//! What a scheme is made of: its name, its settings, and how its two halves are made.

use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Duration, NodeId};

use super::{Guarantees, ReceiverFeedback, SenderControl, Wire};
use crate::options::{OptionSpec, Options};

/// What a scheme says of itself in order to be named: all ends of all flows are made from this.
pub trait Scheme: 'static {
    /// Its name in scenario files.
    const NAME: &'static str;
    /// What it is, in one line.
    const ABOUT: &'static str;
    /// Its settings, without those of the transport below it.
    const OPTIONS: &'static [OptionSpec];
    /// What it promises to the network.
    const GUARANTEES: Guarantees;
    /// The unit of the timestamps that its data carries and its reports echo, where they do.
    const TICK: Duration = Duration::from_millis(1);
    /// Its sender's half.
    type Control: SenderControl<Report: Send> + Send + 'static;
    /// Its receiver's half, which speaks the same.
    type Feedback: ReceiverFeedback<
            Announce = <Self::Control as SenderControl>::Announce,
            Report = <Self::Control as SenderControl>::Report,
        > + Send
        + 'static;

    /// The sender's half, with settings checked against the scheme's table.
    fn control(options: &Options) -> Self::Control;

    /// The receiver's half at a node, with settings checked against the scheme's table.
    fn feedback(options: &Options, node: NodeId) -> Self::Feedback;

    /// The timestamp of a data packet, for routers that look at reports. By default there is none, and
    /// routers tell its reports not apart.
    fn stamp(_announce: &AnnounceOf<Self>) -> Option<u32> {
        None
    }

    /// The timestamp that a report echoes, plus the time for which it was held on its way.
    fn echo(_report: &mut ReportOf<Self>) -> Option<&mut u32> {
        None
    }

    /// How bad a report is, of a receiver that is this round trip away from who asks.
    fn reported(_report: &ReportOf<Self>, _round_trip: Duration) -> Option<Reported> {
        None
    }
}

/// What rides on a scheme's data packets.
pub type AnnounceOf<S> = <<S as Scheme>::Control as SenderControl>::Announce;

/// What comes back to a scheme's sender.
pub type ReportOf<S> = <<S as Scheme>::Control as SenderControl>::Report;

/// How bad a report is. Both numbers are for comparing receivers of one session with each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reported {
    /// How much its receiver loses.
    pub loss: f64,
    /// The square of how slow its receiver is.
    pub slowness_squared: f64,
}

impl Reported {
    /// Of a receiver of which the rate is known that it can take; what is no such rate claims nothing.
    pub(crate) fn of_rate(bits_per_s: f32) -> Self {
        let slowness = if bits_per_s > 0.0 { 1.0 / f64::from(bits_per_s) } else { 0.0 };
        Self { loss: slowness, slowness_squared: slowness * slowness }
    }
}

/// What a router on the way can read of a scheme.
#[derive(Clone, Copy)]
pub struct RouterView {
    /// The option on data.
    pub announce_option: u8,
    /// The option on reports.
    pub report_option: u8,
    /// The unit of timestamps.
    pub tick: Duration,
    /// The timestamp of an announcement.
    pub stamp: fn(&[u8]) -> Option<u32>,
    /// The timestamp that a report echoes, plus the time for which it was held on its way.
    pub echo: fn(&[u8]) -> Option<u32>,
    /// How bad a report is, of a receiver that is this round trip away.
    pub reported: fn(&[u8], Duration) -> Option<Reported>,
    /// A report as it is after so many ticks more.
    pub held: fn(&[u8], u32) -> Option<Vec<u8>>,
}

impl RouterView {
    /// Of scheme `S`.
    pub const fn of<S: Scheme>() -> Self {
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

impl fmt::Debug for RouterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouterView")
            .field("announce_option", &self.announce_option)
            .field("report_option", &self.report_option)
            .finish_non_exhaustive()
    }
}
