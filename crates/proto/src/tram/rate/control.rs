//! TRAM's own control of the source's rate: slow start, steady state and the closed window.

use alloc::vec::Vec;

use faircast_base::{Bitrate, CutReason, Cx, Event, Time};

use super::pacer::Pacer;
use super::slow_start::{Reached, SlowStart};
use super::throughput::Throughput;
use super::{CLOSED_INTERVAL, Controller, Progress, SentPacket, Window};
use crate::congestion::Permit;
use crate::tram::settings::{RateRule, TramSettings};

/// Least increment of the rate, and growth of the increment with each packet of slow start, r, in
/// bytes per second (src: tram s3.4).
const RATE_INCREMENT: f64 = 2500.0;
const RATE_INCREMENT_GROWTH: f64 = 1000.0;

/// Increment of the rate in steady state, as a share of the average rate (src: tram s3.4).
const RATE_INCREASE: f64 = 0.15;

/// Bound of the rate, as a multiple of the average, while windows are larger than M allows; chosen.
const LOSSLESS_GROWTH: f64 = 1.5;

/// Share of the former rate that slow start reaches after a closure of a second or more, as CUBIC's
/// after a loss (src: RFC 9438 s4.6).
const CLOSED_SHARE: f64 = 0.7;

/// Schedule of a source's packets (src: tram s3.4, s3.5). Rates are in payload bytes per second.
#[derive(Debug, Default)]
pub(crate) struct RateControl {
    /// Rate R, and its next increment dR.
    rate: f64,
    increment: f64,
    rate_min: f64,
    /// Greatest rate now: by the settings, and by a limit of the application.
    rate_max: f64,
    settings_max: f64,
    rule: RateRule,
    slow_start: SlowStart,
    throughput: Throughput,
    windows: WindowMean,
    recovery: Recovery,
    closed_at: Option<Time>,
    /// Packets allowed beyond those that all have: above `lossless_from` only long after a loss.
    allowed_packets: u64,
    lossless_from: u64,
    pacer: Pacer,
    below_min_since: Option<Time>,
    /// Window of the latest trace event, in thousandths of a packet.
    traced_window: u64,
}

/// Mean window of the last W_a packets, by which the window counts as opening or closing.
#[derive(Debug, Default)]
struct WindowMean {
    ack_window: f64,
    /// Width from which a window counts as opening: (M - 1) W_a.
    open_width: f64,
    /// Start of the present W_a packets, their number so far, and the sum of their windows.
    began_at: Time,
    packets: f64,
    sum: f64,
    previous: f64,
    /// True if the window was closed since the last W_a packets began.
    was_closed: bool,
}

impl WindowMean {
    fn add(&mut self, now: Time, window: Window) {
        if self.packets == 0.0 {
            self.began_at = now;
        }
        self.packets += 1.0;
        self.sum += window as f64;
    }

    /// Ends the W_a packets. Returns their mean window, and true if the window opens.
    fn finish(&mut self) -> (f64, bool) {
        let mean = self.sum / self.packets;
        let opens = mean > self.previous || mean >= self.open_width;
        (self.packets, self.sum, self.previous) = (0.0, 0.0, mean);
        (mean, opens)
    }
}

/// Return to a former rate after a closed window, as after the loss of a head.
#[derive(Debug, Default)]
struct Recovery {
    enabled: bool,
    highest_sent: u64,
    /// Earlier losses than this end of W_a packets have ended the old rate (src: RFC 6582 s3.2).
    recovery_point: u64,
    /// Greatest average rate with an open window. Each failed slow start halves it.
    proven_rate: f64,
    /// Greatest acknowledged rate, averaged over T. Each congestion report halves it.
    acknowledged_peak: f64,
}

impl RateControl {
    pub(crate) fn new(settings: &TramSettings) -> Self {
        let bytes = |bits: Bitrate| bits.bits_per_s() as f64 / 8.0;
        let (min, max) = (bytes(settings.rate_min), bytes(settings.rate_max));
        let max = max.max(min);
        let ack_window = f64::from(settings.ack_window);
        let rate = (min + bytes(settings.rate_initial)).min(max);
        let of_paper = u64::from(settings.window_multiple) * u64::from(settings.ack_window);
        Self {
            rate,
            increment: RATE_INCREMENT,
            rate_min: min,
            rate_max: max,
            settings_max: max,
            rule: settings.rate_rule,
            slow_start: SlowStart::new(max, settings.slow_start_acknowledged),
            throughput: Throughput::new(settings.averaging_time),
            windows: WindowMean {
                ack_window,
                open_width: f64::from(settings.window_multiple - 1) * ack_window,
                ..WindowMean::default()
            },
            recovery: Recovery { enabled: settings.restart, ..Recovery::default() },
            lossless_from: match settings.window_max(settings.ack_window.into()) {
                max if max > of_paper => u64::midpoint(of_paper, max),
                _ => u64::MAX,
            },
            pacer: Pacer::new(settings, rate),
            ..Self::default()
        }
    }

    fn bounded(&self, increment: f64) -> f64 {
        increment.min((self.settings_max - self.rate_min) / 4.0).max(RATE_INCREMENT)
    }

