//! Neighbours: greetings, round-trip time, failure detection, and hold-down of links that flap.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time, fresh};

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
/// Maximum control queue of a link in bytes, above a whole overlay's database; then it closes.
const CONTROL_BYTES_MAX: usize = 16 << 20;
/// Maximum number of daemons with a history. The oldest one without a link is dropped first.
const HISTORIES_MAX: usize = 4 * DAEMONS_MAX;

#[derive(Clone, Debug)]
pub(crate) struct Link {
    is_initiator: bool,
    opened_at: Time,
    received_at: Time,
    peer: Option<DaemonRun>,
    /// Number and arrival time of the newest greeting from the peer.
    peer_hello: (u64, Time),
    /// Number of the newest own greeting, and send times of the last 32 by number.
    hello_number: u64,
    hello_sent_at: [Time; SENT_KEPT],
    /// Newest own greeting that the peer has echoed; above 0 the link works in both directions.
    echoed_hello: u64,
    rtt: Option<Duration>,
    pub(crate) is_up: bool,
    /// Frames that wait in the control lane, and the sum of their lengths.
    control: VecDeque<Bytes>,
    control_bytes: usize,
}

impl Link {
    fn is_to(&self, id: DaemonId) -> bool {
        self.peer.is_some_and(|it| it.id == id)
    }
}

