//! The settings of pgmcc, and the three profiles that set them together.

use faircast_base::Duration;

use super::Model;
use crate::options::Options;

/// A set of settings that belong together. Each setting can still be changed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// What Seada and Helmy evaluated, with its weaknesses.
    Paper,
    /// The Internet draft as it is written, with its token leak.
    Draft,
    /// The draft with the known problems mended. The default.
    Improved,
}

/// How the stall timeout is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutMode {
    /// A fixed value after the latest acknowledgement (src: seada-helmy s4.1).
    Fixed,
    /// As TCP's retransmission timeout (src: RFC 6298).
    Tcp,
    /// As `Tcp`, restarted only by acknowledgements that show no hole: the letter of
    /// seada-helmy s4.1.
    Reno,
    /// As `Tcp`, restarted only when the first missing packet changes, as TCP Reno's is by its
    /// cumulative acknowledgements: the other reading of "as close as possible to TCP Reno"
    /// (src: seada-helmy s4.1).
    Cumulative,
}

/// How the window turns into permission to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// Tokens exactly as the draft moves them; each unrepaired loss leaks one.
    Tokens,
    /// Tokens that are set right at each loss, when the window is also cut down to what is in
    /// flight: how Seada and Helmy describe the original code.
    Realign,
    /// The packets in flight are counted; there are no tokens to lose.
    Flight,
}

/// Which packets an acker's bitmap may acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapScope {
    /// All that it covers.
    All,
    /// Only those that named it, as if each acknowledgement stood for packets of its own.
    Own,
}

/// Which losses are answered by a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossEpoch {
    /// All that are found once feedback for the next packet after the last cut has come.
    Feedback,
    /// Those of packets sent after the last cut.
    Sent,
}

/// How a receiver smooths its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossEstimator {
    /// A low-pass filter over packets.
    Ewma,
    /// The weighted mean of the last loss intervals, as TFMCC has it.
    LossIntervals,
}

/// Where the round trips in the model come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttMethod {
    /// Echoed timestamps, made finer by the sender's own record where it can be.
    Timestamp,
    /// The number of packets sent during the round trip.
    Sequence,
}

/// How far the window opens exponentially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStart {
    /// Up to a fixed threshold (src: pgmcc-draft s2.2).
    Limited,
    /// At first until a loss, or until the round trip has grown (src: RFC 9406 s4.2); after a stall up
    /// to half of the window before (src: RFC 5681 s3.1).
    Open,
}

/// How receivers answer a call for an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionReply {
    /// With a positive acknowledgement, as OpenPGM does.
    Ack,
    /// With a NAK that asks for no repair, as the draft has it.
    Nak,
}

