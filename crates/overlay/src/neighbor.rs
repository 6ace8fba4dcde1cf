//! Neighbours: greetings, round-trip time, failure detection, and hold-down of links that flap.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use crate::ids::{DAEMONS_MAX, DaemonId, DaemonRun, LinkId};
use crate::wire::Hello;

pub(crate) const HELLO_INTERVAL: Duration = Duration::from_millis(500);
/// Longest silence before a neighbour counts as down: 3 s.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Minimum up time of a stable link. A link that goes down earlier flaps.
const FLAP: Duration = Duration::from_secs(20);
/// First and longest hold-down of a link that flaps. Each hold-down is twice the previous one.
const HOLD_DOWN: Duration = Duration::from_secs(1);
const HOLD_DOWN_MAX: Duration = Duration::from_secs(60);
/// Maximum interval between two links that both ends opened at the same time.
const TOGETHER: Duration = Duration::from_secs(2);
/// Number of greetings with send times: at one per 500 ms, the longest round trip is 16 s.
const SENT_KEPT: usize = 32;
/// Maximum number of links that are up: the capacity of an advertisement.
const UP_MAX: usize = DAEMONS_MAX - 1;
/// Maximum number of daemons with a history. The oldest one without a link is dropped first.
const HISTORIES_MAX: usize = 4 * DAEMONS_MAX;

#[derive(Clone, Debug)]
pub(crate) struct Link {
    opened: bool,
    since: Time,
    heard: Time,
    pub(crate) peer: Option<DaemonRun>,
    /// Number and arrival time of the newest greeting from the peer.
    echo: (u64, Time),
    number: u64,
    sent_at: [Time; SENT_KEPT],
    /// Newest own greeting that the peer has echoed; above 0 the link works in both directions.
    echoed: u64,
    pub(crate) rtt: Option<Duration>,
    pub(crate) is_up: bool,
}

impl Link {
    fn is_to(&self, id: DaemonId) -> bool {
        self.peer.is_some_and(|it| it.id == id)
    }
}

#[derive(Clone, Debug, Default)]
struct History {
    serial: u32,
    up_since: Time,
    hold_down: Duration,
    held_until: Time,
    cost_us: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours {
    links: BTreeMap<LinkId, Link>,
    histories: BTreeMap<DaemonId, History>,
    serial: u32,
    hello_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Up(LinkId),
    /// Link that the driver must close: replaced by another one, silent or refused.
    Replaced(LinkId),
}

impl Neighbours {
    pub(crate) fn open(&mut self, now: Time, id: LinkId, opened: bool) {
        let link = Link {
            opened,
            since: now,
            heard: now,
            peer: None,
            echo: (0, now),
            number: 0,
            sent_at: [now; SENT_KEPT],
            echoed: 0,
            rtt: None,
            is_up: false,
        };
        self.links.insert(id, link);
        self.hello_at = now;
    }

    pub(crate) fn close(&mut self, now: Time, id: LinkId) -> bool {
        let Some(link) = self.links.remove(&id) else { return false };
        link.is_up && self.note_down(now, &link)
    }

    fn note_down(&mut self, now: Time, link: &Link) -> bool {
        let Some(peer) = link.peer else { return false };
        let history = self.histories.entry(peer.id).or_default();
        let flaps = now.since(history.up_since) < FLAP;
        let doubled = (history.hold_down * 2).clamp(HOLD_DOWN, HOLD_DOWN_MAX);
        history.hold_down = if flaps { doubled } else { Duration::ZERO };
        // The first interruption does not count as flapping.
        let held = if history.hold_down > HOLD_DOWN { history.hold_down } else { Duration::ZERO };
        history.held_until = now + held;
        true
    }

    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        self.links.get(&id)
    }

    pub(crate) fn has(&self, id: DaemonId) -> bool {
        self.links.values().any(|it| it.is_to(id))
    }

    pub(crate) fn link_to(&self, peer: DaemonRun) -> Option<LinkId> {
        self.links.iter().find(|(_, it)| it.is_up && it.peer == Some(peer)).map(|(id, _)| *id)
    }

    /// Returns peer, cost in microseconds and serial number of each link that is up.
    pub(crate) fn up(&self) -> Vec<(DaemonRun, u32, u32)> {
        let up = self.links.values().filter(|it| it.is_up).filter_map(|it| {
            let history = self.histories.get(&it.peer?.id)?;
            Some((it.peer?, history.cost_us, history.serial))
        });
        let mut up: Vec<_> = up.collect();
        up.sort_unstable();
        up.dedup_by_key(|it| it.0.id);
        up
    }

