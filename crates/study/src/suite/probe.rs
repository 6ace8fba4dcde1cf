//! Figures of rows beyond the summary: windows over time, and counts of the counted time.

use std::collections::{BTreeMap, VecDeque};

use faircast_base::{ClientNote, Event, LinkNote, NodeId, SwitchReason, Time};
use faircast_report::Rates;
use faircast_trace::{FlowHeader, Header, Record, Sink, Subject};

use super::overlay::OverlayProbe;

/// Longest time between the two switches of a pair: a few round trips (src: seada-helmy s4.4).
const PAIR_WITHIN_S: f64 = 2.0;
/// Cuts count for a pair from its first switch until this time after its second switch, in seconds.
const PAIR_TAIL_S: f64 = 1.0;

/// Most changes of the representative whose times are recorded: the first ones.
const SWITCHES_MAX: usize = 10_000;

/// Bin length in seconds: spans of throughput begin and end at multiples of the bin length.
pub(crate) const BIN_S: u32 = 10;

pub(crate) struct Probe {
    from: Time,
    /// Time up to which the flows' windows are compared.
    compared_at: Time,
    pub(crate) flows: Vec<FlowProbe>,
    rates: Rates,
    pub(crate) overlay: OverlayProbe,
}

#[derive(Default)]
pub(crate) struct FlowProbe {
    pub(crate) packet_bytes: f64,
    pub(crate) timeouts: u64,
    pub(crate) cuts: u64,
    pub(crate) switches: u64,
    switched_s: Vec<f64>,
    pub(crate) window: Window,
    pub(crate) pairs: Pairs,
    /// Seconds with this flow's window above the first flow's, and seconds with both windows.
    pub(crate) above_s: f64,
    pub(crate) both_s: f64,
    pace: Pace,
    /// Pace of delivered packets at each receiver, for as many receivers as a figure shows.
    paces: BTreeMap<NodeId, Pace>,
    pub(crate) latency: Latency,
}

/// Detector of the time at which gaps between packets first grew.
#[derive(Default)]
struct Pace {
    first: Option<Time>,
    last: Option<Time>,
    gaps: u32,
    slowed: Option<Time>,
}

#[derive(Default)]
pub(crate) struct Latency {
    /// First transmission times of the latest packets, by sequence number.
    sent: VecDeque<(u64, Time)>,
    sum_s: f64,
    count: u64,
}

#[derive(Default)]
pub(crate) struct Window {
    now: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) visits_to_one: u64,
}

#[derive(Default)]
pub(crate) struct Pairs {
    last_switch: Option<Time>,
    /// Time of the second switch, and number of cuts.
    pub(crate) found: Vec<(Time, u64)>,
    recent_cuts: Vec<Time>,
}

impl Probe {
    pub(crate) fn new(header: &Header) -> Self {
        let flow = |flow: &FlowHeader| FlowProbe {
            packet_bytes: flow.packet_bytes as f64,
            ..FlowProbe::default()
        };
        let flows = header.flows.iter().map(flow).collect();
        Self {
            from: header.warmup(),
            compared_at: Time::ZERO,
            flows,
            rates: Rates::new(header),
            overlay: OverlayProbe::new(header),
        }
    }

    /// Returns the standard deviation of a flow's payload per whole second, as a share of the mean.
    pub(crate) fn variation(&self, flow: usize) -> f64 {
        let end = self.rates.last_span(flow);
        self.rates.variation(flow, self.from, end).unwrap_or(f64::NAN)
    }

    pub(crate) fn throughput_bps(&self, flow: usize, from_s: u32, to_s: u32) -> f64 {
        let [from, to] = [from_s, to_s].map(|s| Time::from_secs_f64(f64::from(s)));
        self.rates.bytes(flow, from, to) * 8.0 / f64::from(to_s - from_s)
    }

