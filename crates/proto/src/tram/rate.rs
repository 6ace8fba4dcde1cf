//! The source's rate: slow start, steady state, the slowing down before the window closes, and the
//! sleep between two packets.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Bitrate, CutReason, Cx, Duration, Event, Time};

use super::controller::{CLOSED_INTERVAL, Controller, Leaving, Progress, Window};
use super::settings::{Clock, RateRule, TramSettings};
use crate::congestion::{Pace, Permit};

/// Least increment of the rate, and growth of the increment with each packet of slow start, r, in
/// bytes per second (src: tram s3.4).
const RATE_INCREMENT: f64 = 2500.0;
const RATE_INCREMENT_GROWTH: f64 = 1000.0;

/// Increment of the rate in steady state, as a share of the average rate (src: tram s3.4).
const RATE_INCREASE: f64 = 0.15;

/// Parts into which the time is cut that the average rate is taken over.
const PARTS: u32 = 50;

/// The coarse clock of the paper: what it counts in, and what it rounds sleep up to (src: tram s3.5).
const COARSE_NS: u64 = 1_000_000;
const COARSE_SLEEP_NS: u64 = 10_000_000;

/// How the source schedules packets (src: tram s3.4, s3.5). Rates are in bytes of payload per second.
#[derive(Debug, Default)]
pub(super) struct RateControl {
    slow_start: bool,
    /// R, the rate of an open window.
    rate: f64,
    /// What is added to it next, Delta R.
    step: f64,
    rate_min: f64,
    rate_max: f64,
    /// The greatest rate where no receiver asks for less.
    rate_bound: f64,
    step_max: f64,
    rule: RateRule,
    ack_window: f64,
    /// (M - 1) W_a: a window so wide counts as opening.
    wide: f64,
    /// What was sent in the parts of the averaging time, with the part's number.
    sent: VecDeque<(u64, Sent)>,
    sent_lately: Sent,
    part: Duration,
    began: Option<Time>,
    below_min_since: Option<Time>,
    /// Time of the first of the present W_a packets, how many have gone, and the sum of the windows that they found.
    window_began: Time,
    packets: f64,
    windows: f64,
    window_before: f64,
    /// When the first packet found the window closed that has not opened since.
    closed: Option<Time>,
    /// One has since the last W_a packets began.
    was_closed: bool,
    restarts: bool,
    /// The latest packet, and the first W_a after slow start began again. Earlier losses have ended the rate
    /// before, as those before the recovery point of TCP (src: RFC 6582 s3.2).
    latest: u64,
    recovery_point: u64,
    /// The rate that was achieved last while the window was open.
    proven: f64,
    /// Greatest rate at which all members acknowledged, averaged over T; each congestion report halves this value. The rate
    /// that was sent is no measure: slow start overshoots the path.
    sustained: f64,
    /// Up to where slow start goes.
    ceiling: f64,
    /// Part of the averaging time in which slow start reached its ceiling, and that rate, if the window has been open
    /// since: the average is of later packets, and the rate stays above.
    risen: Option<(u64, f64)>,
    /// Packets that members allow beyond what all have, and more than which they allow only where nothing has been
    /// lost for long: half way to the largest window, since what deep trees acknowledge is some W_a behind.
    allowed: u64,
    largest: u64,
    /// What slow start may reach by what members have acknowledged; `None` where it does not ask.
    probe: Option<Probe>,
    pace: Pace,
    /// Bytes of the latest packet, for which the pace waits.
    paced: u32,
    /// With the coarse clock: when the sleep ends, and by how much earlier sleeps were too long.
    coarse: Option<(Time, u64)>,
    /// What was said last of what members allow.
    told_window: u64,
}

/// Bytes that were sent: all, and those of new packets alone; and bytes that all members acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    all: u64,
    new: u64,
    acknowledged: u64,
}

/// How fast members have acknowledged, which slow start goes no further than twice beyond: a rate that has doubled
/// five times before the first of its packets was acknowledged fills any queue.
#[derive(Debug, Default)]
struct Probe {
    /// Bytes that were acknowledged since then.
    since: Option<(Time, u64)>,
    /// Bytes that make a measurement.
    enough: u64,
    /// Bytes that were sent since the last acknowledgement.
    unheard: u64,
    /// What was measured last, and at most, in bytes per second.
    heard: Option<f64>,
    best: f64,
    /// The same when the window closed last and there was more than before, and how often it has closed since.
    best_before: f64,
    closed: u32,
}

