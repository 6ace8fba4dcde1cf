//! Cost-benefit flow control: prices of links, and purses that pay for messages (Amir, Awerbuch,
//! Danilov, Stanton: "Flow control for many-to-many multicast: a cost-benefit approach",
//! CNDS-2001-1, section 4.2).

use faircast_base::{Cx, Duration, Time};
use faircast_proto::settings::{choices, settings};

/// Bytes of a packet, in which queues and messages are counted.
const PACKET_BYTES: usize = 1460;
/// Bytes of messages that one purchase of the fast profile covers.
const BATCH_BYTES: usize = 64 * 1024;
/// Price above which a link's price says no more: what fits into 16 bits of hundredths.
pub(crate) const PRICE_MAX: f64 = 655.35;
/// Clients of a daemon that share the longest salary period, and whose first salaries come within
/// one update. More clients than this share them in proportion: they would start at the price of
/// an empty network, all at once.
const CROWD: f64 = 20.0;
/// Most packets that wait at a price of the savings, as a number of updates at the rate of the link
/// (fast profile; chosen).
const QUEUE_UPDATES: f64 = 6.0;

choices! {
    /// Starting points of flow control.
    pub enum Profile {
        /// Messages have no price.
        Off = "off",
        /// The paper's: each packet of a message is paid for, and queues are counted in messages.
        Paper = "paper",
        /// For fast links: a purchase covers 64 kB of messages, queues are counted in packets of
        /// 1460 bytes against those that the link carries in six updates, and own links have the
        /// price of the moment.
        Fast = "fast",
    }
}

settings! {
    /// Settings of cost-benefit flow control. Prices and purses are in dollars. The paper's
    /// section 4.2 leaves the threshold and the bounds of the period open: they are chosen.
    pub struct FlowControl;
    from profile: Profile = Off, "Settings to start from";
    /// Dollars that a client gets for each salary period
    salary: f64 [0.01, 1e6] = 10.0;
    /// Most dollars that a client keeps, and price of a link whose queue is full
    savings_max: f64 [0.01, 1e6] = 20.0;
    /// Price of a packet over links that are free
    fee: f64 [0.01, 1e6] = 1.0;
    /// Packets of a full queue; with profile = "fast" the least number
    queue_packets: f64 [1.0, 1e6] = 100.0;
    /// Interval at which prices are told
    update: Duration [1 ms, 10 s] = 50 ms;
    /// Price of the dearest message from which on the period of a blocked client doubles
    threshold: f64 [0.01, 1e6] = 10.0;
    /// Least salary period
    period_min: Duration [1 us, 10 s] = 1 ms;
    /// Greatest salary period for 40 clients of a daemon; for more of them in proportion
    period_max: Duration [1 ms, 1000 s] = 1 s;
    /// Whether a client that can pay buys with a probability of one to the price alone
    coin: bool = true;
    by profile:
    /// The profile.
    kind: Profile = Off;
}

impl FlowControl {
    /// Settings of a profile.
    pub fn profile(kind: Profile) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Price of a link whose queue has `packets` on average and is full with `capacity`.
    fn price(&self, packets: f64, capacity: f64) -> f64 {
        let scale = self.savings_max / (core::f64::consts::E - 1.0);
        (scale * libm::expm1(packets / capacity)).min(PRICE_MAX)
    }

    /// Length of a queue in packets.
    pub(crate) fn packets(&self, (messages, bytes): (usize, usize)) -> f64 {
        match self.kind {
            Profile::Off | Profile::Paper => messages as f64,
            Profile::Fast => bytes as f64 / PACKET_BYTES as f64,
        }
    }

    /// Change of a price below which nobody is told.
    pub(crate) fn step(&self) -> f64 {
        self.savings_max / 100.0
    }

    fn crowd(clients: usize) -> f64 {
        clients as f64 / CROWD
    }
}

/// Use of a link's queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    /// Packets times seconds since the last update.
    area: f64,
    /// Bytes that had left at the last update, and a mean of the rate in bytes per second.
    left: u64,
    rate: f64,
}

impl Meter {
    /// Counts a queue that had `packets` for a time.
    pub(crate) fn count(&mut self, packets: f64, time: Duration) {
        self.area += packets * time.as_secs_f64();
    }

    fn capacity(&self, of: &FlowControl) -> f64 {
        let flown = QUEUE_UPDATES * self.rate * of.update.as_secs_f64() / PACKET_BYTES as f64;
        match of.kind {
            Profile::Off | Profile::Paper => of.queue_packets,
            Profile::Fast => of.queue_packets.max(flown),
        }
    }

