//! Check of a receiver by unicast: whether it answers with the same key, and the path MTU.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use faircast_base::Time;
use faircast_net::{Envelope as _, SocketSettings, probe_socket, random};

use super::exchange::{MTU_CANDIDATES, PACKETS_PER_SIZE};
use super::finding::{self as f, Finding};
use super::judge::MTU_USUAL;
use super::wire::{BYTES, Body, Packet};
use super::{Event, MTU_MAX, Settings};
use crate::Result;
use crate::envelope::{Watched, Wrapper};

/// Longest wait for an answer: a receiver with another key reports that every 5 s.
const ANSWER: Duration = Duration::from_secs(6);
/// Longest wait for an answer: to a first probe, and to a later one beside two round trips.
const FIRST: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(20);

pub(super) fn findings(
    settings: &Settings,
    to: SocketAddr,
    watch: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Option<Vec<Finding>>> {
    let hops = SocketSettings { hops: settings.hops, ..SocketSettings::default() };
    let (socket, link_mtu) = probe_socket(to, hops, WAIT)?;
    let link_mtu = link_mtu.map_or(MTU_USUAL, |mtu| mtu.count().min(MTU_MAX) as u32);
    let watched = Watched::default();
    let mut wrapper = Wrapper::source(settings.key.clone(), watched.clone())?;
    let headers = if to.is_ipv4() { 28 } else { 48 } + wrapper.overhead();
    let mut bytes = [0; 65_536];
    let mut probe = |length: u32, wait: Duration| {
        let (from, sent_at) = (random(), Instant::now());
        let packet = Packet { from, is_done: false, train: 0, body: Body::Probe };
        let (mut plain, mut sealed) = (packet.encode().to_vec(), Vec::new());
        plain.resize((length as usize).saturating_sub(headers).max(BYTES), 0);
        wrapper.seal(&plain, &mut sealed);
        _ = socket.send_to(&sealed, to);
        while sent_at.elapsed() < wait && watched.lock().mismatch.is_none() {
            let Ok((came, at)) = socket.recv_from(&mut bytes) else { continue };
            let plain = wrapper.open(Time::ZERO, at, &mut bytes[..came]);
            let answer = plain.and_then(Packet::decode).map(|packet| packet.body);
            if matches!(answer, Some(Body::Answer { to, .. }) if to == from) {
                return Some(sent_at.elapsed());
            }
        }
        None
    };
    let (started, mut rtt) = (Instant::now(), None);
    while rtt.is_none() && started.elapsed() < ANSWER && watched.lock().mismatch.is_none() {
        if watch(Event::Going).is_break() {
            return Ok(None);
        }
        rtt = probe(0, FIRST);
    }
    let Some(rtt) = rtt else {
        let why = watched.lock().mismatch.map(|mismatch| mismatch.to_string());
        let silent = || format!("does not answer within {} s", ANSWER.as_secs());
        return Ok(Some(vec![f::RECEIVER.found(false, why.unwrap_or_else(silent))]));
    };
    let mut arrives =
        |length: &u32| (0..PACKETS_PER_SIZE).any(|_| probe(*length, 2 * rtt + REST).is_some());
    let lengths = MTU_CANDIDATES.into_iter().rev().filter(|length| *length <= link_mtu);
    let longest = { lengths }.find(|length| arrives(length)).unwrap_or_default();
    let mtu = format!("up to {longest} bytes (the own link takes {link_mtu})");
    Ok(Some(vec![
        f::RECEIVER.found(true, "answers"),
        f::RECEIVER_WAY.found(true, format!("round trip {:.1} ms", rtt.as_secs_f64() * 1e3)),
        f::PATH_MTU.found(longest >= link_mtu.min(MTU_USUAL), mtu),
    ]))
}
