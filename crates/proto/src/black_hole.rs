//! Path MTU black holes: long packets vanish without a report by any router (src: RFC 8899 s4.3).

use core::fmt;

use faircast_base::{Duration, Seq, Time};

/// Path MTU black hole that a stream's receiver detected. Lengths include headers of drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlackHole {
    /// Longest packet that arrived, in bytes. The packet carried no data.
    pub arrives: u32,
    /// Longest data packets, in bytes; none arrives. `None` if not announced.
    pub sent: Option<u32>,
}

impl BlackHole {
    /// Returns the black hole with `headers` more bytes in each length.
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

/// Minimum MTU of an IPv6 link, in bytes (src: RFC 8200 s5).
const MTU_LEAST: u32 = 1280;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion(Option<(Time, u32)>);

impl Suspicion {
    pub(crate) fn report(&mut self, now: Time) -> Time {
        let (since, count) = self.0.get_or_insert((now, 0));
        *count += 1;
        *since
    }

    pub(crate) const fn is_raised(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn is_grounded(&self, now: Time, reports: u32, time: Duration) -> bool {
        self.0.is_some_and(|(since, count)| count >= reports && now.since(since) >= time)
    }
}

/// Black hole detector of a stream's receiver: SPMs arrive, and all data is lost. It compares both.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    suspicion: Suspicion,
    /// Number of the latest SPM, and number of SPMs lost since the first.
    spm: Option<Seq>,
    spms_lost: u32,
    /// SPM number far from `spm`: the source continues there if the next SPM follows, else forged.
    far: Option<Seq>,
    /// Packets after the newest received one at the first SPM; an outage may have lost them.
    ahead: u64,
    repairs: u32,
    confirmed: Option<Time>,
    pub(crate) arrives: u32,
    is_told: bool,
}

impl Watch {
    pub(crate) fn note(&mut self, bytes: u32) {
        self.arrives = self.arrives.max(bytes);
    }

    /// Counts a confirmation (NCF). Those within [`REPAIR_INTERVAL`] announce one repair.
    pub(crate) fn on_confirmation(&mut self, now: Time) {
        if self.confirmed.is_none_or(|at| now.since(at) >= REPAIR_INTERVAL) {
            (self.confirmed, self.repairs) = (Some(now), self.repairs.saturating_add(1));
        }
    }

    /// Takes SPM `number`, `ahead` packets after the newest one. True once, when a hole is found.
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

/// Evidence for a black hole: 5 SPMs, 2 more for each lost SPM, and a loss of 5 originals in 5 s or
/// of 5 confirmed repairs in 8 s (slow sources repair late). Chosen: a path that loses half of all
/// packets of any length gives this evidence in 3 of 1000 trials. Both ends must detect a black
/// hole within 10 s.
const SPMS: u32 = 5;
const SPMS_PER_LOST: u32 = 2;
const ORIGINALS: u64 = 5;
const ORIGINALS_TIME: Duration = Duration::from_secs(5);
const REPAIRS: u32 = 5;
const REPAIRS_TIME: Duration = Duration::from_secs(8);

const REPAIR_INTERVAL: Duration = Duration::from_millis(500);

/// Longest gap between SPMs that counts as lost SPMs; chosen. A longer outage counts as no loss.
const SPM_LOSS_MAX: u32 = 100;
