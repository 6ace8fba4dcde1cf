//! The hold of a host or a relay on a relay above it: it asks again and again, takes the next relay of its list where one is
//! silent, and knows whether there are receivers of its groups elsewhere.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use faircast_base::{Duration, NodeId, Time};

use super::arrivals::Arrivals;
use super::frame::{Accept, AckPace, COOKIE_BYTES, Frame, FrameKind, HopPacket, Join};
use super::guard::Guard;
use super::link::HopLink;
use super::window::Ack;

/// Interval between joins of an attached node.
const REFRESH: Duration = Duration::from_secs(2);
/// Interval between joins without an answer.
const RETRY: Duration = Duration::from_millis(500);
/// After how long a relay that does not answer is left for the next.
const SILENCE: Duration = Duration::from_secs(6);

/// After how long without a frame a relay's multicast is not heard any more: four times as long as is between its beacons.
const UNHEARD: Duration = Duration::from_secs(2);

/// Why a relay takes nobody.
pub(super) const REFUSED_LOOP: u8 = 1;
pub(super) const REFUSED_FULL: u8 = 2;

/// Whether there is a relay above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Not yet, or no longer: it is asked.
    Asking,
    /// There is one.
    Attached,
    /// There is one, and packets for a group come from it by multicast.
    Multicast,
    /// Refused: this node is above that relay.
    Loop,
    /// Refused: that relay has too many neighbours.
    Full,
}

/// One of the groups for which it asks.
#[derive(Debug)]
struct Membership {
    receivers: u32,
    join_at: Time,
    /// Receivers elsewhere, as the relay last said.
    elsewhere: u32,
    accepted: bool,
    /// Arrivals by multicast.
    lan: Option<Arrivals>,
}

/// Holds on to one of several relays.
#[derive(Debug)]
pub struct Attach {
    relays: Vec<SocketAddr>,
    place: usize,
    is_relay: bool,
    cookie: [u8; COOKIE_BYTES],
    /// When the present relay was heard, or asked first.
    heard_at: Option<Time>,
    state: Attachment,
    groups: BTreeMap<u64, Membership>,
    path: Vec<NodeId>,
    /// The relay's node, and the counter of its last frame that was no data.
    newest: (NodeId, u64),
    link: Option<HopLink>,
    /// Where the relay sends by multicast.
    multicast: Option<SocketAddr>,
    /// On which of its networks that is heard, and when it was last.
    hears: Option<(u16, Time)>,
    /// The counter of its last beacon.
    beacon: u64,
    /// Packets that came by multicast and were not taken before that ended.
    rest: VecDeque<HopPacket>,
}

impl Attach {
    /// That of a host, or of a relay, which asks these relays in turn: one at least.
    pub fn new(relays: Vec<SocketAddr>, is_relay: bool) -> Self {
        Self {
            relays,
            place: 0,
            is_relay,
            cookie: [0; COOKIE_BYTES],
            heard_at: None,
            state: Attachment::Asking,
            groups: BTreeMap::new(),
            path: Vec::new(),
            newest: (NodeId(0), 0),
            link: None,
            multicast: None,
            hears: None,
            beacon: 0,
            rest: VecDeque::new(),
        }
    }

    /// The relay that is above, or that is asked.
    pub fn relay(&self) -> SocketAddr {
        self.relays[self.place]
    }

    /// Whether there is one.
    pub fn state(&self) -> Attachment {
        match self.state {
            Attachment::Attached if self.has_multicast() => Attachment::Multicast,
            state => state,
        }
    }

    /// The relay that is above, and those above it.
    pub fn path(&self) -> &[NodeId] {
        &self.path
    }

    /// Receivers of a group elsewhere.
    pub fn elsewhere(&self, group: u64) -> u32 {
        self.groups.get(&group).map_or(0, |of| of.elsewhere)
    }

    /// So many receivers of a group are here, or behind; it is said at once. `None`: the group is not wanted any more.
    pub fn set(&mut self, now: Time, group: u64, receivers: Option<u32>) {
        match (receivers, self.groups.get_mut(&group)) {
            (None, _) => _ = self.groups.remove(&group),
            (Some(receivers), Some(known)) if known.receivers == receivers => {}
            (Some(receivers), Some(known)) => (known.receivers, known.join_at) = (receivers, now),
            (Some(receivers), None) => {
                let (elsewhere, accepted) = (0, false);
                let new = Membership { receivers, join_at: now, elsewhere, accepted, lan: None };
                self.groups.insert(group, new);
            }
        }
    }

    /// The link to the relay, where there is one.
    pub const fn link(&mut self) -> Option<&mut HopLink> {
        self.link.as_mut()
    }

