//! The way of a host through a relay, where there is no multicast: all that it sends goes there in frames, and all that it
//! hears comes from there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::Destination;
use faircast_proto::credit;
use faircast_proto::hop::{Attach, Attachment, FrameKind, Guard, HopPacket, group_number};

use crate::Envelope;

/// How a host reaches its group through relays.
#[derive(Clone)]
pub struct ViaSettings {
    /// The node that the host is; see [`faircast_proto::hop::node_of`].
    pub node: NodeId,
    /// The relays, of which the first that answers is taken; one at least, of one family.
    pub relays: Vec<SocketAddr>,
    /// The name of the group.
    pub group: String,
    /// Receivers here: 0 for a source.
    pub receivers: u32,
    /// The key of the relays, where they have one.
    pub key: Option<[u8; 32]>,
}

impl std::fmt::Debug for ViaSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, relays, group, .. } = self;
        f.debug_struct("ViaSettings")
            .field("node", node)
            .field("relays", relays)
            .field("group", group)
            .finish_non_exhaustive()
    }
}

/// A host's end of the way.
#[derive(Debug)]
pub(crate) struct Via {
    guard: Guard,
    attach: Attach,
    group: u64,
    /// The relay whose multicast is listened to, and where.
    heard: Option<(SocketAddr, SocketAddr)>,
    /// When it is tried again where it is not heard.
    hear_at: Time,
}

impl Via {
    pub(crate) fn new(now: Time, settings: &ViaSettings) -> Self {
        let group = group_number(&settings.group);
        let mut attach = Attach::new(settings.relays.clone(), false);
        attach.set(now, group, Some(settings.receivers));
        Self {
            guard: Guard::new(settings.node, settings.key),
            attach,
            group,
            heard: None,
            hear_at: now,
        }
    }

    pub(crate) fn relay(&self) -> SocketAddr {
        self.attach.relay()
    }

    pub(crate) fn state(&self) -> Attachment {
        self.attach.state()
    }

    /// Where the relay is to be heard by multicast, where that has changed, or it is not heard: this host may have another
    /// address by now.
    pub(crate) fn poll_multicast(&mut self, now: Time) -> Option<(SocketAddr, Option<SocketAddr>)> {
        let wanted = self.attach.multicast().map(|at| (self.attach.relay(), at));
        let again = wanted.is_some() && !self.attach.hears() && self.hear_at <= now;
        if self.heard == wanted && !again {
            return None;
        }
        (self.heard, self.hear_at) = (wanted, now + HEAR_AGAIN);
        Some((self.attach.relay(), wanted.map(|(_, at)| at)))
    }

    /// Something has come from an address, or by multicast. Returns whether it is right; [`take`](Self::take) gives what is
    /// for machines.
    pub(crate) fn open(&mut self, now: Time, from: Option<SocketAddr>, datagram: &[u8]) -> bool {
        if from.is_some_and(|from| from != self.attach.relay()) {
            return false;
        }
        let Ok(frame) = self.guard.read(datagram) else { return false };
        match (from, frame.kind) {
            (None, _) => self.attach.handle_multicast(now, &frame),
            (Some(_), FrameKind::Data) => self.attach.handle_data(now, &frame),
            (Some(_), _) => {
                self.attach.handle(now, &frame);
                true
            }
        }
    }

    /// The next packet for machines. What this host has sent itself comes back by multicast.
    pub(crate) fn take(&mut self) -> Option<HopPacket> {
        let (group, own) = (self.group, self.guard.node());
        let all = std::iter::from_fn(|| self.attach.take());
        { all }.find(|parcel| parcel.group == group && parcel.origin != own)
    }

    /// Whether more may be sent now. Where there is no relay nothing is waited for: what is sent is lost, and time passes for
    /// machines.
    pub(crate) fn has_room(&mut self) -> bool {
        self.attach.link().is_none_or(|link| link.has_room())
    }

    /// Writes a frame with this packet. Returns whether there was a place for it.
    pub(crate) fn write(
        &mut self,
        now: Time,
        (to, hops, body): (Destination, u8, Vec<u8>),
        out: &mut Vec<u8>,
    ) -> bool {
        let (group, origin) = (self.group, self.guard.node());
        let Some(link) = self.attach.link() else { return false };
        let Some(seq) = link.send(now, HopPacket { hops, group, origin, to, body: body.into() })
        else {
            return false;
        };
        link.write(seq, &mut self.guard, out);
        true
    }

    /// Takes the passing of time, and gives what is to be sent to the relay.
    pub(crate) fn handle_timeout(&mut self, now: Time, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.attach.handle_timeout(now);
        let mut frame = Vec::new();
        while self.attach.poll(now, &mut self.guard, &mut frame) {
            send(self.attach.relay(), &frame);
            frame.clear();
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.attach.next_timeout()
    }

    /// Says goodbye.
    pub(crate) fn leave(&mut self, mut send: impl FnMut(&[u8])) {
        self.attach.leave(&mut self.guard, |frame| send(&frame));
    }
}

/// After how long multicast that is not heard is tried again.
const HEAR_AGAIN: Duration = Duration::from_secs(30);

/// The address that stands for a node behind relays: nobody sends there.
pub(crate) fn address_of(node: NodeId) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(node.0)), 0)
}

/// Seals a packet behind what relays have to read of it.
pub(crate) fn seal_behind(envelope: &mut dyn Envelope, packet: &[u8], out: &mut Vec<u8>) {
    let (clear, sealed) = packet.split_at(credit::clear_bytes(packet));
    out.extend_from_slice(clear);
    if !sealed.is_empty() {
        envelope.seal(sealed, out);
    }
}

/// Opens it. The beginning is where it was, or moved to what was opened.
pub(crate) fn open_behind<'a>(
    envelope: &mut dyn Envelope,
    now: Time,
    from: SocketAddr,
    datagram: &'a mut [u8],
) -> Option<&'a [u8]> {
    let clear = credit::clear_bytes(datagram);
    if clear == datagram.len() {
        return Some(datagram);
    }
    let base = datagram.as_ptr() as usize;
    let opened = envelope.open(now, from, &mut datagram[clear..])?;
    let (start, len) = (opened.as_ptr() as usize - base, opened.len());
    datagram.copy_within(..clear, start - clear);
    datagram.get(start - clear..start + len)
}
