//! Check of a machine: support for the lab, and accuracy.

use std::fmt::Write as _;
use std::path::Path;

use faircast_base::Event;
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::Observer;
use faircast_trace::{Lateness, Record, Sink};
use serde::Serialize;

use crate::tcp::congestion_controls;
use crate::{LabError, LabOutcome};

const RATES: [f64; 3] = [1e6, 10e6, 100e6];
const FLOOD_BPS: f64 = 4e9;
const PACKET: f64 = 1400.0;
const PACKET_ON_WIRE: f64 = PACKET + 16.0 + 28.0;
const WARM_UP_S: f64 = 0.5;
const TRIED_S: f64 = 2.0;
const RATE_ERROR_MAX: f64 = 0.02;
/// Longest lateness of 99 % of packets in seconds: a packet's time on a link of 12 Mbit/s.
const LATENESS_P99_MAX_S: f64 = 1e-3;
/// Share of the flood's rate that is tested too, which leaves time to be exact.
const FLOOD_SHARE: f64 = 0.5;

/// Capabilities of this machine.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Check {
    pub ready: bool,
    pub problem: Option<String>,
    /// True if the emulator gets real-time priority.
    pub realtime: bool,
    pub congestion_controls: Vec<String>,
    /// Lateness of timers: packets at 1 Mbit/s on an idle processor.
    pub timer: Option<Lateness>,
    pub rates: Vec<RateCheck>,
    /// Most packets per second of the emulator, over two links each.
    pub packets_per_s_max: f64,
    /// Processor time in seconds for each packet over two links.
    pub packet_cost_s: f64,
    /// Highest exact rate of links in bits per second; 0 without any.
    pub good_up_to_bps: f64,
}

/// Result for a link under full load.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RateCheck {
    pub asked_bps: f64,
    /// Carried bits per second, with headers.
    pub achieved_bps: f64,
    pub lateness: Lateness,
    pub exact: bool,
}

/// Measures the capabilities of this machine; takes about 13 s.
pub fn check(observer: &mut dyn Observer) -> Check {
    let mut check = Check { congestion_controls: congestion_controls(), ..Check::default() };
    for asked_bps in RATES {
        match try_rate(asked_bps, observer) {
            Ok((rate, _)) => {
                check.realtime = rate.lateness.realtime;
                check.timer = check.timer.or(Some(rate.lateness));
                check.rates.push(rate);
            }
            Err(error) => {
                check.problem = Some(error.to_string());
                return check;
            }
        }
    }
    check.ready = true;
    if let Err(error) = check.flood(observer) {
        check.problem = Some(error.to_string());
    }
    let exact = check.rates.iter().take_while(|rate| rate.exact).last();
    check.good_up_to_bps = exact.map_or(0.0, |rate| rate.asked_bps);
    check
}

impl Check {
    fn flood(&mut self, observer: &mut dyn Observer) -> Result<(), LabError> {
        let (flood, ran) = try_rate(FLOOD_BPS, observer)?;
        self.packets_per_s_max = flood.achieved_bps / PACKET_ON_WIRE / 8.0;
        self.packet_cost_s = ran.cpu_s / (ran.lateness.packets as f64).max(1.0);
        let more = (flood.achieved_bps * FLOOD_SHARE / 1e7).floor() * 1e7;
        if more > RATES[RATES.len() - 1] {
            self.rates.push(try_rate(more, observer)?.0);
        }
        Ok(())
    }

    /// Returns the check as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a check has no map with keys that JSON lacks")
    }

    /// Returns the check as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(problem) = &self.problem {
            let _ = writeln!(text, "{problem}");
        }
        if !self.ready {
            return text;
        }
        let priority = if self.realtime { "real-time priority" } else { "NO real-time priority" };
        let _ = writeln!(text, "the lab runs here, with {priority}");
        let _ = writeln!(text, "kernel TCP: {}", self.congestion_controls.join(", "));
        if let Some(timer) = self.timer {
            let _ = writeln!(text, "timers: {}", late(&timer));
        }
        for rate in &self.rates {
            let _ = writeln!(
                text,
                "link of {:>4.0} Mbit/s: {:.2} Mbit/s, {}{}",
                rate.asked_bps / 1e6,
                rate.achieved_bps / 1e6,
                late(&rate.lateness),
                if rate.exact { "" } else { ": NOT exact" }
            );
        }
        let _ = writeln!(
            text,
            "at the most {:.0} packets/s; {:.1} us of a processor for each",
            self.packets_per_s_max,
            self.packet_cost_s * 1e6
        );
        let _ = writeln!(text, "good up to {:.0} Mbit/s", self.good_up_to_bps / 1e6);
        text
    }
}

fn late(lateness: &Lateness) -> String {
    let us = |seconds: f64| seconds * 1e6;
    let (mean, p99, max) = (us(lateness.mean_s), us(lateness.p99_s), us(lateness.max_s));
    format!("late by {mean:.0} us on average, 99 % below {p99:.0} us, at most {max:.0} us")
}

type Tried = Result<(RateCheck, LabOutcome), LabError>;

fn try_rate(asked_bps: f64, observer: &mut dyn Observer) -> Tried {
    let text = format!(
        "title = \"How exact is a link?\"\nduration = \"{} s\"\nwarmup = \"{WARM_UP_S} s\"\n\
         [[link]]\nbetween = [\"a\", \"r\"]\nrate = \"10 Gbit/s\"\ndelay = \"0.1 ms\"\n\
         queue = {{ kind = \"droptail\", packets = 20000 }}\n\
         [[link]]\nbetween = [\"r\", \"b\"]\nrate = \"{asked_bps:.0} bit/s\"\n\
         delay = \"5 ms\"\nqueue = {{ kind = \"droptail\", packets = 50 }}\n\
         [[flow]]\nname = \"load\"\nprotocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\n\
         packet = \"{PACKET} B\"\noptions = {{ rate = \"{:.0} bit/s\" }}\n",
        TRIED_S + WARM_UP_S,
        asked_bps * 1.2
    );
    let overrides = Overrides::default();
    let scenario =
        Scenario::parse(Path::new("check.toml"), &text, &overrides, &faircast_sim::catalog())
            .map_err(|error| LabError::Unsuited(error.to_string()))?;
    let mut delivered = Delivered(0);
    let ran = crate::run(&scenario, observer, &mut delivered)?;
    let span_s = (ran.at.as_secs_f64() - WARM_UP_S).max(0.1);
    let achieved_bps = delivered.0 as f64 * PACKET_ON_WIRE * 8.0 / span_s;
    let exact = (achieved_bps / asked_bps - 1.0).abs() <= RATE_ERROR_MAX
        && ran.lateness.p99_s <= LATENESS_P99_MAX_S;
    let rate = RateCheck { asked_bps, achieved_bps, lateness: ran.lateness, exact };
    Ok((rate, ran))
}

/// Packets delivered after the warm-up.
struct Delivered(u64);

impl Sink for Delivered {
    fn record(&mut self, record: &Record) {
        let counts = matches!(record.event, Event::Delivered { .. });
        self.0 += u64::from(counts && record.at.as_secs_f64() >= WARM_UP_S);
    }
}