    fn set_window(&mut self, flow: usize, at: Time, window_milli: u64) {
        let since = std::mem::replace(&mut self.compared_at, at).max(self.from);
        let seconds = at.since(since).as_secs_f64();
        let (first, others) = self.flows.split_first_mut().expect("`flow` is one of them");
        for other in others {
            if let (Some(a), Some(b)) = (first.window.now, other.window.now) {
                other.both_s += seconds;
                other.above_s += if b > a { seconds } else { 0.0 };
            }
        }
        self.flows[flow].window.set(at, window_milli as f64 / 1000.0, self.from);
    }
}

impl Sink for Probe {
    fn note(&mut self, at: Time, note: &ClientNote) {
        self.overlay.client(at, note);
    }

    fn link_note(&mut self, at: Time, note: &LinkNote) {
        self.overlay.link(at, note);
    }

    fn record(&mut self, record: &Record) {
        self.rates.record(record);
        let Subject::Endpoint { flow, node, sender } = record.subject else { return };
        let (index, at) = (flow.index(), record.at);
        let counts = at >= self.from;
        if let Event::Delivered { seq, .. } = record.event {
            self.flows[index].delivered(at, node, seq, counts);
        }
        if !sender {
            return;
        }
        match record.event {
            Event::Window { window_milli, .. } => self.set_window(index, at, window_milli),
            Event::Cut { window_milli, .. } => {
                if window_milli > 0 {
                    self.set_window(index, at, window_milli);
                }
                if counts {
                    self.flows[index].cuts += 1;
                    self.flows[index].pairs.cut(at);
                }
            }
            Event::DataSent { seq, repair: false, .. } => {
                let flow = &mut self.flows[index];
                flow.pace.came(at);
                flow.latency.sent(at, seq);
            }
            Event::Timeout { .. } if counts => self.flows[index].timeouts += 1,
            Event::Representative { node, reason } => {
                self.flows[index].switch(at, node, reason, counts);
            }
            _ => {}
        }
    }
}

impl FlowProbe {
    fn switch(&mut self, at: Time, node: Option<NodeId>, reason: SwitchReason, counts: bool) {
        if node.is_none() || reason == SwitchReason::First {
            return;
        }
        if self.switched_s.len() < SWITCHES_MAX {
            self.switched_s.push(at.as_secs_f64());
        }
        if counts {
            self.switches += 1;
            self.pairs.switch(at);
        }
    }

    pub(crate) fn switched(&self, from_s: u32, to_s: u32) -> impl Iterator<Item = f64> {
        let within = f64::from(from_s)..f64::from(to_s);
        self.switched_s.iter().copied().filter(move |at| within.contains(at))
    }

    fn delivered(&mut self, at: Time, node: NodeId, seq: u64, counts: bool) {
        self.latency.delivered(at, seq, counts);
        if self.paces.len() < PACES_MAX || self.paces.contains_key(&node) {
            self.paces.entry(node).or_default().came(at);
        }
    }

    /// Returns the seconds from the first packet until gaps grow by [`PACE_FACTOR`], or infinity.
    pub(crate) fn slowed_s(&self) -> f64 {
        self.since_first_s(self.pace.slowed)
    }

    pub(crate) fn first_receiver_slowed_s(&self) -> f64 {
        self.since_first_s(self.paces.values().filter_map(|pace| pace.slowed).min())
    }

    fn since_first_s(&self, slowed: Option<Time>) -> f64 {
        let since = slowed.zip(self.pace.first).map(|(at, first)| at.since(first).as_secs_f64());
        since.unwrap_or(f64::INFINITY)
    }
}

const PACES_MAX: usize = 64;
/// Least number of similar gaps before a longer gap counts.
const PACE_GAPS_MIN: u32 = 3;
/// Ratio of a longer gap to the earlier ones.
const PACE_FACTOR: f64 = 1.3;

impl Pace {
    fn came(&mut self, at: Time) {
        let first = *self.first.get_or_insert(at);
        if let Some(last) = self.last.replace(at)
            && self.slowed.is_none()
        {
            let mean_s = last.since(first).as_secs_f64() / f64::from(self.gaps);
            if self.gaps >= PACE_GAPS_MIN && at.since(last).as_secs_f64() > PACE_FACTOR * mean_s {
                self.slowed = Some(last);
            }
            self.gaps += 1;
        }
    }
}

