//! AIMD on the worst receiver's loss: each round the sender hears how much is lost at worst. It
//! adds a step to its rate, and takes off a share that grows with that loss.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Cx, Duration, NodeId, Seq, Time, math};

use crate::congestion::{
    Arrival, Audience, Carrier, Floor, Gauges, Guarantees, Pace, Permit, ReceiverFeedback, Scheme,
    SenderControl, Wire,
};
use crate::options::{OptionSpec, Options};
use crate::settings::settings;

#[cfg(test)]
mod tests;

/// Name of the scheme, and constructors of its halves.
#[derive(Debug)]
pub struct AimdScheme;

settings! {
    /// Its settings.
    pub struct AimdConfig;
    /// Step that each round adds
    step: Bitrate [1 bit, 1 Gbit] = 50 kbit;
}

/// Length of a round.
const ROUND: Duration = Duration::from_millis(500);
/// Where a session starts, in bits per second; until much is lost each round doubles it.
const START: f64 = 100e3;
/// Least loss that ends the start: a packet lost by chance is less, a full queue is more.
const START_LOSS: f64 = 0.05;
/// As fast as it ever gets, in bits per second.
const MAX: f64 = 10e9;
/// Percent that each round takes off the rate for each percent of loss; half of the rate at most.
const CUT: f64 = 8.0;

impl Scheme for AimdScheme {
    const NAME: &'static str = "aimd";
    const ABOUT: &'static str = "a rate that grows by steps and shrinks with the worst loss";
    const OPTIONS: &'static [OptionSpec] = AimdConfig::OPTIONS;
    const GUARANTEES: Guarantees = Guarantees {
        // 40 halvings bring any rate to the floor.
        floor: |_| Some(Floor { after: ROUND * 40, every: Duration::from_secs(1), burst: 1 }),
        // What false losses have taken off comes back at 100 kbit/s each second.
        recovery: Duration::from_secs(20),
        // Each receiver speaks once a round, where none is louder; the rest is the transport's.
        reports_max: |options, load| {
            let rounds = load.lasted.as_nanos() / ROUND.as_nanos() + 1;
            rounds * load.receivers + load.naks_max(options)
        },
    };
    type Control = AimdSender;
    type Feedback = AimdReceiver;

    fn control(options: &Options) -> AimdSender {
        let step = AimdConfig::from_options(options).step.bits_per_s() as f64;
        let pace = Pace::new(START, Duration::from_millis(4));
        let (heard, growing) = (Loss { of: 0, loss: 0 }, true);
        AimdSender { step, pace, heard, ends: None, floor: START, idle: false, growing }
    }

    fn feedback(_: &Options, node: NodeId) -> AimdReceiver {
        AimdReceiver { mine: Loss { of: node.0, loss: 1 }, ..AimdReceiver::default() }
    }
}

/// Announcement on data packets, and the report that comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// On data packets the number of the round, in reports the receiver's.
    pub of: u32,
    /// 0 where nobody has spoken, 1 for no loss, 65535 for all: no value is absurd.
    pub loss: u16,
}

impl Wire for Loss {
    const OPTION: u8 = 0x40;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.of.to_be_bytes());
        out.extend_from_slice(&self.loss.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (of, loss) = bytes.split_first_chunk()?;
        Some(Self { of: u32::from_be_bytes(*of), loss: u16::from_be_bytes(loss.try_into().ok()?) })
    }
}

/// The sender's half: a rate, and what was heard in this round.
#[derive(Debug)]
pub struct AimdSender {
    step: f64,
    pace: Pace,
    heard: Loss,
    ends: Option<Time>,
    floor: f64,
    idle: bool,
    growing: bool,
}

impl SenderControl for AimdSender {
    type Announce = Loss;
    type Report = Loss;

    fn permit(&mut self, cx: &mut Cx<'_>, _len: u32, _repair: bool) -> Permit {
        self.pace.permit(cx.now)
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, _seq: Seq, len: u32) -> Loss {
        self.pace.spend(cx.now, len);
        self.ends.get_or_insert(cx.now + ROUND);
        // A packet a second, since only packets bring reports.
        self.floor = 8.0 * f64::from(len);
        self.heard
    }

    fn on_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: Carrier, report: &Loss) {
        self.heard.loss = self.heard.loss.max(report.loss);
    }

    fn on_idle(&mut self, _: &mut Cx<'_>) {
        self.idle = true;
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.ends.is_none_or(|ends| cx.now < ends) {
            return;
        }
        let before = self.pace.bits_per_s();
        let share = f64::from(self.heard.loss.saturating_sub(1)) / 65534.0;
        self.growing &= share < START_LOSS;
        let after = match self.heard.loss {
            0 if !self.idle => before / 2.0,
            // A rate that was not used is not known to fit.
            0 | 1 if self.idle => before,
            _ if self.growing && !self.idle => before * 2.0,
            _ => before * (1.0 - CUT * share).max(0.5) + self.step,
        };
        self.pace.set(cx.now, after.clamp(self.floor, MAX));
        self.heard = Loss { of: self.heard.of.wrapping_add(1), loss: 0 };
        (self.idle, self.ends) = (false, Some(cx.now + ROUND));
    }

    fn next_timeout(&self) -> Option<Time> {
        self.ends
    }

    fn gauges(&self) -> Gauges {
        Gauges { rate_bits_per_s: Some(self.pace.bits_per_s()), ..Gauges::default() }
    }
}

/// The receiver's half: what came, what did not, and when to say so.
#[derive(Debug, Default)]
pub struct AimdReceiver {
    mine: Loss,
    round: Option<(u32, Time)>,
    /// Packets of this round that came, and that were found missing.
    counted: (f64, f64),
    speak_at: Option<Time>,
}

impl ReceiverFeedback for AimdReceiver {
    type Announce = Loss;
    type Report = Loss;

    fn on_data(&mut self, cx: &mut Cx<'_>, _: &Arrival, heard: Option<&Loss>) {
        self.counted.0 += 1.0;
        let Some(heard) = heard else { return };
        match self.round {
            Some((of, _)) if of == heard.of => {}
            // A late packet of the last round changes nothing; a forged number costs one round.
            Some((_, at)) if cx.now < at + ROUND / 2 => return,
            _ => {
                self.round = Some((heard.of, cx.now));
                // The loss of the last round alone: the sender has paid for older losses.
                let (came, missing) = core::mem::take(&mut self.counted);
                self.mine.loss = 1 + (65534.0 * missing / (came + missing)) as u16;
                // Most wait until nearly half of the round is over, and hear of the first few.
                let wait = 1.0 + math::ln(1.0 - cx.rng.unit()) / math::ln(10_000.0);
                self.speak_at = Some(cx.now + ROUND.mul_f64(0.5 * wait.max(0.0)));
            }
        }
        self.speak_at = self.speak_at.filter(|_| heard.loss < self.mine.loss);
    }

    fn on_missing(&mut self, _: &mut Cx<'_>, first: Seq, last: Seq) {
        self.counted.1 += 1.0 + f64::from(last.distance(first).clamp(0, 1000));
    }

    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, Loss)> {
        self.speak_at.take_if(|at| *at <= cx.now).map(|_| (Audience::SenderNak, self.mine))
    }

    fn on_timeout(&mut self, _: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        self.speak_at
    }
}