    /// Where the relay sends by multicast, which a host may hear beside.
    pub const fn multicast(&self) -> Option<SocketAddr> {
        self.multicast
    }

    /// Whether that is heard.
    pub const fn hears(&self) -> bool {
        self.hears.is_some()
    }

    fn has_multicast(&self) -> bool {
        self.groups.values().any(|of| of.lan.is_some())
    }

    /// The relay's node.
    pub const fn relay_node(&self) -> NodeId {
        self.newest.0
    }

    /// Takes a frame without data from the relay that is above, or that is asked. What came before comes in vain.
    pub fn handle(&mut self, now: Time, frame: &Frame<'_>) {
        let is_old = frame.sender == self.newest.0 && frame.counter <= self.newest.1;
        if is_old && frame.kind != FrameKind::Ack {
            return;
        }
        if frame.kind != FrameKind::Ack {
            if frame.sender != self.newest.0 {
                // It was started again, and numbers its links from the beginning.
                self.forget_links();
            }
            self.newest = (frame.sender, frame.counter);
        }
        match frame.kind {
            FrameKind::Challenge => {
                let Ok(cookie) = <[u8; COOKIE_BYTES]>::try_from(frame.body) else { return };
                // Asked the same again it would not know better.
                if cookie != self.cookie {
                    self.cookie = cookie;
                    self.groups.values_mut().for_each(|of| of.join_at = now);
                }
            }
            FrameKind::Accept => {
                let known = self.groups.get_mut(&frame.group);
                let (Some(accept), Some(known)) = (Accept::decode(frame.body), known) else {
                    return;
                };
                (known.accepted, known.elsewhere) = (true, accept.elsewhere);
                self.multicast = accept.lan.map(|lan| lan.at);
                take_offer(known, accept.lan.and_then(|lan| lan.link), &mut self.rest);
                self.path = accept.path;
                (self.state, self.heard_at) = (Attachment::Attached, Some(now));
                if self.link.as_ref().is_none_or(|link| link.id() != accept.link) {
                    self.link = Some(HopLink::new(accept.link));
                }
            }
            FrameKind::Ack => {
                let link = self.link.as_mut().filter(|link| link.id() == frame.link.0);
                if let (Some(link), Some(ack)) = (link, Ack::decode(frame.body)) {
                    // One that is wrong says nothing.
                    let _ = link.on_ack(now, &ack);
                }
            }
            FrameKind::Refuse => {
                self.state = match frame.body {
                    [REFUSED_LOOP] => Attachment::Loop,
                    [REFUSED_FULL] => Attachment::Full,
                    _ => return,
                };
                self.path.clear();
                if self.relays.len() > 1 {
                    self.turn(now);
                }
            }
            FrameKind::Data | FrameKind::Join | FrameKind::Leave | FrameKind::Beacon => {}
        }
    }

    /// Takes a frame that came by multicast. Returns whether it is of the relay, and news.
    pub fn handle_multicast(&mut self, now: Time, frame: &Frame<'_>) -> bool {
        if frame.sender != self.newest.0 || self.state != Attachment::Attached {
            return false;
        }
        match frame.kind {
            FrameKind::Beacon if frame.counter > self.beacon => {
                let Ok(network) = <[u8; 2]>::try_from(frame.body) else { return false };
                let network = u16::from_be_bytes(network);
                self.beacon = frame.counter;
                match &mut self.hears {
                    // Where it is heard on two the first is as good.
                    Some((known, at)) => {
                        *at = if *known == network { now } else { *at };
                    }
                    None => {
                        self.hears = Some((network, now));
                        self.ask_again(now);
                    }
                }
                true
            }
            FrameKind::Data => {
                let is_news = self.handle_data(now, frame);
                if let Some((_, at)) = self.hears.as_mut().filter(|_| is_news) {
                    *at = now;
                }
                is_news
            }
            _ => false,
        }
    }

    /// The relay is to hear of something at once.
    fn ask_again(&mut self, now: Time) {
        for of in self.groups.values_mut() {
            (of.join_at, of.accepted) = (now, false);
        }
    }

    /// Takes a frame with data. Returns whether it is on a link with the relay, and news; [`take`](Self::take) gives what is in
    /// order.
    pub fn handle_data(&mut self, now: Time, frame: &Frame<'_>) -> bool {
        let id = frame.link.0;
        if frame.sender != self.newest.0 {
            return false;
        }
        match self.link.as_mut().filter(|link| link.id() == id) {
            Some(link) => link.on_frame(now, frame),
            None => {
                let lan = self.groups.get_mut(&frame.group).and_then(|of| of.lan.as_mut());
                let lan = lan.filter(|arrivals| arrivals.link() == id);
                lan.is_some_and(|arrivals| arrivals.on_frame(now, frame))
            }
        }
    }