/// All settings of pgmcc. `docs/schemes/pgmcc.md` says where each value comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PgmccConfig {
    /// How the stall timeout is computed.
    pub timeout_mode: TimeoutMode,
    /// The fixed timeout, and the one before there are samples.
    pub timeout: Duration,
    /// The least adaptive timeout.
    pub timeout_min: Duration,
    /// The greatest timeout, backed off or not.
    pub timeout_max: Duration,
    /// Whether an acker's successor starts with a fresh estimate.
    pub timeout_restart: bool,
    /// Whether the stall timer starts anew when the window is cut for a loss, as TCP Reno's does when it
    /// retransmits fast.
    pub timeout_after_cut: bool,
    /// Expiries in a row after which the acker is dropped; at least 1.
    pub retry_max: u32,
    /// Whether a dropped acker may not come back at once.
    pub blacklist: bool,
    /// The throughput model that compares receivers.
    pub model: Model,
    /// Another receiver becomes the acker where its throughput is below this share of the acker's.
    /// In (0, 1].
    pub acker_bias: f64,
    /// Round trips of the new acker for which it stays, unless another is far slower; 0 for none.
    pub holding_time: f64,
    /// How much slower that other must be.
    pub holding_factor: f64,
    /// Whether a receiver is compared with the acker only once the acker has reported on the same
    /// packets.
    pub compare_alike: bool,
    /// Where round trips in the model come from.
    pub rtt_method: RttMethod,
    /// Weight of a new round trip sample in the model; in (0, 1].
    pub rtt_gain: f64,
    /// Window up to which each acknowledged packet adds one; at least 1.
    pub slow_start_threshold: f64,
    /// How far the window opens exponentially.
    pub slow_start: SlowStart,
    /// The greatest window in packets.
    pub window_max: f64,
    /// Later packets that must have arrived before one is taken for lost; at least 1.
    pub loss_threshold: u32,
    /// How the window turns into permission to send.
    pub accounting: Accounting,
    /// Whether repairs take room in the window for a round trip.
    pub charge_repairs: bool,
    /// Whether repairs name the acker too, so that it acknowledges them at once.
    pub ack_repairs: bool,
    /// Whether the window stands still while the application, or a ceiling, does not fill it.
    pub window_validation: bool,
    /// Whether the window is spread over the round trip.
    pub spread: bool,
    /// Whether a former acker's acknowledgements count for the packets that named it.
    pub ack_history: bool,
    /// Which packets an acker's bitmap may acknowledge.
    pub bitmap_scope: BitmapScope,
    /// Whether only the bitmap of the receiver that a packet named, or one that must have seen it,
    /// may declare the packet lost.
    pub designated_loss: bool,
    /// Which losses are answered by a cut.
    pub loss_epoch: LossEpoch,
    /// Whether a switch of ackers closes the account of earlier losses.
    pub switch_recover: bool,
    /// Whether packets that named a former acker leave flight after two round trips.
    pub switch_ageing: bool,
    /// Whether an acker whose reports contradict its acknowledgements is dropped.
    pub lie_check: bool,
    /// How receivers smooth loss.
    pub loss_estimator: LossEstimator,
    /// Weight of one packet in the low-pass filter; in (0, 1].
    pub loss_gain: f64,
    /// Losses within this span are one event for the loss intervals.
    pub loss_event_time: Duration,
    /// Later packets that must have arrived before a receiver counts one as lost; at least 1.
    pub reorder_tolerance: u32,
    /// Data packets handled in one moment that an acker acknowledges together; 1 to 16.
    pub ack_every: u32,
    /// How receivers answer a call for an election.
    pub election_reply: ElectionReply,
    /// The longest wait before that answer.
    pub election_backoff: Duration,
    /// Whether a receiver that overhears reports of far smaller loss speaks up with its own.
    pub speak_up: bool,
}

impl Default for PgmccConfig {
    fn default() -> Self {
        Self::profile(Profile::Improved)
    }
}

