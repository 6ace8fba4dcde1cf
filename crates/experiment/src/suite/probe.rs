//! Figures that rows of a suite need beyond the summary: windows over time, and counts within the
//! counted time only.

use faircast_base::{Event, NodeId, SwitchReason, Time};
use faircast_report::Rates;
use faircast_trace::{FlowHeader, Header, Record, Sink, Subject};

/// Two switches of the representative that follow each other within this time make a pair: there
/// and back again within a few round trips, as Seada & Helmy describe in s4.4.
const PAIR_WITHIN_S: f64 = 2.0;
/// Cuts are counted for a pair from its first switch until so long after its second.
const PAIR_TAIL_S: f64 = 1.0;

/// Most changes of the representative whose moments are kept: the first ones.
const SWITCHES_MAX: usize = 10_000;

/// Spans of throughput begin and end at whole multiples of so many seconds.
pub(crate) const BIN_S: u32 = 10;

/// Listens to one run.
pub(crate) struct Probe {
    from: Time,
    pub(crate) flows: Vec<FlowProbe>,
    rates: Rates,
}

/// What was heard of one flow, from the end of the warm-up on.
#[derive(Default)]
pub(crate) struct FlowProbe {
    pub(crate) packet_bytes: f64,
    pub(crate) timeouts: u64,
    pub(crate) cuts: u64,
    pub(crate) switches: u64,
    /// When the representative changed, from the start of the run on, in seconds.
    switched_s: Vec<f64>,
    pub(crate) window: Window,
    pub(crate) pairs: Pairs,
    /// Seconds in which this flow's window was above the first flow's, and in which both had one.
    above_s: f64,
    both_s: f64,
}

/// A window over time.
pub(crate) struct Window {
    now: Option<f64>,
    since: Time,
    integral: f64,
    seconds: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Times that it came down to one packet.
    pub(crate) visits_to_one: u64,
}

/// Pairs of switches, and the cuts in and just after each.
#[derive(Default)]
pub(crate) struct Pairs {
    last_switch: Option<Time>,
    /// Start, end and cuts of each pair.
    found: Vec<(Time, Time, u64)>,
    /// Recent cuts, for a pair that is recognised after them.
    recent_cuts: Vec<Time>,
}

impl Probe {
    pub(crate) fn new(header: &Header) -> Self {
        let flow = |flow: &FlowHeader| FlowProbe {
            packet_bytes: flow.packet_bytes as f64,
            ..FlowProbe::default()
        };
        let flows = header.flows.iter().map(flow).collect();
        Self { from: header.warmup(), flows, rates: Rates::new(header) }
    }

    /// Standard deviation of a flow's payload of each counted second, as a share of the mean. The
    /// last second, which may not be whole, does not count.
    pub(crate) fn variation(&self, flow: usize) -> f64 {
        let end = self.rates.last_span(flow);
        self.rates.variation(flow, self.from, end).unwrap_or(f64::NAN)
    }

    /// A flow's payload per second between two moments.
    pub(crate) fn throughput_bps(&self, flow: usize, from_s: u32, to_s: u32) -> f64 {
        let [from, to] = [from_s, to_s].map(|s| Time::from_secs_f64(f64::from(s)));
        self.rates.bytes(flow, from, to) * 8.0 / f64::from(to_s - from_s)
    }

    /// Adds the time since the last change of any window to the comparison of all with the first.
    fn compare_windows(&mut self, at: Time) {
        let Some((first, others)) = self.flows.split_first_mut() else { return };
        for other in others {
            let since = first.window.since.max(other.window.since).max(self.from);
            if let (Some(a), Some(b)) = (first.window.now, other.window.now) {
                let seconds = at.since(since).as_secs_f64();
                other.both_s += seconds;
                other.above_s += if b > a { seconds } else { 0.0 };
            }
        }
    }

    fn set_window(&mut self, flow: usize, at: Time, window_milli: u64) {
        self.compare_windows(at);
        self.flows[flow].window.set(at, window_milli as f64 / 1000.0, self.from);
        // Comparisons restart here for all, so that no span is counted twice.
        for flow in &mut self.flows {
            flow.window.restart(at, self.from);
        }
    }
}