    fn permit_at(&mut self, now: Time, window: Window, repair: bool) -> Permit {
        self.pacer.permit(now, self.scheduled(window, repair))
    }

    /// Returns R_s, at least the packet's length per second: a short one waits for no long one.
    fn scheduled(&self, window: Window, repair: bool) -> f64 {
        let one_per_interval = self.pacer.least_rate();
        if window < 0 && !repair {
            return one_per_interval;
        }
        let (window, min) = (window as f64, self.rate_min);
        let rate = if repair {
            self.repair_rate()
        } else if window >= self.windows.ack_window {
            self.rate
        } else {
            min + window * (self.rate - min) / self.windows.ack_window
        };
        rate.max(one_per_interval)
    }

    /// Returns the rate of repairs: at least half of the acknowledged rate, since members that lack
    /// packets keep the window closed, and R at a packet a second.
    fn repair_rate(&self) -> f64 {
        if self.recovery.enabled {
            self.rate.max(self.recovery.acknowledged_peak / 2.0).min(self.rate_max)
        } else {
            self.rate
        }
    }

    fn count(&mut self, now: Time, window: Window, bytes: u32, repair: bool) {
        if let Some(probe) = &mut self.slow_start.probe {
            probe.on_sent(bytes, self.windows.ack_window);
        }
        self.throughput.on_sent(now, bytes, repair);
        self.pacer.packet_bytes = bytes;
        let rate = self.scheduled(window, repair);
        self.pacer.on_sent(now, rate);
    }

    /// Counts a repair as sent data: else a source that only repairs would see no achieved rate.
    fn on_repair_sent(&mut self, now: Time, window: Window, bytes: u32) {
        self.count(now, window, bytes, true);
        if !self.slow_start.is_active {
            // Repairs use R, which a closed window has reduced to a packet a second.
            self.consider_restart();
        }
        self.grow_in_slow_start(now);
    }

    fn grow_in_slow_start(&mut self, now: Time) {
        if !self.slow_start.may_grow(self.rate) {
            return;
        }
        self.rate += self.increment;
        self.increment = self.bounded(self.increment + RATE_INCREMENT_GROWTH);
        let ceiling = self.slow_start.ceiling;
        if self.rate >= ceiling {
            self.rate = ceiling;
            self.slow_start.is_active = false;
            if ceiling < self.rate_max {
                let bucket = self.throughput.bucket_of(now);
                self.slow_start.reached = Some(Reached { bucket, rate: ceiling });
            }
        }
    }

    fn on_acknowledged(&mut self, now: Time, bytes: u32) {
        let rate = self.throughput.on_acknowledged(now, bytes);
        self.recovery.acknowledged_peak = self.recovery.acknowledged_peak.max(rate);
        let Some(probe) = &mut self.slow_start.probe else { return };
        probe.on_acknowledged(now, bytes.into());
        if self.slow_start.is_active {
            self.rate = self.rate.min(probe.limit().max(self.rate_min));
        }
    }

    /// Counts a new packet at this window. Returns true if the rate was set anew.
    fn on_new_sent(&mut self, now: Time, window: Window, bytes: u32) -> bool {
        self.closed_at = (window < 0).then(|| self.closed_at.unwrap_or(now));
        self.count(now, window, bytes, false);
        self.windows.add(now, window);
        self.grow_in_slow_start(now);
        let windows = &mut self.windows;
        // At a closed window's packet a second, W_a packets take half a minute.
        let creeps = window as f64 >= windows.ack_window
            && windows.was_closed
            && now.since(windows.began_at) >= self.throughput.averaging_time();
        let ends = windows.packets >= windows.ack_window || self.recovery.enabled && creeps;
        windows.was_closed |= self.closed_at.is_some();
        if ends {
            self.end_window(now, window >= 0);
        }
        ends
    }

    fn end_window(&mut self, now: Time, is_open: bool) {
        let (window, opens) = self.windows.finish();
        let average = self.average(now);
        if self.slow_start.is_active {
            return;
        }
        if !is_open {
            self.slow_start.reached = None;
        }
        let increment = self.increment;
        self.rate = match self.rule {
            _ if !(is_open && opens) => average,
            RateRule::Average if self.allowed_packets > self.lossless_from => {
                (self.rate + increment).min(LOSSLESS_GROWTH * average).max(average + increment)
            }
            RateRule::Average => average + increment,
            RateRule::Current => self.rate + increment,
        };
        let reached = self.slow_start.reached.map_or(0.0, |reached| reached.rate);
        self.rate = self.rate.max(reached).min(self.rate_max);
        self.windows.was_closed &= !is_open || window < self.windows.ack_window;
        self.increment = self.bounded(RATE_INCREASE * average);
        if window >= self.windows.ack_window {
            self.recovery.proven_rate = self.recovery.proven_rate.max(average);
        }
        if is_open && window >= self.windows.ack_window / 2.0 {
            self.consider_restart();
        }
    }

