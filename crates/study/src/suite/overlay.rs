//! Figures of clients and links of the overlay, in spans of ten seconds.

use std::collections::BTreeMap;

use faircast_base::{ClientAct, ClientNote, LinkNote, NodeId, Time};
use faircast_trace::Header;

use super::probe::BIN_S;

pub(crate) type OverlayQuantity = fn(&[Bin], f64) -> f64;

#[derive(Clone, Copy, Debug)]
pub(crate) enum OverlayPart {
    Clients,
    Links,
}

pub(crate) const OVERLAY_QUANTITIES: &[(&str, OverlayPart, OverlayQuantity)] = &[
    // Payload that the daemon accepted from the client.
    ("client_sent_bps", OverlayPart::Clients, |bins, span_s| {
        sum(bins, |it| it.sent_bytes) * 8.0 / span_s
    }),
    ("client_got_bps", OverlayPart::Clients, |bins, span_s| {
        sum(bins, |it| it.got_bytes) * 8.0 / span_s
    }),
    // Mean time from the sender's daemon to the client, over messages.
    ("client_latency_s", OverlayPart::Clients, |bins, _| {
        sum(bins, |it| it.latency_s) / sum(bins, |it| it.got)
    }),
    ("buffer_max", OverlayPart::Links, |bins, _| {
        bins.iter().map(|it| it.packets_max).fold(0.0, f64::max)
    }),
    // Median of each second's maximum.
    ("buffer_peak", OverlayPart::Links, |bins, _| {
        let mut peaks: Vec<f64> = bins.iter().flat_map(|it| it.peaks).collect();
        peaks.sort_by(f64::total_cmp);
        peaks.get(peaks.len() / 2).copied().unwrap_or(f64::NAN)
    }),
];

/// Sums over ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bin {
    sent_bytes: f64,
    got_bytes: f64,
    got: f64,
    latency_s: f64,
    packets_max: f64,
    /// Most packets of each second.
    peaks: [f64; BIN_S as usize],
}

fn sum(bins: &[Bin], of: impl Fn(&Bin) -> f64) -> f64 {
    bins.iter().map(of).sum()
}

#[derive(Default)]
pub(crate) struct OverlayProbe {
    from_s: u32,
    clients: Vec<(String, Vec<Bin>)>,
    nodes: Vec<String>,
    links: BTreeMap<(NodeId, NodeId), Vec<Bin>>,
}

fn bin(bins: &mut Vec<Bin>, at: Time) -> &mut Bin {
    let place = (at.as_secs_f64() / f64::from(BIN_S)) as usize;
    if bins.len() <= place {
        bins.resize(place + 1, Bin::default());
    }
    &mut bins[place]
}

impl OverlayProbe {
    pub(crate) fn new(header: &Header) -> Self {
        Self {
            from_s: header.warmup().as_secs_f64().ceil() as u32,
            clients: header.clients.iter().map(|it| (it.name.clone(), Vec::new())).collect(),
            nodes: header.nodes.clone(),
            links: BTreeMap::new(),
        }
    }

    pub(crate) fn client(&mut self, at: Time, note: &ClientNote) {
        let Some((_, bins)) = self.clients.get_mut(note.client as usize) else { return };
        match note.act {
            ClientAct::Sent { bytes } => bin(bins, at).sent_bytes += f64::from(bytes),
            ClientAct::Delivered { bytes, latency } => {
                let bin = bin(bins, at);
                bin.got_bytes += f64::from(bytes);
                bin.got += 1.0;
                bin.latency_s += latency.as_secs_f64();
            }
            _ => {}
        }
    }

    pub(crate) fn link(&mut self, at: Time, note: &LinkNote) {
        let bin = bin(self.links.entry((note.from, note.to)).or_default(), at);
        bin.packets_max = bin.packets_max.max(note.packets_max.into());
        let second = at.as_secs_f64() as usize % BIN_S as usize;
        bin.peaks[second] = bin.peaks[second].max(note.packets_max.into());
    }

    /// Returns the bins of each client or link, with its name.
    pub(crate) fn bins(&self, part: OverlayPart) -> Vec<(String, &[Bin])> {
        let node = |id: NodeId| self.nodes.get(id.index()).map_or("", String::as_str);
        let link = |(from, to): (NodeId, NodeId)| format!("{}>{}", node(from), node(to));
        match part {
            OverlayPart::Clients => {
                self.clients.iter().map(|(name, bins)| (name.clone(), &bins[..])).collect()
            }
            OverlayPart::Links => {
                self.links.iter().map(|(ends, bins)| (link(*ends), &bins[..])).collect()
            }
        }
    }

    pub(crate) fn value(
        &self,
        what: OverlayQuantity,
        span: Option<(u32, u32)>,
        ended_s: f64,
        bins: &[Bin],
    ) -> f64 {
        let (from_s, to_s) = span.unwrap_or((self.from_s, ended_s.floor() as u32));
        let [from, to] = [from_s.div_ceil(BIN_S), to_s / BIN_S].map(|it| it as usize);
        let bins = bins.get(from..to.min(bins.len())).unwrap_or_default();
        // The sum of no floats is minus zero.
        what(bins, ((to - from.min(to)) as u32 * BIN_S).into()) + 0.0
    }
}
