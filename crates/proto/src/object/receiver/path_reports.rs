//! Reports of a receiver about packet lengths: requests for probes, and the measured limit.

use faircast_base::Time;

use crate::object::PathLimit;
use crate::object::path::PathMeter;
use crate::object::wire::PathMessage;

pub(crate) struct PathReports {
    pub(crate) meter: PathMeter,
    /// Bytes that drivers add to each packet.
    headers: u32,
    /// Range of probe lengths that the next message asks for.
    wanted_probes: Option<(u32, u32)>,
}

/// Result of a timeout of the meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathNews {
    /// True if the source must learn of the measurement.
    pub(super) has_message: bool,
    pub(super) has_new_limit: bool,
}

impl PathReports {
    pub(super) fn new(headers: u32) -> Self {
        Self { meter: PathMeter::default(), headers, wanted_probes: None }
    }

    /// Returns the limit, with the bytes of drivers, if longer packets do not arrive.
    pub(super) fn short_limit(&self) -> Option<PathLimit> {
        self.meter.limit.filter(PathLimit::is_short).map(|limit| limit.with(self.headers))
    }

    pub(super) fn on_timeout(&mut self, now: Time) -> PathNews {
        let before = self.meter.limit;
        self.wanted_probes = self.meter.on_timeout(now);
        let has_new_limit = self.meter.limit != before;
        PathNews { has_message: self.wanted_probes.is_some() || has_new_limit, has_new_limit }
    }

    pub(crate) fn take_messages(&mut self) -> [Option<PathMessage>; 2] {
        let asked = self.wanted_probes.take().map(|(low, high)| PathMessage::Ask { low, high });
        [asked, self.meter.limit.map(PathMessage::Limit)]
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.meter.next_timeout()
    }
}