/// Most packets in flight whose transmission times are recorded.
const ON_THE_WAY_MAX: usize = 1 << 16;

impl Latency {
    fn sent(&mut self, at: Time, seq: u64) {
        if self.sent.back().is_none_or(|(last, _)| *last < seq) {
            self.sent.push_back((seq, at));
            if self.sent.len() > ON_THE_WAY_MAX {
                self.sent.pop_front();
            }
        }
    }

    fn delivered(&mut self, at: Time, seq: u64, counts: bool) {
        if let Ok(place) = self.sent.binary_search_by_key(&seq, |(seq, _)| *seq)
            && counts
        {
            self.sum_s += at.since(self.sent[place].1).as_secs_f64();
            self.count += 1;
        }
    }

    pub(crate) fn mean_ms(&self) -> f64 {
        1e3 * self.sum_s / self.count as f64
    }
}

impl Window {
    fn set(&mut self, at: Time, packets: f64, from: Time) {
        if at >= from {
            let was_above = self.now.is_none_or(|before| before >= 2.0);
            self.visits_to_one += u64::from(packets < 2.0 && was_above);
            self.max = Some(self.max.map_or(packets, |max| max.max(packets)));
        }
        self.now = Some(packets);
    }
}

impl Pairs {
    fn cut(&mut self, at: Time) {
        if let Some((end, cuts)) = self.found.last_mut()
            && at.since(*end).as_secs_f64() <= PAIR_TAIL_S
        {
            *cuts += 1;
        }
        self.recent_cuts.retain(|cut| at.since(*cut).as_secs_f64() <= PAIR_WITHIN_S);
        self.recent_cuts.push(at);
    }

    fn switch(&mut self, at: Time) {
        match self.last_switch {
            Some(before) if at.since(before).as_secs_f64() <= PAIR_WITHIN_S => {
                let cuts = self.recent_cuts.iter().filter(|cut| **cut >= before).count() as u64;
                self.found.push((at, cuts));
                self.last_switch = None;
            }
            _ => self.last_switch = Some(at),
        }
    }

    pub(crate) fn cut_often_share(&self) -> f64 {
        let often = self.found.iter().filter(|(_, cuts)| *cuts >= 2).count();
        often as f64 / self.found.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::{CutReason, FlowId};

    fn header() -> Header {
        let flow = FlowHeader { to: vec![NodeId(1)], packet_bytes: 1000, ..FlowHeader::default() };
        let flows = vec![flow.clone(), flow];
        Header { duration_s: 100.0, warmup_s: 10.0, flows, ..Header::default() }
    }

    fn feed(probe: &mut Probe, flow: u32, at_s: f64, event: Event) {
        let subject = Subject::Endpoint { flow: FlowId(flow), node: NodeId(0), sender: true };
        probe.record(&Record { at: Time::from_secs_f64(at_s), subject, event });
    }

    fn window(packets: u64) -> Event {
        Event::Window { window_milli: packets * 1000, flight: 0 }
    }

    #[test]
    fn windows_are_compared_by_time() {
        let mut probe = Probe::new(&header());
        feed(&mut probe, 0, 5.0, window(4));
        feed(&mut probe, 1, 5.0, window(2));
        feed(&mut probe, 1, 20.0, window(6));
        feed(&mut probe, 1, 50.0, window(1));
        feed(&mut probe, 0, 60.0, window(8));
        // From 10 s on: 10 s at 2, 30 s at 6 (above 4), 10 s at 1.
        let second = &probe.flows[1];
        assert!((second.above_s / second.both_s - 0.6).abs() < 1e-9);
        assert_eq!((second.window.visits_to_one, second.window.max), (1, Some(6.0)));
    }

    #[test]
    fn payload_is_counted_by_spans_of_time() {
        let mut probe = Probe::new(&header());
        for at in [9.0, 10.0, 19.9, 20.0] {
            feed(&mut probe, 0, at, Event::DataSent { seq: 0, bytes: 1000, repair: false });
            feed(&mut probe, 0, at, Event::DataSent { seq: 0, bytes: 1000, repair: true });
        }
        assert_eq!(probe.throughput_bps(0, 10, 20), 1600.0);
        assert_eq!(probe.throughput_bps(0, 30, 90), 0.0);
    }

    #[test]
    fn a_sender_slows_where_a_gap_is_longer_than_those_before() {
        let mut probe = Probe::new(&header());
        for (seq, at) in [0.0, 0.05, 0.1, 0.15, 0.2, 0.28, 0.36].into_iter().enumerate() {
            let seq = seq as u64;
            feed(&mut probe, 0, 7.0 + at, Event::DataSent { seq, bytes: 1, repair: false });
            let got = if at > 0.1 { at * 2.0 } else { at };
            let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(1), sender: false };
            let (at, event) = (Time::from_secs_f64(7.0 + got), Event::Delivered { seq, bytes: 1 });
            probe.record(&Record { at, subject, event });
        }
        assert!((probe.flows[0].slowed_s() - 0.2).abs() < 1e-9);
        let first = probe.flows[0].first_receiver_slowed_s();
        assert!((first - 0.4).abs() < 1e-9, "{first}");
        assert_eq!(probe.flows[1].slowed_s(), f64::INFINITY);
    }

