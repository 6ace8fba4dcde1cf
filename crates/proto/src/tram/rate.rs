//! Rate of the source: slow start, steady state, a closing window, and the sleep between packets.

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

const PARTS: u32 = 50;

/// Units of the coarse clock and of its sleep, in nanoseconds (src: tram s3.5).
const COARSE_NS: u64 = 1_000_000;
const COARSE_SLEEP_NS: u64 = 10_000_000;

/// Schedule of a source's packets (src: tram s3.4, s3.5). Rates are in payload bytes per second.
#[derive(Debug, Default)]
pub(super) struct RateControl {
    slow_start: bool,
    rate: f64,
    step: f64,
    rate_min: f64,
    rate_max: f64,
    /// Greatest rate by the settings, without limits of receivers.
    rate_bound: f64,
    step_max: f64,
    rule: RateRule,
    ack_window: f64,
    /// Width from which a window counts as opening: (M - 1) W_a.
    wide: f64,
    sent: VecDeque<(u64, Sent)>,
    sent_lately: Sent,
    part: Duration,
    began: Option<Time>,
    below_min_since: Option<Time>,
    /// Start of the present W_a packets, their number so far, and the sum of their windows.
    window_began: Time,
    packets: f64,
    windows: f64,
    window_before: f64,
    closed: Option<Time>,
    /// True if the window was closed since the last W_a packets began.
    was_closed: bool,
    restarts: bool,
    /// Latest packet, and the end of the W_a packets after a restart: earlier losses have ended the
    /// old rate (src: RFC 6582 s3.2).
    latest: u64,
    recovery_point: u64,
    proven: f64,
    /// Greatest acknowledged rate, averaged over T; each congestion report halves it. Slow start
    /// overshoots the sent rate.
    sustained: f64,
    ceiling: f64,
    /// Part in which slow start reached its ceiling, and that rate, while the window stays open.
    risen: Option<(u64, f64)>,
    /// Packets allowed beyond those that all have: over `largest` only long after any loss.
    allowed: u64,
    largest: u64,
    /// Measurement of acknowledgements, which bounds slow start; `None` without that bound.
    probe: Option<Probe>,
    pace: Pace,
    /// Bytes of the latest packet, which the pace waits for.
    paced: u32,
    /// Coarse clock: end of the sleep, and the excess of earlier sleeps in nanoseconds.
    coarse: Option<(Time, u64)>,
    told_window: u64,
}

/// Bytes sent in all and as new packets, and bytes that all members acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    all: u64,
    new: u64,
    acknowledged: u64,
}

/// Rate of acknowledgements; slow start goes to at most twice that, else it fills any queue.
#[derive(Debug, Default)]
struct Probe {
    since: Option<(Time, u64)>,
    enough: u64,
    unheard: u64,
    /// Last and best measurement, in bytes per second.
    heard: Option<f64>,
    best: f64,
    /// Best measurement when the window closed last with growth, and the closures since.
    best_before: f64,
    closed: u32,
}

/// Growth of acknowledgements between two closures, and the closures without it that end slow
/// start: a busy machine closes windows too. Values of BBR's startup for a full pipe.
const GROWTH_MIN: f64 = 1.25;
const CLOSED_MAX: u32 = 3;
/// Bound of the rate, as a multiple of the average, while windows are larger than M allows; chosen.
const LOSSLESS_GROWTH: f64 = 1.5;
/// Shortest measurement of acknowledgements; chosen: several times the batches of receivers, 2 ms.
const HEARD_MIN: Duration = Duration::from_millis(10);
/// Share of the former rate that slow start reaches after a closure of a second or more, as CUBIC's
/// after a loss (src: RFC 9438 s4.6).
const STOOD_SHARE: f64 = 0.7;

impl Probe {
    fn on_sent(&mut self, len: u32, ack_window: f64) {
        self.enough = (f64::from(len) * ack_window) as u64;
        self.unheard += u64::from(len);
    }

    fn may_rise(&self, rate: f64) -> bool {
        rate < self.limit() && self.unheard <= self.enough
    }

    fn limit(&self) -> f64 {
        self.heard.map_or(f64::INFINITY, |heard| 2.0 * heard)
    }

    /// Counts a closure of the window. Returns true if the path may still carry more.
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
        // The first acknowledgement only starts the measurement.
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

    /// Returns R_s, at least the packet's length per second: a short one waits for no long one.
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

    /// Returns the rate of repairs: at least half of the acknowledged rate, since members that lack
    /// packets keep the window closed, and R at a packet a second.
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
            // Whole milliseconds, less the excess of earlier sleeps (src: jrms).
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

    /// Counts a repair as sent data: else a source that only repairs would see no achieved rate.
    fn on_repair_sent(&mut self, now: Time, window: Window, len: u32) {
        self.count(now, len, true);
        self.sleep(now, window, len, true);
        if !self.slow_start {
            // Repairs use R, which a closed window has reduced to a packet a second.
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

    fn part_at(&mut self, now: Time, count: impl Fn(&mut Sent)) {
        let part = self.part_of(now);
        if self.sent.back().is_none_or(|last| last.0 != part) {
            self.sent.push_back((part, Sent::default()));
        }
        let of_part = self.sent.back_mut().map(|(_, sent)| sent);
        of_part.into_iter().chain([&mut self.sent_lately]).for_each(count);
        self.forget(part);
    }

    /// Counts a new packet at this window. Returns true if the rate was set anew.
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
        // At a closed window's packet a second, W_a packets take half a minute.
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

    /// Restarts slow start if the rate fell for lack of a window, as after the loss of a head: half
    /// of the former rate is tried, as after TCP's timeout. At a low rate half of W_a counts as
    /// open: after old losses the window grows by only two packets in each W_a.
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

    /// Ends slow start. Its rate was not achieved yet: the average or acknowledged rate goes on.
    fn end_slow_start(&mut self, now: Time) {
        self.risen = None;
        if core::mem::take(&mut self.slow_start) {
            let heard = self.probe.as_ref().and_then(|probe| probe.heard).unwrap_or(0.0);
            self.rate = self.average(now).max(heard).min(self.rate_max);
            // Half at each failed trial, so that a worse path is believed in the end.
            self.proven = self.rate.max(self.proven / 2.0);
            self.step = (RATE_INCREASE * self.average(now)).min(self.step_max).max(RATE_INCREMENT);
        }
    }

    fn on_congestion(&mut self, now: Time) {
        self.end_slow_start(now);
        self.note_congestion();
    }

    fn note_congestion(&mut self) {
        self.sustained = self.rate.max(self.sustained / 2.0);
    }

    /// Discards the measurement in progress: a paused source gets no acknowledgements.
    fn pause_probe(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.since = None;
        }
    }

    /// Sets the rate after a closed window to the achieved average (src: jrms).
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

    /// Returns the achieved bytes per second over the averaging time, or since slow start.
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
        // Repairs do not count: for a hopeless member they may exceed the minimum rate.
        let is_below = self.began.is_some_and(|began| {
            self.per_second(now, began, self.sent_lately.new) <= self.rate_min
        });
        self.below_min_since = is_below.then(|| self.below_min_since.unwrap_or(now));
        self.below_min_since
    }
}

#[cfg(test)]
mod tests;