/// By what members must acknowledge more when the window closes than when it closed before, and how often it may
/// close without that until slow start is over. A machine that is busy for some milliseconds closes a window that the
/// path does not. The values are those by which startup of BBR finds that the pipe is full.
const GROWTH_MIN: f64 = 1.25;
const CLOSED_MAX: u32 = 3;
/// How far beyond the average the rate rises while windows are larger than M allows. Where nothing is lost an average
/// over seconds and 15 % more takes ten seconds to double; chosen.
const LOSSLESS_GROWTH: f64 = 1.5;
/// Acknowledgements are measured over so long at least: hosts gather what they send, so that some come at one moment.
/// Chosen: some times the 2 ms for which a receiver gathers.
const HEARD_MIN: Duration = Duration::from_millis(10);
/// Share of the former rate up to which slow start begins again after the window was closed for a second or more: what
/// CUBIC keeps after a loss (src: RFC 9438 s4.6). Congestion closes windows for shorter times.
const STOOD_SHARE: f64 = 0.7;

impl Probe {
    fn on_sent(&mut self, len: u32, ack_window: f64) {
        self.enough = (f64::from(len) * ack_window) as u64;
        self.unheard += u64::from(len);
    }

    fn may_rise(&self, rate: f64) -> bool {
        rate < self.limit() && self.unheard <= self.enough
    }

    /// Twice what was measured.
    fn limit(&self) -> f64 {
        self.heard.map_or(f64::INFINITY, |heard| 2.0 * heard)
    }

    /// The window has closed. Returns whether the path may have more all the same.
    fn on_closed(&mut self) -> bool {
        if self.best >= GROWTH_MIN * self.best_before {
            (self.best_before, self.closed) = (self.best, 0);
        }
        self.closed += 1;
        self.closed <= CLOSED_MAX
    }

    fn on_acknowledged(&mut self, now: Time, bytes: u64) {
        self.unheard = 0;
        if bytes == 0 {
            return;
        }
        // It takes two to tell how fast: what the first one tells of has come before.
        let Some((since, sum)) = &mut self.since else {
            self.since = Some((now, 0));
            return;
        };
        *sum += bytes;
        if *sum >= self.enough && now.since(*since) >= HEARD_MIN {
            let heard = *sum as f64 / now.since(*since).as_secs_f64();
            (self.heard, self.best) = (Some(heard), self.best.max(heard));
            (*since, *sum) = (now, 0);
        }
    }
}