    pub(crate) fn note_heard(&mut self, now: Time, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.heard = now;
        }
    }

    pub(crate) fn take(
        &mut self,
        now: Time,
        me: DaemonRun,
        id: LinkId,
        hello: &Hello,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let rivals: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(other, it)| **other != id && it.is_to(hello.member.id))
            .map(|(other, _)| *other)
            .collect();
        let Some(link) = self.links.get_mut(&id) else { return changes };
        if link.peer.is_some_and(|peer| peer != hello.member) || hello.member.id == me.id {
            changes.push(Change::Replaced(id));
            return changes;
        }
        let is_first = link.peer.is_none();
        link.peer = Some(hello.member);
        link.echo = (hello.number, now);
        let is_known = hello.echo <= link.number && link.number - hello.echo < SENT_KEPT as u64;
        if hello.echo > link.echoed && is_known {
            link.echoed = hello.echo;
            let sent = link.sent_at[hello.echo as usize % SENT_KEPT];
            let held = Duration::from_micros(hello.held_us.into());
            let sample = now.since(sent).saturating_sub(held);
            link.rtt = Some(link.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
        }
        let (opened, since) = (link.opened, link.since);
        for rival in rivals.into_iter().filter(|_| is_first) {
            let Some(other) = self.links.get(&rival) else { continue };
            let older_run = other.peer.is_some_and(|it| it != hello.member);
            // Of two connections opened at once, the one of the lower identifier survives.
            let together = since.since(other.since) < TOGETHER && other.opened != opened;
            let keeps_other = together && !older_run && (other.opened == (me.id < hello.member.id));
            changes.push(Change::Replaced(if keeps_other { id } else { rival }));
        }
        changes
    }

    pub(crate) fn greet(&mut self, now: Time, me: DaemonRun, name: &str) -> Vec<(LinkId, Hello)> {
        if now < self.hello_at {
            return Vec::new();
        }
        self.hello_at = now + HELLO_INTERVAL;
        let greet = |(id, link): (&LinkId, &mut Link)| {
            link.number += 1;
            link.sent_at[link.number as usize % SENT_KEPT] = now;
            let hello = Hello {
                member: me,
                number: link.number,
                echo: link.echo.0,
                held_us: (now.since(link.echo.1).as_nanos() / 1000).min(u64::from(u32::MAX)) as u32,
                opened: link.opened,
                name: String::from(name),
            };
            (*id, hello)
        };
        self.links.iter_mut().map(greet).collect()
    }

    /// Returns the links that come up or go down. After a `late` call silences start anew.
    pub(crate) fn judge(&mut self, now: Time, late: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut up = self.links.values().filter(|it| it.is_up).count();
        for (id, link) in &mut self.links {
            if late > HELLO_INTERVAL {
                link.heard = now;
            }
            let is_silent = now.since(link.heard) > SILENCE_MAX;
            let Some(peer) = link.peer else {
                if is_silent {
                    changes.push(Change::Replaced(*id));
                }
                continue;
            };
            let is_held = self.histories.get(&peer.id).is_some_and(|it| now < it.held_until);
            let comes_up = !link.is_up && link.echoed > 0 && !is_held;
            if is_silent || comes_up && up >= UP_MAX {
                changes.push(Change::Replaced(*id));
            } else if comes_up {
                link.is_up = true;
                up += 1;
                self.serial = self.serial.wrapping_add(1);
                let history = self.histories.entry(peer.id).or_default();
                (history.serial, history.up_since) = (self.serial, now);
                let rtt_us = link.rtt.unwrap_or_default().as_nanos() / 1000;
                history.cost_us = (rtt_us / 2).clamp(1, 60_000_000) as u32;
                changes.push(Change::Up(*id));
            }
        }
        while self.histories.len() > HISTORIES_MAX {
            let is_linked = |id| self.links.values().any(|it| it.is_up && it.is_to(id));
            let gone = self.histories.iter().filter(|(id, _)| !is_linked(**id));
            let Some((&oldest, _)) = gone.min_by_key(|(_, it)| it.up_since) else { break };
            self.histories.remove(&oldest);
        }
        changes
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        (!self.links.is_empty()).then_some(self.hello_at)
    }
}
