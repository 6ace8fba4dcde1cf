//! Waits of a source that has content to send, by cause and duration.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use crate::congestion::Regime;
use crate::object::{Cause, HostLoad, Limit, MemberLoad, MemberStatus};

/// Most waits with separate times; those for further representatives share an entry.
const WAITS_MAX: usize = 64;

/// Busy share from which on a processor counts as the cause of a wait: some load is normal.
const PROCESSOR_SHARE: f64 = 0.9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    #[default]
    Off,
    Free,
    Content,
    RequestTimes,
    Permit(Regime, Option<NodeId>),
}

#[derive(Debug, Default)]
pub(super) struct Pauses {
    now: Wait,
    since: Time,
    times: BTreeMap<Wait, Duration>,
}

impl Pauses {
    pub(super) fn enter(&mut self, now: Time, wait: Wait) {
        if wait == self.now {
            return;
        }
        let span = now.since(self.since);
        self.since = now;
        let mut ended = core::mem::replace(&mut self.now, wait);
        if let Wait::Permit(regime, _) = ended
            && self.times.len() >= WAITS_MAX
            && !self.times.contains_key(&ended)
        {
            ended = Wait::Permit(regime, None);
        }
        if ended != Wait::Off {
            *self.times.entry(ended).or_default() += span;
        }
    }

    pub(super) fn limits(&self, host: &HostLoad, members: &[MemberStatus]) -> Vec<Limit> {
        let mut times: BTreeMap<(Cause, Option<u64>), Duration> = BTreeMap::new();
        let mut add = |cause, member: Option<u64>, time: Duration| {
            if time > Duration::ZERO {
                *times.entry((cause, member)).or_default() += time;
            }
        };
        for (&wait, &time) in &self.times {
            let Wait::Permit(regime, reporter) = wait else {
                let slow_disk = members.iter().filter(|member| member.load.waits_for_disk());
                let slow_disk = slow_disk.max_by(|a, b| a.load.disk.cmp(&b.load.disk));
                match (wait, slow_disk) {
                    (Wait::Free, _) => add(host_cause(host), None, time),
                    (Wait::Content, _) => add(Cause::SenderDisk, None, time),
                    (_, Some(member)) => add(Cause::ReceiverDisk, Some(member.id), time),
                    (_, None) => add(Cause::Receivers, None, time),
                }
                continue;
            };
            let member = members.iter().find(|member| Some(member.reporter) == reporter);
            let id = member.map(|member| member.id);
            match regime {
                Regime::Cap if reporter.is_some() => add(Cause::ReceiverLimit, id, time),
                Regime::Cap => add(Cause::RateMax, None, time),
                Regime::Start => add(Cause::Start, None, time),
                Regime::Path | Regime::Floor => {
                    let load = member.map(|member| member.load).unwrap_or_default();
                    match receiver_cause(&load, host, regime) {
                        Cause::SenderProcessor => add(Cause::SenderProcessor, None, time),
                        cause => add(cause, id, time),
                    }
                }
            }
        }
        let mut limits: Vec<Limit> = times
            .into_iter()
            .map(|((cause, member), time)| Limit { cause, member, time })
            .collect();
        limits.sort_by_key(|limit| core::cmp::Reverse(limit.time));
        limits
    }
}

fn host_cause(host: &HostLoad) -> Cause {
    let others = host.busy.saturating_sub(host.disk);
    match (host.disk, host.link) {
        (disk, link) if disk >= link && disk >= others && disk > Duration::ZERO => {
            Cause::SenderDisk
        }
        (_, link) if link >= others && link > Duration::ZERO => Cause::SenderLink,
        _ => Cause::SenderProcessor,
    }
}