    /// Restarts slow start if the rate fell for lack of a window: half of the former rate is tried,
    /// as after TCP's timeout. Half of W_a counts as open: after old losses windows grow slowly.
    fn consider_restart(&mut self) {
        let Recovery { enabled, highest_sent, proven_rate, .. } = self.recovery;
        if !enabled || self.rate >= proven_rate / 2.0 {
            return;
        }
        self.increment = RATE_INCREMENT;
        if highest_sent >= self.recovery.recovery_point {
            self.recovery.recovery_point = highest_sent + self.windows.ack_window as u64;
        }
        self.slow_start.is_active = true;
        self.slow_start.ceiling = (proven_rate / 2.0).max(self.rate_min);
        self.slow_start.probe = None;
    }

    /// Ends slow start. Its rate was not achieved yet: the average or acknowledged rate goes on.
    fn end_slow_start(&mut self, now: Time) {
        self.slow_start.reached = None;
        if core::mem::take(&mut self.slow_start.is_active) {
            let average = self.average(now);
            let acknowledged = self.slow_start.probe.as_ref().and_then(|probe| probe.latest_rate);
            self.rate = average.max(acknowledged.unwrap_or(0.0)).min(self.rate_max);
            // Half at each failed trial, so that a worse path is believed in the end.
            self.recovery.proven_rate = self.rate.max(self.recovery.proven_rate / 2.0);
            self.increment = self.bounded(RATE_INCREASE * average);
        }
    }

    fn on_congestion(&mut self, now: Time, highest: u64) {
        if highest >= self.recovery.recovery_point {
            self.end_slow_start(now);
        }
        self.recovery.acknowledged_peak = self.rate.max(self.recovery.acknowledged_peak / 2.0);
    }

    /// Returns the achieved rate over T, or since slow start reached its ceiling.
    fn average(&self, now: Time) -> f64 {
        let first = self.slow_start.reached.map_or(0, |reached| reached.bucket);
        self.throughput.sent_since(now, first).unwrap_or(self.rate_min)
    }
}

impl Controller for RateControl {
    fn renew(&mut self, settings: &TramSettings) {
        *self = Self::new(settings);
    }

    fn permit(&mut self, cx: &mut Cx<'_>, window: Window, _len: u32, repair: bool) -> Permit {
        self.permit_at(cx.now, window, repair)
    }

    fn on_sent(
        &mut self,
        cx: &mut Cx<'_>,
        packet: SentPacket,
        _announce: &mut Vec<u8>,
    ) -> Option<u8> {
        let SentPacket { sequence, bytes, repair, window } = packet;
        self.recovery.highest_sent = self.recovery.highest_sent.max(sequence);
        if repair {
            self.on_repair_sent(cx.now, window, bytes);
        } else if self.on_new_sent(cx.now, window, bytes) {
            cx.emit(Event::Rate { bits_per_s: (self.rate * 8.0) as u64 });
        }
        None
    }

    fn on_progress(&mut self, cx: &mut Cx<'_>, progress: Progress) {
        let Progress { bytes, congested, highest, allowed, flight, .. } = progress;
        self.on_acknowledged(cx.now, bytes);
        self.allowed_packets = allowed;
        let window_milli = allowed.saturating_mul(1000);
        if core::mem::replace(&mut self.traced_window, window_milli) != window_milli {
            cx.emit(Event::Window { window_milli, flight });
        }
        if congested {
            self.on_congestion(cx.now, highest);
            cx.emit(Event::Cut { reason: CutReason::Loss, window_milli: 0 });
        }
    }

    fn on_closed(&mut self, now: Time) {
        if !self.slow_start.on_closed() {
            self.end_slow_start(now);
        }
    }

    /// Sets the rate after a closed window to the achieved average (src: jrms).
    fn on_open(&mut self, now: Time) {
        let Some(since) = self.closed_at.take() else { return };
        if self.slow_start.is_active {
            self.slow_start.discard_measurement();
        } else {
            self.throughput.expire(now);
            self.rate = self.average(now).min(self.rate_max);
            self.consider_restart();
        }
        if self.slow_start.is_active && now.since(since) >= CLOSED_INTERVAL {
            let ceiling = CLOSED_SHARE * self.recovery.proven_rate;
            self.slow_start.ceiling = self.slow_start.ceiling.max(ceiling);
        }
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.slow_start.discard_measurement();
    }

    fn bits_per_s(&self) -> f64 {
        self.repair_rate() * 8.0
    }

    fn set_limit(&mut self, _now: Time, limit: Option<Bitrate>) {
        let limit = limit.map_or(f64::INFINITY, |limit| limit.bits_per_s() as f64 / 8.0);
        self.rate_max = self.settings_max.min(limit).max(self.rate_min);
        self.rate = self.rate.min(self.rate_max);
    }

    fn below_min_since(&mut self, now: Time) -> Option<Time> {
        self.throughput.expire(now);
        // Repairs do not count: for a hopeless member they may exceed the minimum rate.
        let is_below = self.throughput.new_data(now).is_some_and(|rate| rate <= self.rate_min);
        self.below_min_since = is_below.then(|| self.below_min_since.unwrap_or(now));
        self.below_min_since
    }
}

#[cfg(test)]
mod tests;