    /// Price by the mean queue of the time since the last update. `left` counts bytes that have
    /// left the queue, since it began.
    pub(crate) fn update(&mut self, of: &FlowControl, time: Duration, left: u64) -> f64 {
        let seconds = time.as_secs_f64();
        let packets = core::mem::take(&mut self.area) / seconds;
        let rate = left.saturating_sub(core::mem::replace(&mut self.left, left)) as f64 / seconds;
        self.rate += (rate - self.rate) / if rate > self.rate { 1.0 } else { 8.0 };
        of.price(packets, self.capacity(of))
    }

    /// Price by the queue of this moment.
    pub(crate) fn price(&self, of: &FlowControl, packets: f64) -> f64 {
        of.price(packets, self.capacity(of))
    }
}

/// Purse of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purse {
    /// Money; below zero after a message of many packets.
    pub(crate) money: f64,
    period: Duration,
    salary_at: Time,
    /// True if a message was too expensive since the last salary.
    is_blocked: bool,
    /// Price of the dearest message since the last salary.
    dearest: f64,
    /// When a client that was refused is asked again, beside the next salary.
    retry_at: Option<Time>,
    /// Bytes that are paid for and not sent.
    paid_bytes: usize,
    /// Alarm of the client, and since when the client waits.
    pub(crate) alarm: Option<Time>,
    pub(crate) waits_since: Option<Time>,
}

impl Purse {
    /// An empty purse. The first salary comes at random within one update for each 20 clients.
    pub(crate) fn new(cx: &mut Cx<'_>, of: &FlowControl, clients: usize) -> Self {
        let within = of.update.mul_f64(FlowControl::crowd(clients).max(1.0));
        Self { period: of.update, salary_at: cx.now + cx.rng.up_to(within), ..Self::default() }
    }

    /// Pays all salaries that are due. The period follows how a client fared since the last one: a
    /// client that was not blocked keeps the period; otherwise the salary rate grows by one for
    /// each update, or halves where messages were dear. `price` is that of the message that waits.
    fn pay(&mut self, now: Time, of: &FlowControl, (price, clients): (f64, usize)) {
        while self.salary_at <= now {
            let mut count = 1;
            if core::mem::take(&mut self.is_blocked) {
                let dearest = if self.dearest > 0.0 { self.dearest } else { price };
                let (period, update) = (self.period.as_secs_f64(), of.update.as_secs_f64());
                let next = match dearest < of.threshold {
                    true => period * update / (period + update),
                    false => 2.0 * period,
                };
                let longest = of.period_max.mul_f64((FlowControl::crowd(clients) / 2.0).max(1.0));
                let next = Duration::from_secs_f64(next);
                self.period = next.clamp(of.period_min, longest);
                self.retry_at = None;
            } else {
                count += now.since(self.salary_at).as_nanos() / self.period.as_nanos();
            }
            self.dearest = 0.0;
            self.money = (self.money + of.salary * count as f64).min(of.savings_max);
            self.salary_at += self.period * count;
        }
    }

    /// Buys a message at a price for each packet. A message of many packets is sold to a client
    /// that has the price of one: its other messages wait until the rest is paid.
    ///
    /// # Errors
    /// Moment at which the client is to try again, if nothing else ends the wait.
    pub(crate) fn buy(
        &mut self,
        cx: &mut Cx<'_>,
        of: &FlowControl,
        (price, clients): (f64, usize),
        bytes: usize,
    ) -> Result<(), Time> {
        self.pay(cx.now, of, (price, clients));
        let wait = |it: &Self| it.salary_at.min(it.retry_at.unwrap_or(Time::MAX));
        if self.retry_at.is_some_and(|at| at > cx.now) {
            return Err(wait(self));
        }
        let packets = match of.kind {
            Profile::Off | Profile::Paper => bytes.div_ceil(PACKET_BYTES).max(1),
            Profile::Fast => bytes.saturating_sub(self.paid_bytes).div_ceil(BATCH_BYTES),
        };
        if packets > 0 {
            let is_poor = price > self.money;
            // A client that is refused must not toss again at once: the coin would do nothing.
            if is_poor || of.coin && !cx.rng.chance(1.0 / price.max(1.0)) {
                self.is_blocked |= is_poor;
                self.retry_at = Some(cx.now + cx.rng.up_to(of.update.mul_f64(2.0 / 3.0)));
                return Err(wait(self));
            }
            self.money -= price * packets as f64;
            self.dearest = self.dearest.max(price);
        }
        self.retry_at = None;
        if of.kind == Profile::Fast {
            self.paid_bytes = self.paid_bytes + packets * BATCH_BYTES - bytes;
        }
        Ok(())
    }
}