impl RateControl {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let bytes = |bits: Bitrate| bits.bits_per_s() as f64 / 8.0;
        let (rate_min, rate_max) = (bytes(settings.rate_min), bytes(settings.rate_max));
        let rate_max = rate_max.max(rate_min);
        let ack_window = f64::from(settings.ack_window);
        let rate = (rate_min + bytes(settings.rate_initial)).min(rate_max);
        let of_paper = u64::from(settings.window_multiple) * u64::from(settings.ack_window);
        Self {
            slow_start: true,
            rate,
            step: RATE_INCREMENT,
            rate_min,
            rate_max,
            rate_bound: rate_max,
            step_max: (rate_max - rate_min) / 4.0,
            rule: settings.rate_rule,
            ack_window,
            wide: f64::from(settings.window_multiple - 1) * ack_window,
            part: Duration::from_nanos(settings.averaging_time.as_nanos() / u64::from(PARTS)),
            restarts: settings.restart,
            ceiling: rate_max,
            largest: match settings.window_max(settings.ack_window.into()) {
                max if max > of_paper => u64::midpoint(of_paper, max),
                _ => u64::MAX,
            },
            probe: settings.slow_start_acknowledged.then(Probe::default),
            pace: Pace::new(rate * 8.0, Pace::BURST),
            paced: 1,
            coarse: (settings.clock == Clock::Coarse).then_some((Time::ZERO, 0)),
            ..Self::default()
        }
    }

    fn permit_at(&mut self, now: Time, window: Window, repair: bool) -> Permit {
        if let Some((awake, _)) = self.coarse {
            return if awake <= now { Permit::Now } else { Permit::At(awake) };
        }
        self.pace.set(now, self.scheduled(window, repair) * 8.0);
        self.pace.permit(now)
    }

    /// R_s after the latest packet. Its length makes a packet a second: a short packet that follows a long one would wait for
    /// the long one at a rate of its own length a second.
    fn scheduled(&self, window: Window, repair: bool) -> f64 {
        let one_per_interval = f64::from(self.paced.max(1)) / CLOSED_INTERVAL.as_secs_f64();
        if window < 0 && !repair {
            return one_per_interval;
        }
        let window = window as f64;
        let rate = if repair {
            self.repair_rate()
        } else if window >= self.ack_window {
            self.rate
        } else {
            self.rate_min + window * (self.rate - self.rate_min) / self.ack_window
        };
        rate.max(one_per_interval)
    }

    /// Rate of repairs, at the source and at heads. While members lack packets their windows stay closed and R falls to
    /// a packet a second; repairs at that rate would keep the windows closed. Half of the greatest acknowledged rate stays.
    fn repair_rate(&self) -> f64 {
        if self.restarts {
            self.rate.max(self.sustained / 2.0).min(self.rate_max)
        } else {
            self.rate
        }
    }

    fn sleep(&mut self, now: Time, window: Window, len: u32, repair: bool) {
        self.paced = len;
        let rate = self.scheduled(window, repair);
        if let Some((awake, excess)) = &mut self.coarse {
            // Whole milliseconds; what earlier sleeps were too long is taken off (src: jrms).
            let wanted = (f64::from(len) / rate * 1e3) as u64 * COARSE_NS;
            let wanted = wanted.min(CLOSED_INTERVAL.as_nanos());
            if *excess > wanted {
                (*awake, *excess) = (now, *excess - wanted);
            } else {
                let left = wanted - *excess;
                let slept = left.next_multiple_of(COARSE_SLEEP_NS);
                (*awake, *excess) = (now + Duration::from_nanos(slept), slept - left);
            }
            return;
        }
        self.pace.set(now, rate * 8.0);
        self.pace.spend(now, len);
    }

    /// A repair leaves. It is of the data that is transmitted: were it not, a source that does nothing but
    /// repair would take itself for one that achieves nothing.
    fn on_repair_sent(&mut self, now: Time, window: Window, len: u32) {
        self.count(now, len, true);
        self.sleep(now, window, len, true);
        if !self.slow_start {
            // Repairs go with R, which a closed window has brought down to a packet a second.
            self.consider_restart();
        }
        self.rise(now);
    }

    fn rise(&mut self, now: Time) {
        if self.slow_start && self.probe.as_ref().is_none_or(|probe| probe.may_rise(self.rate)) {
            self.rate += self.step;
            self.step = (self.step + RATE_INCREMENT_GROWTH).min(self.step_max).max(RATE_INCREMENT);
            if self.rate >= self.ceiling {
                self.rate = self.ceiling;
                self.slow_start = false;
                if self.ceiling < self.rate_max {
                    self.risen = Some((self.part_of(now), self.ceiling));
                }
            }
        }
    }

    fn on_acknowledged(&mut self, now: Time, bytes: u32) {
        self.part_at(now, |sent| sent.acknowledged += u64::from(bytes));
        let whole = self.part * u64::from(PARTS);
        let rate = self.sent_lately.acknowledged as f64 / whole.as_secs_f64();
        self.sustained = self.sustained.max(rate);
        let Some(probe) = &mut self.probe else { return };
        probe.on_acknowledged(now, bytes.into());
        if self.slow_start {
            self.rate = self.rate.min(probe.limit().max(self.rate_min));
        }
    }

    fn count(&mut self, now: Time, len: u32, repair: bool) {
        if let Some(probe) = &mut self.probe {
            probe.on_sent(len, self.ack_window);
        }
        self.began.get_or_insert(now);
        self.part_at(now, |sent| {
            sent.all += u64::from(len);
            sent.new += if repair { 0 } else { u64::from(len) };
        });
    }

    /// Counts something in the present part of the averaging time, and in the sum over all parts.
    fn part_at(&mut self, now: Time, count: impl Fn(&mut Sent)) {
        let part = self.part_of(now);
        if self.sent.back().is_none_or(|last| last.0 != part) {
            self.sent.push_back((part, Sent::default()));
        }
        let of_part = self.sent.back_mut().map(|(_, sent)| sent);
        of_part.into_iter().chain([&mut self.sent_lately]).for_each(count);
        self.forget(part);
    }

    /// A new packet leaves, which found this window. Returns whether the rate was set anew.
    fn on_new_sent(&mut self, now: Time, window: Window, len: u32) -> bool {
        self.count(now, len, false);
        self.closed = (window < 0).then(|| self.closed.unwrap_or(now));
        self.sleep(now, window, len, false);
        if self.packets == 0.0 {
            self.window_began = now;
        }
        self.packets += 1.0;
        self.windows += window as f64;
        self.rise(now);
        // W_a packets take half a minute at the packet a second that a closed window has left of the rate.
        let whole = self.part * u64::from(PARTS);
        let creeps = window as f64 >= self.ack_window
            && self.was_closed
            && now.since(self.window_began) >= whole;
        let ends = self.packets >= self.ack_window || self.restarts && creeps;
        self.was_closed |= self.closed.is_some();
        if ends {
            self.end_window(now, window >= 0);
        }
        ends
    }

    fn end_window(&mut self, now: Time, open: bool) {
        let window = self.windows / self.packets;
        let wider = window > self.window_before || window >= self.wide;
        (self.packets, self.windows, self.window_before) = (0.0, 0.0, window);
        let average = self.average(now);
        if self.slow_start {
            return;
        }
        if !open {
            self.risen = None;
        }
        self.rate = match self.rule {
            _ if !(open && wider) => average,
            RateRule::Average if self.allowed > self.largest => {
                (self.rate + self.step).min(LOSSLESS_GROWTH * average).max(average + self.step)
            }
            RateRule::Average => average + self.step,
            RateRule::Current => self.rate + self.step,
        };
        self.rate = self.rate.max(self.risen.map_or(0.0, |it| it.1)).min(self.rate_max);
        self.was_closed &= !open || window < self.ack_window;
        self.step = (RATE_INCREASE * average).min(self.step_max).max(RATE_INCREMENT);
        if window >= self.ack_window {
            self.proven = self.proven.max(average);
        }
        if open && window >= self.ack_window / 2.0 {
            self.consider_restart();
        }
    }

    /// Where the rate has fallen for want of a window, as while others join or a head is lost, it says nothing about
    /// the path: half of what it took before is tried, as after a timeout of TCP. At a low rate a window of half W_a is
    /// open: one that a report of old losses has left short of W_a grows by two packets in each W_a, which take seconds.
    fn consider_restart(&mut self) {
        if self.restarts && self.rate < self.proven / 2.0 {
            (self.slow_start, self.step) = (true, RATE_INCREMENT);
            if self.latest >= self.recovery_point {
                self.recovery_point = self.latest + self.ack_window as u64;
            }
            self.ceiling = (self.proven / 2.0).max(self.rate_min);
            self.probe = None;
        }
    }

    /// The window has closed, or a receiver has told of congestion. The rate of slow start is one that it was about
    /// to try: what has been achieved is where steady state, and repairs, go on from. That is what members have
    /// acknowledged lately, where it is known: a rate that has grown all the time is far above its average.
    fn end_slow_start(&mut self, now: Time) {
        self.risen = None;
        if core::mem::take(&mut self.slow_start) {
            let heard = self.probe.as_ref().and_then(|probe| probe.heard).unwrap_or(0.0);
            self.rate = self.average(now).max(heard).min(self.rate_max);
            // Half of it at each trial that fails, so that a path that has become worse is believed in the end.
            self.proven = self.rate.max(self.proven / 2.0);
            self.step = (RATE_INCREASE * self.average(now)).min(self.step_max).max(RATE_INCREMENT);
        }
    }

    fn on_congestion(&mut self, now: Time) {
        self.end_slow_start(now);
        self.note_congestion();
    }

    /// Halves what repairs may rely on.
    fn note_congestion(&mut self) {
        self.sustained = self.rate.max(self.sustained / 2.0);
    }

    /// Discards the measurement in progress: during a pause of the source members have nothing to acknowledge.
    fn pause_probe(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.since = None;
        }
    }

    /// The window has opened again: the rate that the closed one has brought is where to go on from (src: jrms).
    fn on_opened(&mut self, now: Time) {
        let Some(since) = self.closed.take() else { return };
        if self.slow_start {
            self.pause_probe();
        } else {
            self.forget(self.part_of(now));
            self.rate = self.average(now).min(self.rate_max);
            self.consider_restart();
        }
        if self.slow_start && now.since(since) >= CLOSED_INTERVAL {
            self.ceiling = self.ceiling.max(STOOD_SHARE * self.proven);
        }
    }

    /// Bytes per second that were achieved over the averaging time, or where that is less since the beginning or since
    /// slow start reached its ceiling: over all of the time the average would be far too low when slow start ends.
    fn average(&self, now: Time) -> f64 {
        let Some(began) = self.began else { return self.rate_min };
        let first = self.risen.map_or(0, |risen| risen.0);
        let before = self.sent.iter().take_while(|(part, _)| *part < first);
        let bytes = self.sent_lately.all - before.map(|(_, sent)| sent.all).sum::<u64>();
        let since = Time::ZERO + Duration::from_nanos(self.part.as_nanos() * first);
        self.per_second(now, began.max(since), bytes)
    }

    fn part_of(&self, now: Time) -> u64 {
        now.as_nanos() / self.part.as_nanos().max(1)
    }

    fn per_second(&self, now: Time, since: Time, bytes: u64) -> f64 {
        let whole = self.part * u64::from(PARTS);
        let over = now.since(since).max(self.part).min(whole);
        bytes as f64 / over.as_secs_f64()
    }

    fn forget(&mut self, part: u64) {
        let old = |first: &&(u64, Sent)| first.0 + u64::from(PARTS) <= part;
        while let Some((_, Sent { all, new, acknowledged })) = self.sent.front().filter(old) {
            self.sent_lately.all -= all;
            self.sent_lately.new -= new;
            self.sent_lately.acknowledged -= acknowledged;
            self.sent.pop_front();
        }
    }
}