impl Sink for Probe {
    fn record(&mut self, record: &Record) {
        self.rates.record(record);
        let Subject::Endpoint { flow, sender: true, .. } = record.subject else { return };
        let (index, at) = (flow.index(), record.at);
        match record.event {
            Event::Window { window_milli, .. } => self.set_window(index, at, window_milli),
            Event::Cut { window_milli, .. } => {
                if window_milli > 0 {
                    self.set_window(index, at, window_milli);
                }
                if at >= self.from {
                    self.flows[index].cuts += 1;
                    self.flows[index].pairs.cut(at);
                }
            }
            Event::Timeout { .. } if at >= self.from => self.flows[index].timeouts += 1,
            Event::Representative { node, reason } => {
                let counts = at >= self.from;
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

    /// When the representative changed from one moment to another, in seconds, ascending.
    fn switched(&self, from_s: u32, to_s: u32) -> impl Iterator<Item = f64> {
        let within = f64::from(from_s)..f64::from(to_s);
        self.switched_s.iter().copied().filter(move |at| within.contains(at))
    }

    /// How often the representative changed between two moments.
    pub(crate) fn switches_between(&self, from_s: u32, to_s: u32) -> f64 {
        self.switched(from_s, to_s).count() as f64
    }

    /// When it changed first between two moments; infinite where it did not.
    pub(crate) fn first_switch_s(&self, from_s: u32, to_s: u32) -> f64 {
        self.switched(from_s, to_s).next().unwrap_or(f64::INFINITY)
    }

    /// Share of the time in which this flow's window was above the first flow's.
    pub(crate) fn above_first_share(&self) -> f64 {
        self.above_s / self.both_s
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            now: None,
            since: Time::ZERO,
            integral: 0.0,
            seconds: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            visits_to_one: 0,
        }
    }
}

impl Window {
    fn set(&mut self, at: Time, packets: f64, from: Time) {
        self.restart(at, from);
        if at >= from {
            let was_above = self.now.is_none_or(|before| before >= 2.0);
            self.visits_to_one += u64::from(packets < 2.0 && was_above);
            self.min = self.min.min(packets);
            self.max = self.max.max(packets);
        }
        self.now = Some(packets);
    }

    /// Closes the span up to `at`.
    fn restart(&mut self, at: Time, from: Time) {
        if let Some(packets) = self.now {
            let seconds = at.since(self.since.max(from)).as_secs_f64();
            self.integral += packets * seconds;
            self.seconds += seconds;
        }
        self.since = at;
    }

    /// Mean over time, up to the last change.
    pub(crate) fn mean(&self) -> f64 {
        self.integral / self.seconds
    }
}

impl Pairs {
    fn cut(&mut self, at: Time) {
        if let Some((_, end, cuts)) = self.found.last_mut()
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
                self.found.push((before, at, cuts));
                // The second switch of a pair does not begin another one.
                self.last_switch = None;
            }
            _ => self.last_switch = Some(at),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// Share of the pairs with two cuts or more.
    pub(crate) fn cut_often_share(&self) -> f64 {
        let often = self.found.iter().filter(|(_, _, cuts)| *cuts >= 2).count();
        often as f64 / self.found.len() as f64
    }

    /// Mean number of cuts of a pair.
    pub(crate) fn cuts_mean(&self) -> f64 {
        let cuts: u64 = self.found.iter().map(|(_, _, cuts)| cuts).sum();
        cuts as f64 / self.found.len() as f64
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
    fn windows_are_weighed_by_time_and_compared() {
        let mut probe = Probe::new(&header());
        feed(&mut probe, 0, 5.0, window(4));
        feed(&mut probe, 1, 5.0, window(2));
        feed(&mut probe, 1, 20.0, window(6));
        feed(&mut probe, 1, 50.0, window(1));
        feed(&mut probe, 0, 60.0, window(8));
        // From 10 s on: 10 s at 2, 30 s at 6 (above 4), 10 s at 1.
        let second = &probe.flows[1];
        assert!((second.window.mean() - 210.0 / 50.0).abs() < 1e-9, "{}", second.window.mean());
        assert!((second.above_first_share() - 0.6).abs() < 1e-9);
        assert_eq!((second.window.visits_to_one, second.window.max), (1, 6.0));
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
        assert_eq!((flow.first_switch_s(0, 50), flow.first_switch_s(50, 100)), (7.5, 60.25));
        assert_eq!(flow.first_switch_s(70, 100), f64::INFINITY);
        assert_eq!((flow.switches_between(0, 100), flow.switches_between(10, 60)), (2.0, 0.0));
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
        assert_eq!((flow.switches, flow.pairs.count()), (4, 1));
        assert_eq!((flow.pairs.cuts_mean(), flow.pairs.cut_often_share()), (2.0, 1.0));
    }
}