/// Returns the receiver's limit: disk first, buffer last, since a slow disk also fills the buffer.
fn receiver_cause(load: &MemberLoad, host: &HostLoad, regime: Regime) -> Cause {
    let (there, here) = (load.processor_share(), host.processor_share());
    if load.waits_for_disk() {
        Cause::ReceiverDisk
    } else if there >= PROCESSOR_SHARE && there >= here {
        Cause::ReceiverProcessor
    } else if here >= PROCESSOR_SHARE {
        Cause::SenderProcessor
    } else if load.overflowed > 0 && load.overflowed >= load.lost / 2 {
        Cause::ReceiverBuffer
    } else if regime == Regime::Floor {
        Cause::Floor
    } else {
        Cause::Path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};
    use alloc::vec;

    const R: NodeId = NodeId(7);

    fn member(load: MemberLoad) -> MemberStatus {
        MemberStatus { load, ..MemberStatus::joined(1, R, R, Time::ZERO) }
    }

    fn load(disk: u64, busy: u64, overflowed: u32, lost: u32) -> MemberLoad {
        MemberLoad { span: ms(1000), disk: ms(disk), busy: ms(busy), overflowed, lost }
    }

    #[test]
    fn the_time_that_was_waited_is_counted_by_what_was_waited_for() {
        let mut pauses = Pauses::default();
        let path = Wait::Permit(Regime::Path, Some(R));
        for (at_ms, wait) in [
            (0, Wait::Off),
            (100, Wait::Free),
            (110, path),
            (150, path),
            (210, Wait::Free),
            (230, Wait::Permit(Regime::Cap, None)),
            (380, Wait::Permit(Regime::Cap, Some(R))),
            (430, Wait::Permit(Regime::Start, None)),
            (433, Wait::RequestTimes),
            (440, Wait::Content),
            (453, Wait::Off),
            (900, Wait::Off),
        ] {
            pauses.enter(at(at_ms), wait);
        }
        let limits = pauses.limits(&HostLoad::default(), &[member(MemberLoad::default())]);
        let got: Vec<_> = limits.iter().map(|it| (it.cause, it.member, it.time)).collect();
        let want = vec![
            (Cause::RateMax, None, ms(150)),
            (Cause::Path, Some(1), ms(100)),
            (Cause::ReceiverLimit, Some(1), ms(50)),
            (Cause::SenderProcessor, None, ms(30)),
            (Cause::SenderDisk, None, ms(13)),
            (Cause::Receivers, None, ms(7)),
            (Cause::Start, None, ms(3)),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn what_the_receiver_tells_of_itself_says_why_it_is_slow() {
        let idle = HostLoad { span: ms(1000), busy: ms(300), ..HostLoad::default() };
        let busy = HostLoad { busy: ms(970), ..idle };
        for (case, load, host, regime, want) in [
            ("nothing is told", MemberLoad::default(), &idle, Regime::Path, Cause::Path),
            ("its disk", load(600, 800, 9, 9), &idle, Regime::Path, Cause::ReceiverDisk),
            ("its processor", load(50, 990, 9, 9), &busy, Regime::Path, Cause::ReceiverProcessor),
            ("ours", load(50, 400, 0, 0), &busy, Regime::Path, Cause::SenderProcessor),
            ("its buffer", load(50, 400, 6, 10), &idle, Regime::Path, Cause::ReceiverBuffer),
            ("other losses", load(50, 400, 1, 10), &idle, Regime::Path, Cause::Path),
            ("no feedback", load(0, 0, 0, 0), &idle, Regime::Floor, Cause::Floor),
        ] {
            assert_eq!(receiver_cause(&load, host, regime), want, "{case}");
        }
        for (case, host, want) in [
            ("nothing is known", HostLoad::default(), Cause::SenderProcessor),
            ("disk", HostLoad { busy: ms(900), disk: ms(600), ..idle }, Cause::SenderDisk),
            ("link", HostLoad { busy: ms(200), link: ms(700), ..idle }, Cause::SenderLink),
            (
                "processor",
                HostLoad { busy: ms(900), disk: ms(100), ..idle },
                Cause::SenderProcessor,
            ),
        ] {
            assert_eq!(host_cause(&host), want, "{case}");
        }
    }

    #[test]
    fn no_number_of_representatives_takes_more_memory() {
        let mut pauses = Pauses::default();
        for i in 0..10_000 {
            pauses.enter(at(u64::from(i)), Wait::Permit(Regime::Path, Some(NodeId(i))));
        }
        assert!(pauses.times.len() <= WAITS_MAX + 1);
        let all: u64 = pauses.times.values().map(|time| time.as_millis()).sum();
        assert_eq!(all, 9999);
    }
}