impl PgmccConfig {
    /// The settings of a profile.
    pub fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Improved => Self::improved(),
            Profile::Draft => Self::draft(),
            Profile::Paper => Self::paper(),
        }
    }

    /// Every problem of docs/schemes/pgmcc.md mended.
    fn improved() -> Self {
        Self {
            timeout_mode: TimeoutMode::Tcp,
            timeout: Duration::from_secs(3), // src: pgmcc-draft s2.7
            timeout_min: Duration::from_millis(200),
            timeout_max: Duration::from_secs(60), // src: RFC 6298 s2.4
            timeout_restart: true,
            // No source has it; see `TimeoutMode::Reno`.
            timeout_after_cut: false,
            retry_max: 2, // src: pgmcc-draft s2.7
            blacklist: true,
            model: Model::Full,
            acker_bias: 0.75, // src: pgmcc-draft s2.3
            holding_time: 1.0,
            holding_factor: 4.0,
            compare_alike: true,
            rtt_method: RttMethod::Timestamp,
            rtt_gain: 0.125,
            // Six of the first publication rather than four of the draft: after each timeout TCP
            // returns exponentially to half its window, so the higher published value is nearer
            // to TCP, and it is below the ten packets that TCP may now start with (RFC 6928).
            slow_start_threshold: 6.0,
            slow_start: SlowStart::Open,
            window_max: 10_000.0,
            loss_threshold: 3, // src: pgmcc-draft s2.2
            accounting: Accounting::Flight,
            charge_repairs: true,
            ack_repairs: false,
            window_validation: true,
            spread: true,
            ack_history: true,
            bitmap_scope: BitmapScope::All,
            designated_loss: true,
            loss_epoch: LossEpoch::Sent,
            switch_recover: true,
            switch_ageing: true,
            lie_check: true,
            // The filter jumps by 0.8 % at each loss and forgets it within some hundred packets, so
            // among many receivers with independent losses the last one to lose always looks
            // slowest: among 1000 with 0.1 % the acker changed 23 times a second. The draft allows
            // TFMCC's estimator (src: pgmcc-draft s2.6).
            loss_estimator: LossEstimator::LossIntervals,
            loss_gain: 500.0 / 65536.0, // src: pgmcc-draft s2.6, its misprint read right
            // Receivers do not know their round trip, which would be the span of an event. A long span
            // hides how much they lose where packets are many; this one joins bursts only.
            loss_event_time: Duration::from_millis(10),
            reorder_tolerance: 3,
            // The kernel hands over dozens of packets at a time, and one acknowledgement for some of
            // them costs less; each is told four times by the bitmaps of 32 packets, so that one may
            // be lost.
            ack_every: 8,
            election_reply: ElectionReply::Ack,
            election_backoff: Duration::from_millis(50), // src: openpgm samples
            speak_up: true,
        }
    }

    /// The draft by the letter.
    fn draft() -> Self {
        Self {
            blacklist: false,
            holding_time: 0.0,
            compare_alike: false,
            rtt_gain: 1.0,
            slow_start_threshold: 4.0, // src: pgmcc-draft s2.2
            slow_start: SlowStart::Limited,
            accounting: Accounting::Tokens,
            charge_repairs: false,
            window_validation: false,
            spread: false,
            ack_history: false,
            designated_loss: false,
            loss_epoch: LossEpoch::Feedback,
            switch_recover: false,
            switch_ageing: false,
            lie_check: false,
            loss_estimator: LossEstimator::Ewma,
            reorder_tolerance: 1,
            ack_every: 1,
            speak_up: false,
            ..Self::improved()
        }
    }

    /// What Seada and Helmy ran; where they are silent, what their descriptions imply.
    fn paper() -> Self {
        Self {
            timeout_mode: TimeoutMode::Fixed,
            timeout: Duration::from_secs(4), // src: seada-helmy s4.1
            // Of use with an adaptive timeout only, which is to be "as close as possible to TCP
            // Reno" there: TCP's own minimum (src: RFC 6298 s2.4).
            timeout_min: Duration::from_secs(1),
            model: Model::Simple, // src: seada-helmy s2.2
            acker_bias: 0.6666,   // src: seada-helmy s4.4: 2/3
            rtt_method: RttMethod::Sequence,
            slow_start_threshold: 6.0,
            accounting: Accounting::Realign, // src: seada-helmy s4.4
            // By inference: OpenPGM's repairs repeat the option, and only if they are acknowledged can
            // a timer that waits for a complete bitmap be "as close as possible to TCP Reno"
            // (src: seada-helmy s4.1).
            ack_repairs: true,
            // src: seada-helmy s4.4, by inference: acknowledgements count whoever is acker by then,
            // the sender does not know whom a packet was meant for, and bitmaps do not tell it.
            ack_history: true,
            bitmap_scope: BitmapScope::Own,
            // src: seada-helmy s4.1, by inference: "similar to TCP SACK in handling ACKs and
            // losses", which cuts once for all losses of a window.
            loss_epoch: LossEpoch::Sent,
            ..Self::draft()
        }
    }

    /// The settings that `options`, checked against [`OPTIONS`](super::OPTIONS), ask for.
    pub fn from_options(options: &Options) -> Self {
        let profile = match options.text("profile") {
            Some("paper") => Profile::Paper,
            Some("draft") => Profile::Draft,
            _ => Profile::Improved,
        };
        let mut config = Self::profile(profile);
        config.apply_sender(options);
        config.apply_switching(options);
        config.apply_receiver(options);
        config
    }

    fn apply_sender(&mut self, options: &Options) {
        if let Some(word) = options.text("timeout_mode") {
            self.timeout_mode = match word {
                "fixed" => TimeoutMode::Fixed,
                "reno" => TimeoutMode::Reno,
                "cumulative" => TimeoutMode::Cumulative,
                _ => TimeoutMode::Tcp,
            };
        }
        if let Some(word) = options.text("accounting") {
            self.accounting = match word {
                "tokens" => Accounting::Tokens,
                "realign" => Accounting::Realign,
                _ => Accounting::Flight,
            };
        }
        if let Some(word) = options.text("slow_start") {
            self.slow_start = if word == "limited" { SlowStart::Limited } else { SlowStart::Open };
        }
        set(&mut self.timeout, options.duration("timeout"));
        set(&mut self.timeout_min, options.duration("timeout_min"));
        set(&mut self.timeout_max, options.duration("timeout_max"));
        set(&mut self.timeout_after_cut, options.bool("timeout_after_cut"));
        set(&mut self.retry_max, whole(options, "retry_max"));
        set(&mut self.blacklist, options.bool("blacklist"));
        set(&mut self.slow_start_threshold, options.float("slow_start_threshold"));
        set(&mut self.window_max, options.float("window_max"));
        set(&mut self.loss_threshold, whole(options, "loss_threshold"));
        set(&mut self.charge_repairs, options.bool("charge_repairs"));
        set(&mut self.ack_repairs, options.bool("ack_repairs"));
        set(&mut self.window_validation, options.bool("window_validation"));
        set(&mut self.lie_check, options.bool("lie_check"));
        set(&mut self.spread, options.bool("spread"));
    }

    fn apply_switching(&mut self, options: &Options) {
        if let Some(word) = options.text("model") {
            self.model = if word == "simple" { Model::Simple } else { Model::Full };
        }
        if let Some(word) = options.text("rtt_method") {
            self.rtt_method =
                if word == "sequence" { RttMethod::Sequence } else { RttMethod::Timestamp };
        }
        if let Some(word) = options.text("bitmap_scope") {
            self.bitmap_scope = if word == "own" { BitmapScope::Own } else { BitmapScope::All };
        }
        if let Some(word) = options.text("loss_epoch") {
            self.loss_epoch =
                if word == "feedback" { LossEpoch::Feedback } else { LossEpoch::Sent };
        }
        set(&mut self.acker_bias, options.float("acker_bias"));
        set(&mut self.compare_alike, options.bool("compare_alike"));
        set(&mut self.holding_time, options.float("holding_time"));
        set(&mut self.holding_factor, options.float("holding_factor"));
        set(&mut self.rtt_gain, options.float("rtt_gain"));
        set(&mut self.timeout_restart, options.bool("timeout_restart"));
        set(&mut self.ack_history, options.bool("ack_history"));
        set(&mut self.designated_loss, options.bool("designated_loss"));
        set(&mut self.switch_recover, options.bool("switch_recover"));
        set(&mut self.switch_ageing, options.bool("switch_ageing"));
    }

    fn apply_receiver(&mut self, options: &Options) {
        if let Some(word) = options.text("loss_estimator") {
            self.loss_estimator = match word {
                "loss-intervals" => LossEstimator::LossIntervals,
                _ => LossEstimator::Ewma,
            };
        }
        if let Some(word) = options.text("election_reply") {
            self.election_reply =
                if word == "nak" { ElectionReply::Nak } else { ElectionReply::Ack };
        }
        set(&mut self.loss_gain, options.float("loss_gain"));
        set(&mut self.loss_event_time, options.duration("loss_event_time"));
        set(&mut self.reorder_tolerance, whole(options, "reorder_tolerance"));
        set(&mut self.ack_every, whole(options, "ack_every"));
        set(&mut self.election_backoff, options.duration("election_backoff"));
        set(&mut self.speak_up, options.bool("speak_up"));
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn whole(options: &Options, key: &str) -> Option<u32> {
    options.integer(key).and_then(|x| u32::try_from(x).ok())
}