    #[test]
    fn latency_is_from_the_first_time_that_a_packet_was_sent() {
        let mut probe = Probe::new(&header());
        for (at, seq, repair) in [(20.0, 7, false), (20.5, 8, false), (21.0, 7, true)] {
            feed(&mut probe, 0, at, Event::DataSent { seq, bytes: 1, repair });
        }
        let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(1), sender: false };
        for (at, seq) in [(21.5, 7), (21.0, 8), (22.0, 9)] {
            let (at, event) = (Time::from_secs_f64(at), Event::Delivered { seq, bytes: 1 });
            probe.record(&Record { at, subject, event });
        }
        assert_eq!(probe.flows[0].latency.mean_ms(), 1000.0);
    }

    #[test]
    fn counts_leave_the_warm_up_out() {
        let mut probe = Probe::new(&header());
        for at in [1.0, 11.0, 12.0] {
            feed(&mut probe, 0, at, Event::Cut { reason: CutReason::Loss, window_milli: 0 });
        }
        assert_eq!(probe.flows[0].cuts, 2);
    }

    #[test]
    fn changes_of_the_representative_are_found_by_their_moments() {
        let mut probe = Probe::new(&header());
        let to = |node, reason| Event::Representative { node, reason };
        feed(&mut probe, 0, 5.0, to(Some(NodeId(1)), SwitchReason::First));
        feed(&mut probe, 0, 7.5, to(Some(NodeId(0)), SwitchReason::Silent));
        feed(&mut probe, 0, 60.25, to(Some(NodeId(1)), SwitchReason::Slower));
        feed(&mut probe, 0, 61.0, to(None, SwitchReason::Left));
        let flow = &probe.flows[0];
        for (from_s, to_s, want) in
            [(0, 50, &[7.5][..]), (50, 100, &[60.25]), (10, 60, &[]), (0, 100, &[7.5, 60.25])]
        {
            assert_eq!(flow.switched(from_s, to_s).collect::<Vec<_>>(), want);
        }
        assert_eq!(flow.switches, 1, "the warm-up does not count there");
    }

    #[test]
    fn a_pair_is_two_switches_close_together_with_the_cuts_around_them() {
        let mut probe = Probe::new(&header());
        let switch =
            |node| Event::Representative { node: Some(NodeId(node)), reason: SwitchReason::Slower };
        let cut = Event::Cut { reason: CutReason::Loss, window_milli: 1000 };
        feed(&mut probe, 0, 20.0, switch(1));
        feed(&mut probe, 0, 20.2, cut);
        feed(&mut probe, 0, 20.5, switch(2));
        feed(&mut probe, 0, 20.9, cut);
        feed(&mut probe, 0, 30.0, switch(1));
        feed(&mut probe, 0, 40.0, switch(2));
        let flow = &probe.flows[0];
        assert_eq!((flow.switches, flow.pairs.found.len()), (4, 1));
        assert_eq!((flow.pairs.found[0].1, flow.pairs.cut_often_share()), (2, 1.0));
    }
}
