//! Black holes of path MTU: long packets vanish, short ones arrive, and no router reports that (src: RFC 8899 s4.3).

use core::fmt;

use faircast_base::{Duration, Seq, Time};

/// A black hole between the ends of a stream, as its receiver sees it. Lengths count what drivers add to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// Bytes of the longest packet that has arrived, which carried no data.
    pub arrives: u32,
    /// Bytes of the longest data packets, of which none arrives; `None` if the sender does not announce that.
    pub sent: Option<u32>,
}

impl BlackHole {
    /// Black hole that counts `headers` more bytes in each packet.
    #[must_use]
    pub fn with(self, headers: u32) -> Self {
        Self { arrives: self.arrives + headers, sent: self.sent.map(|sent| sent + headers) }
    }
}

impl fmt::Display for BlackHole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arrives, sent } = self;
        f.write_str("data packets")?;
        if let Some(sent) = sent {
            write!(f, " of up to {sent} bytes")?;
        }
        write!(
            f,
            " do not arrive, and control packets of {arrives} bytes do: set a lower `mtu` at the sender"
        )?;
        match sent {
            Some(sent) if *sent <= MTU_LEAST => {}
            _ => write!(f, ", such as {MTU_LEAST}")?,
        }
        f.write_str(", or raise the MTU on the way")
    }
}

/// Bytes of a packet that every IPv6 link carries (src: RFC 8200 s5).
const MTU_LEAST: u32 = 1280;

/// Suspicion of a black hole: reports of sent packets, and no long packet since the first report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion(Option<(Time, u32)>);

impl Suspicion {
    /// The source reports sent packets that are not here. Returns the time of the first such report.
    pub(crate) fn report(&mut self, now: Time) -> Time {
        let (since, count) = self.0.get_or_insert((now, 0));
        *count += 1;
        *since
    }

    /// True if there was a report since the last long packet.
    pub(crate) const fn is_raised(&self) -> bool {
        self.0.is_some()
    }

    /// True if `reports` have come, the first of them `time` ago.
    pub(crate) fn is_grounded(&self, now: Time, reports: u32, time: Duration) -> bool {
        self.0.is_some_and(|(since, count)| count >= reports && now.since(since) >= time)
    }
}

/// Watch of a stream's receiver for a black hole: SPMs arrive, and all data is lost. A stream has no probes, so the watch
/// compares both losses.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// SPMs that have come.
    suspicion: Suspicion,
    /// Number of the latest SPM, and SPMs that were lost since the first.
    spm: Option<Seq>,
    spms_lost: u32,
    /// A number far from that one. The source has gone on there if the next SPM follows it; else somebody has forged it.
    far: Option<Seq>,
    /// Packets after the latest that came, as the first SPM says. They may have been lost in an outage, with SPMs.
    ahead: u64,
    /// Repairs that were confirmed and did not come, and the time of the latest confirmation.
    repairs: u32,
    confirmed: Option<Time>,
    /// Bytes of the longest packet without data that has come.
    pub(crate) arrives: u32,
    is_told: bool,
}

impl Watch {
    /// A packet of `bytes` without data has come.
    pub(crate) fn note(&mut self, bytes: u32) {
        self.arrives = self.arrives.max(bytes);
    }

    /// The source has confirmed that it repairs a packet. Confirmations for several receivers announce one repair.
    pub(crate) fn on_confirmation(&mut self, now: Time) {
        if self.confirmed.is_none_or(|at| now.since(at) >= REPAIR_INTERVAL) {
            (self.confirmed, self.repairs) = (Some(now), self.repairs.saturating_add(1));
        }
    }

    /// SPM `number` has come, and `ahead` packets after the latest that came were sent. Returns true once, if there is a
    /// black hole.
    pub(crate) fn on_spm(&mut self, now: Time, number: Seq, ahead: u64) -> bool {
        let mut step = self.spm.map_or(1, |latest| number.distance(latest));
        if step.unsigned_abs() > SPM_LOSS_MAX {
            let follows = |far| (1..=SPM_LOSS_MAX as i32).contains(&number.distance(far));
            if !self.far.replace(number).is_some_and(follows) {
                return false;
            }
            step = 1;
        }
        if step <= 0 {
            return false;
        }
        (self.spm, self.far) = (Some(number), None);
        if !self.suspicion.is_raised() {
            self.ahead = ahead;
        }
        self.spms_lost = self.spms_lost.saturating_add(step as u32 - 1);
        self.suspicion.report(now);
        let spms = self.spms_lost.saturating_mul(SPMS_PER_LOST).saturating_add(SPMS);
        let originals = ahead.saturating_sub(self.ahead) >= ORIGINALS
            && self.suspicion.is_grounded(now, spms, ORIGINALS_TIME);
        let repairs =
            self.repairs >= REPAIRS && self.suspicion.is_grounded(now, spms, REPAIRS_TIME);
        (originals || repairs) && !core::mem::replace(&mut self.is_told, true)
    }
}

/// Evidence of a black hole: 5 SPMs and 2 more for each lost one, and lost data without an interruption. Either 5 originals
/// in 5 s, or 5 confirmed repairs in 8 s, since a source with a low rate sends a repair seconds after its confirmation.
///
/// Chosen: a path that loses half of all packets, whatever their lengths, shows that in three of a thousand tries, and both
/// ends must know of a black hole within 10 s.
const SPMS: u32 = 5;
const SPMS_PER_LOST: u32 = 2;
const ORIGINALS: u64 = 5;
const ORIGINALS_TIME: Duration = Duration::from_secs(5);
const REPAIRS: u32 = 5;
const REPAIRS_TIME: Duration = Duration::from_secs(8);

/// Shortest time between two repairs of one packet.
const REPAIR_INTERVAL: Duration = Duration::from_millis(500);

/// Longest gap between two SPMs that counts as lost SPMs; chosen. A longer outage counts for none.
const SPM_LOSS_MAX: u32 = 100;