    /// The next packet that has come in order.
    pub fn take(&mut self) -> Option<HopPacket> {
        let Self { rest, link, groups, .. } = self;
        let rest = rest.pop_front().or_else(|| link.as_mut()?.take());
        let mut lans = groups.values_mut().filter_map(|of| of.lan.as_mut());
        rest.or_else(|| lans.find_map(Arrivals::take))
    }

    /// All links are gone with the relay, but for what has come.
    fn forget_links(&mut self) {
        self.link = None;
        (self.multicast, self.hears, self.beacon) = (None, None, 0);
        for of in self.groups.values_mut() {
            take_offer(of, None, &mut self.rest);
        }
    }

    /// The next relay of the list is asked.
    fn turn(&mut self, now: Time) {
        self.place = (self.place + 1) % self.relays.len();
        (self.cookie, self.heard_at) = ([0; COOKIE_BYTES], Some(now));
        self.path.clear();
        self.forget_links();
        for of in self.groups.values_mut() {
            (of.join_at, of.accepted, of.elsewhere) = (now + RETRY, false, 0);
        }
    }

    /// Takes the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(link) = &mut self.link {
            link.handle_timeout(now);
        }
        for arrivals in self.groups.values_mut().filter_map(|of| of.lan.as_mut()) {
            arrivals.handle_timeout(now);
        }
        if self.hears.take_if(|(_, at)| now.since(*at) >= UNHEARD).is_some() {
            self.ask_again(now);
        }
        let heard_at = *self.heard_at.get_or_insert(now);
        if now.since(heard_at) >= SILENCE && !self.groups.is_empty() {
            self.state = Attachment::Asking;
            self.turn(now);
        }
    }

    /// Writes the frame that is due: to ask, to acknowledge, or to send again.
    pub fn poll(&mut self, now: Time, guard: &mut Guard, out: &mut Vec<u8>) -> bool {
        if self.link.as_mut().is_some_and(|link| link.poll(now, guard, out)) {
            return true;
        }
        let mut lans = self.groups.values_mut().filter_map(|of| of.lan.as_mut());
        if lans.any(|arrivals| arrivals.poll(now, guard, out)) {
            return true;
        }
        let due = self.groups.iter_mut().find(|(_, of)| of.join_at <= now);
        let Some((group, of)) = due else { return false };
        of.join_at = now + if of.accepted { REFRESH } else { RETRY };
        // Until that is answered.
        of.accepted = false;
        let hears = self.hears.map_or(0, |(network, _)| network);
        let (cookie, relay, receivers) = (self.cookie, self.is_relay, of.receivers);
        let join = Join { cookie, relay, begins: self.link.is_none(), hears, receivers };
        guard.write(&Frame::control(FrameKind::Join, *group, &[]), out, |out| join.encode(out));
        true
    }

    /// Writes the frames by which it leaves.
    pub fn leave(&mut self, guard: &mut Guard, mut each: impl FnMut(Vec<u8>)) {
        for group in core::mem::take(&mut self.groups).into_keys() {
            let mut out = Vec::new();
            guard.write(&Frame::control(FrameKind::Leave, group, &[]), &mut out, |_| {});
            each(out);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll`](Self::poll) have something to do.
    pub fn next_timeout(&self) -> Option<Time> {
        let joins = self.groups.values().map(|of| of.join_at);
        let own = joins.chain(self.heard_at.map(|at| at + SILENCE)).min();
        let own = own.filter(|_| !self.groups.is_empty());
        let lans = self.groups.values().filter_map(|of| of.lan.as_ref());
        let lans = lans.filter_map(Arrivals::next_timeout);
        let unheard = self.hears.map(|(_, at)| at + UNHEARD);
        let link = self.link.as_ref().and_then(HopLink::next_timeout);
        own.into_iter().chain(link).chain(lans).chain(unheard).min()
    }
}

/// A group comes over this link from now on, by its number, first frame and pace of acknowledgements; or over that of the
/// two alone. What came over another goes to `rest`.
fn take_offer(
    of: &mut Membership,
    link: Option<(u16, u32, AckPace)>,
    rest: &mut VecDeque<HopPacket>,
) {
    let known = of.lan.as_mut();
    if let Some((id, first, pace)) = link
        && let Some(arrivals) = known.filter(|it| it.link() == id && it.has_come_to(first))
    {
        return arrivals.set_pace(pace);
    }
    let new = link.map(|(id, first, pace)| Arrivals::new(id, first, pace));
    let before = core::mem::replace(&mut of.lan, new);
    rest.extend(before.into_iter().flat_map(Arrivals::into_rest));
}