/// History of the links to a daemon, kept while none is up.
#[derive(Clone, Debug, Default)]
struct History {
    /// Serial number of the last link that came up, and the time.
    serial: u32,
    up_since: Time,
    /// Last hold-down after a link that flapped, and its end.
    hold_down: Duration,
    hold_down_until: Time,
    /// One-way cost in microseconds, measured when the link came up.
    cost_us: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours {
    pub(crate) links: BTreeMap<LinkId, Link>,
    histories: BTreeMap<DaemonId, History>,
    serial: u32,
    hello_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkChange {
    Up(LinkId),
    /// Link that the driver must close: replaced by another one, silent or refused.
    Close(LinkId),
}

impl Neighbours {
    pub(crate) fn open(&mut self, now: Time, id: LinkId, is_initiator: bool) {
        let (peer_hello, hello_sent_at) = ((0, now), [now; SENT_KEPT]);
        let link = fresh! {
            Link { is_initiator, opened_at: now, received_at: now, peer_hello, hello_sent_at, }
            peer, hello_number, echoed_hello, rtt, is_up, control, control_bytes
        };
        self.links.insert(id, link);
        self.hello_at = now;
    }

    /// Removes a link. True if the link was up.
    pub(crate) fn close(&mut self, now: Time, id: LinkId) -> bool {
        let Some(Link { is_up: true, peer: Some(peer), .. }) = self.links.remove(&id) else {
            return false;
        };
        let history = self.histories.entry(peer.id).or_default();
        let flaps = now.since(history.up_since) < FLAP;
        let doubled = (history.hold_down * 2).clamp(HOLD_DOWN, HOLD_DOWN_MAX);
        history.hold_down = if flaps { doubled } else { Duration::ZERO };
        // The first interruption does not count as flapping.
        let pause = if history.hold_down > HOLD_DOWN { history.hold_down } else { Duration::ZERO };
        history.hold_down_until = now + pause;
        true
    }

    /// Queues a frame of the control lane. False if the peer reads too slowly.
    pub(crate) fn push(&mut self, id: LinkId, frame: Bytes) -> bool {
        let Some(link) = self.links.get_mut(&id) else { return true };
        let has_room = link.control_bytes <= CONTROL_BYTES_MAX;
        if has_room {
            link.control_bytes += frame.len();
            link.control.push_back(frame);
        }
        has_room
    }

    pub(crate) fn poll(&mut self, id: LinkId) -> Option<Bytes> {
        let link = self.links.get_mut(&id)?;
        let frame = link.control.pop_front()?;
        link.control_bytes -= frame.len();
        Some(frame)
    }

    pub(crate) fn peer(&self, id: LinkId) -> Option<DaemonRun> {
        self.links.get(&id)?.peer
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

    pub(crate) fn note_received(&mut self, now: Time, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.received_at = now;
        }
    }

    pub(crate) fn take_hello(
        &mut self,
        now: Time,
        me: DaemonRun,
        id: LinkId,
        hello: &Hello,
    ) -> Vec<LinkChange> {
        let mut changes = Vec::new();
        let rivals =
            self.links.iter().filter(|(it, link)| **it != id && link.is_to(hello.member.id));
        let rivals: Vec<LinkId> = rivals.map(|(rival, _)| *rival).collect();
        let Some(link) = self.links.get_mut(&id) else { return changes };
        if link.peer.is_some_and(|peer| peer != hello.member) || hello.member.id == me.id {
            return [LinkChange::Close(id)].into();
        }
        let is_first = link.peer.is_none();
        link.peer = Some(hello.member);
        link.peer_hello = (hello.number, now);
        let is_known =
            hello.echo <= link.hello_number && link.hello_number - hello.echo < SENT_KEPT as u64;
        if hello.echo > link.echoed_hello && is_known {
            link.echoed_hello = hello.echo;
            let sent = link.hello_sent_at[hello.echo as usize % SENT_KEPT];
            let age = Duration::from_micros(hello.echo_age_us.into());
            let sample = now.since(sent).saturating_sub(age);
            link.rtt = Some(link.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
        }
        let (is_initiator, opened_at) = (link.is_initiator, link.opened_at);
        for rival in rivals.into_iter().filter(|_| is_first) {
            let Some(other) = self.links.get(&rival) else { continue };
            let older_run = other.peer.is_some_and(|it| it != hello.member);
            // Of two connections opened at once, the one of the lower identifier survives.
            let together =
                opened_at.since(other.opened_at) < TOGETHER && other.is_initiator != is_initiator;
            let keeps_other =
                together && !older_run && (other.is_initiator == (me.id < hello.member.id));
            changes.push(LinkChange::Close(if keeps_other { id } else { rival }));
        }
        changes
    }

    pub(crate) fn greet(&mut self, now: Time, me: DaemonRun, name: &str) -> Vec<(LinkId, Hello)> {
        if now < self.hello_at {
            return Vec::new();
        }
        self.hello_at = now + HELLO_INTERVAL;
        let greet = |(id, link): (&LinkId, &mut Link)| {
            link.hello_number += 1;
            link.hello_sent_at[link.hello_number as usize % SENT_KEPT] = now;
            let hello = Hello {
                member: me,
                number: link.hello_number,
                echo: link.peer_hello.0,
                echo_age_us: (now.since(link.peer_hello.1).as_nanos() / 1000)
                    .min(u64::from(u32::MAX)) as u32,
                opened: link.is_initiator,
                name: String::from(name),
            };
            (*id, hello)
        };
        self.links.iter_mut().map(greet).collect()
    }

    /// Returns the links that come up or go down. After a `late` call silences start anew.
    pub(crate) fn check(&mut self, now: Time, late: Duration) -> Vec<LinkChange> {
        let mut changes = Vec::new();
        let mut up = self.links.values().filter(|it| it.is_up).count();
        for (id, link) in &mut self.links {
            if late > HELLO_INTERVAL {
                link.received_at = now;
            }
            let is_silent = now.since(link.received_at) > SILENCE_MAX;
            let Some(peer) = link.peer else {
                if is_silent {
                    changes.push(LinkChange::Close(*id));
                }
                continue;
            };
            let is_held_down =
                self.histories.get(&peer.id).is_some_and(|it| now < it.hold_down_until);
            let comes_up = !link.is_up && link.echoed_hello > 0 && !is_held_down;
            if is_silent || comes_up && up >= UP_MAX {
                changes.push(LinkChange::Close(*id));
            } else if comes_up {
                link.is_up = true;
                up += 1;
                self.serial = self.serial.wrapping_add(1);
                let history = self.histories.entry(peer.id).or_default();
                (history.serial, history.up_since) = (self.serial, now);
                let rtt_us = link.rtt.unwrap_or_default().as_nanos() / 1000;
                history.cost_us = (rtt_us / 2).clamp(1, 60_000_000) as u32;
                changes.push(LinkChange::Up(*id));
            }
        }
        while self.histories.len() > HISTORIES_MAX {
            let is_linked = |id| self.links.values().any(|it| it.is_up && it.is_to(id));
            let unlinked = self.histories.iter().filter(|(id, _)| !is_linked(**id));
            let Some((&oldest, _)) = unlinked.min_by_key(|(_, it)| it.up_since) else { break };
            self.histories.remove(&oldest);
        }
        changes
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        (!self.links.is_empty()).then_some(self.hello_at)
    }
}