impl Controller for RateControl {
    fn renew(&mut self, settings: &TramSettings) {
        *self = Self::new(settings);
    }

    fn permit(&mut self, cx: &mut Cx<'_>, window: Window, _len: u32, repair: bool) -> Permit {
        self.permit_at(cx.now, window, repair)
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, packet: Leaving, _announce: &mut Vec<u8>) -> Option<u8> {
        let Leaving { sequence, len, repair, window } = packet;
        self.latest = self.latest.max(sequence);
        if repair {
            self.on_repair_sent(cx.now, window, len);
        } else if self.on_new_sent(cx.now, window, len) {
            cx.emit(Event::Rate { bits_per_s: (self.rate * 8.0) as u64 });
        }
        None
    }

    fn on_progress(&mut self, cx: &mut Cx<'_>, progress: Progress) {
        let Progress { bytes, congested, highest, allowed, flight, .. } = progress;
        self.on_acknowledged(cx.now, bytes);
        self.allowed = allowed;
        let window_milli = allowed.saturating_mul(1000);
        if core::mem::replace(&mut self.told_window, window_milli) != window_milli {
            cx.emit(Event::Window { window_milli, flight });
        }
        if congested {
            match highest >= self.recovery_point {
                true => self.on_congestion(cx.now),
                false => self.note_congestion(),
            }
            cx.emit(Event::Cut { reason: CutReason::Loss, window_milli: 0 });
        }
    }

    fn on_closed(&mut self, now: Time) {
        let goes_on = self.slow_start && self.probe.as_mut().is_some_and(Probe::on_closed);
        if !goes_on {
            self.end_slow_start(now);
        }
    }

    fn on_open(&mut self, now: Time) {
        self.on_opened(now);
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.pause_probe();
    }

    fn bits_per_s(&self) -> f64 {
        self.repair_rate() * 8.0
    }

    fn set_limit(&mut self, _now: Time, limit: Option<Bitrate>) {
        let limit = limit.map_or(f64::INFINITY, |limit| limit.bits_per_s() as f64 / 8.0);
        self.rate_max = self.rate_bound.min(limit).max(self.rate_min);
        self.rate = self.rate.min(self.rate_max);
    }

    fn below_min_since(&mut self, now: Time) -> Option<Time> {
        self.forget(self.part_of(now));
        // Repairs do not count: to somebody hopeless they may be more than the least rate.
        let is_below = self.began.is_some_and(|began| {
            self.per_second(now, began, self.sent_lately.new) <= self.rate_min
        });
        self.below_min_since = is_below.then(|| self.below_min_since.unwrap_or(now));
        self.below_min_since
    }
}

#[cfg(test)]
mod tests;
