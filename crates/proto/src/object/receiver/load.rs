//! Load of a receiver's host during content: disk, processor, and socket buffer.

use faircast_base::{Duration, Time};

use crate::object::{HostLoad, MemberLoad};

/// Meter that starts at the beginning of content. Without reports of a driver the load is unknown.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    now: Option<HostLoad>,
    first: Option<HostLoad>,
    /// Time that verification has taken so far, and start of the present one.
    compared: Duration,
    comparing: Option<Time>,
}

impl LoadMeter {
    pub(crate) fn note(&mut self, load: HostLoad) {
        self.now = Some(load);
    }

    pub(crate) fn begin(&mut self) {
        self.first = self.first.or(self.now);
    }

    pub(crate) fn compare(&mut self, now: Time, comparing: bool) {
        match (self.comparing, comparing) {
            (None, true) => self.comparing = Some(now),
            (Some(since), false) => {
                self.compared += now.since(since);
                self.comparing = None;
            }
            _ => {}
        }
    }

    pub(crate) fn load(&self, now: Time, lost: u64) -> Option<MemberLoad> {
        let (last, first) = (self.now?, self.first?);
        let compared = self.compared + self.comparing.map_or(Duration::ZERO, |at| now.since(at));
        let written = last.disk.saturating_sub(first.disk);
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Some(MemberLoad {
            span: last.span.saturating_sub(first.span),
            disk: written + compared,
            busy: last.busy.saturating_sub(first.busy).saturating_sub(written),
            overflowed: short(last.overflowed.saturating_sub(first.overflowed)),
            lost: short(lost),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_since_content_began_is_told() {
        let ms = Duration::from_millis;
        let host = |span: u64, busy: u64, disk: u64, overflowed| HostLoad {
            span: ms(span),
            busy: ms(busy),
            disk: ms(disk),
            link: Duration::ZERO,
            overflowed,
        };
        let mut meter = LoadMeter::default();
        meter.begin();
        assert_eq!(meter.load(Time::ZERO, 0), None, "no driver has told anything");
        meter.note(host(5000, 100, 50, 3));
        assert_eq!(meter.load(Time::ZERO, 0), None, "no content has come");
        meter.begin();
        meter.note(host(7000, 1100, 850, 10));
        meter.begin();
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let want =
            MemberLoad { span: ms(2000), disk: ms(800), busy: ms(200), overflowed: 7, lost: 9 };
        assert_eq!(meter.load(at(7), 9), Some(want));
        meter.compare(at(7), true);
        meter.compare(at(8), true);
        assert_eq!(meter.load(at(9), 9).unwrap().disk, ms(2800));
        meter.compare(at(10), false);
        assert_eq!(meter.load(at(20), 9).unwrap().disk, ms(3800));
    }
}
