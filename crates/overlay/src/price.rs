//! Cost-benefit flow control: prices of links, and purses from which clients pay for messages
//! (Amir, Awerbuch, Danilov, Stanton: "Flow control for many-to-many multicast: a cost-benefit
//! approach", CNDS-2001-1, section 4.2).

use alloc::format;
use alloc::string::String;

use faircast_base::{Cx, Duration, Time};
use faircast_proto::settings::{choices, settings};

/// Packet size in bytes, the unit of queues and messages.
const PACKET_BYTES: usize = 1460;
const BATCH_BYTES: usize = 64 * 1024;
/// Maximum number of purchases of all clients per update (fast profile; chosen). A lost coin toss
/// takes 2 ms with the timer's delay; with shorter purchases one client could not fill a fast link.
const PURCHASES: f64 = 16.0;
/// Highest price of a link: the largest number of hundredths in 16 bits.
const PRICE_MAX: f64 = 655.35;
/// Number of clients of a daemon for which the longest salary period holds. More raise the limit in
/// proportion: otherwise a few would keep short periods while the others double theirs.
const CROWD: f64 = 40.0;
/// Minimum reach, as a share of the largest group. Senders to smaller groups could never buy.
const REACH_MIN: f64 = 0.125;
/// Queue at the price `savings_max`, in updates at the rate of the link (fast profile; chosen).
const QUEUE_UPDATES: f64 = 6.0;

choices! {
    /// Starting points of flow control.
    pub enum PriceProfile {
        /// Messages have no price.
        Off = "off",
        /// Profile of the paper: each packet of a message is paid for, queues count messages.
        Paper = "paper",
        /// Profile for fast links: a purchase covers 64 kB or more, queues are counted in packets
        /// against those that a link carries in six updates, and own links have the current price.
        Fast = "fast",
    }
}

choices! {
    /// Benefit that a daemon weighs against the price of a message.
    pub enum Benefit {
        /// Benefit of 1 per sent packet (section 4.2): long or crowded paths may get little.
        Throughput = "throughput",
        /// Benefit of 1 per receiver of a packet: links cost messages of smaller groups more.
        Receivers = "receivers",
        /// Benefit of 1/x for packet number x (section 4.1): all clients spend alike.
        Concave = "concave",
    }
}

impl Benefit {
    /// All benefits.
    pub const EACH: &[Self] = Self::ALL;

    /// Returns the name in files and on the command line.
    pub fn name(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

settings! {
    /// Settings of cost-benefit flow control. Prices and purses are in dollars. The paper's
    /// section 4.2 leaves the threshold and the bounds of the period open: they are chosen.
    pub struct FlowControl;
    from profile: PriceProfile = Off, "Settings to start from";
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
    /// Benefit of messages whose client chooses none
    benefit: Benefit = Throughput;
    by profile:
    /// The profile.
    kind: PriceProfile = Off;
}

impl FlowControl {
    /// Returns the default settings of a profile.
    pub fn profile(kind: PriceProfile) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Computes the price of a link from its mean queue: exponential, 0 for an empty queue and
    /// `savings_max` for a full one (section 4.2); at most [`PRICE_MAX`].
    fn price(&self, packets: f64, capacity: f64) -> f64 {
        let scale = self.savings_max / (core::f64::consts::E - 1.0);
        (scale * libm::expm1(packets / capacity)).min(PRICE_MAX)
    }

    pub(crate) fn packets(&self, (messages, bytes): (usize, usize)) -> f64 {
        match self.kind {
            PriceProfile::Off | PriceProfile::Paper => messages as f64,
            PriceProfile::Fast => bytes as f64 / PACKET_BYTES as f64,
        }
    }

    pub(crate) fn report_step(&self) -> f64 {
        self.savings_max / 100.0
    }

    /// Returns the price of each packet of a message, from the sum and the maximum of its links'
    /// prices. `reach`: members of the message's groups, as a share of the largest group.
    pub(crate) fn quote(&self, benefit: Benefit, (sum, dearest): (f64, f64), reach: f64) -> Quote {
        let price = self.fee + sum;
        let plain =
            |price| Quote { price, least: price, threshold_price: price, batch: BATCH_BYTES };
        match benefit {
            Benefit::Throughput => plain(price),
            Benefit::Receivers => plain(self.fee + sum / reach.clamp(REACH_MIN, 1.0)),
            Benefit::Concave => {
                let least = price.min(self.savings_max);
                Quote { least, threshold_price: self.fee + dearest, ..plain(price) }
            }
        }
    }

    /// Returns the bytes per purchase of the fast profile. `clients` share `rate` bytes per second.
    pub(crate) fn batch(&self, rate: f64, clients: usize) -> usize {
        let share = rate * self.update.as_secs_f64() / PURCHASES / clients.max(1) as f64;
        (share as usize).max(BATCH_BYTES)
    }

    /// Checks that a purse can ever contain the fee. The error is the wrong option and its range.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        match self.fee <= self.savings_max {
            true => Ok(()),
            false => {
                let (fee, most) = (self.fee, self.savings_max);
                Err(("fee", format!("is {fee}; allowed: at most savings_max, {most}")))
            }
        }
    }

    /// Returns the time within which a new client gets its first salary. Clients that connect
    /// together buy at the price of an empty network for two updates; these packets fill one queue.
    fn first_salary_within(&self, clients: usize) -> Duration {
        let packets = clients as f64 * self.salary / self.fee;
        self.update.mul_f64((2.0 * packets / self.queue_packets).max(1.0))
    }
}

/// Conditions under which a client can buy a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quote {
    /// Dollars per packet.
    pub(crate) price: f64,
    /// Minimum money that the client must have. The rest becomes debt.
    pub(crate) least: f64,
    /// Price for the threshold of the salary period. In the optimum of a concave benefit all
    /// clients spend alike, whatever the number of links (Kelly, Maulloo, Tan: "Rate control for
    /// communication networks", 1998).
    pub(crate) threshold_price: f64,
    /// Bytes of a purchase (fast profile).
    pub(crate) batch: usize,
}

/// Inputs of a message's price: destination daemons, benefit, and the bits of the reach.
pub(crate) type PriceKey = (u128, u8, u64);

/// Amount in millionths of a dollar, the sort key of clients that lack money.
pub(crate) type Money = i64;

/// Meter of a link's queue, whose mean over an update sets the price (section 4.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    /// Integral of the queue since the last update in packet seconds, and its maximum in packets.
    packet_seconds: f64,
    packets_most: f64,
    /// Mean and maximum of the queue in the interval before the last update.
    pub(crate) packets_mean: f64,
    pub(crate) packets_max: f64,
    /// Bytes that had left the queue by the last update, and the smoothed rate in bytes per second.
    left_bytes: u64,
    rate_bytes_per_s: f64,
}

impl Meter {
    pub(crate) fn count(&mut self, packets: f64, time: Duration) {
        self.packet_seconds += packets * time.as_secs_f64();
        self.packets_most = self.packets_most.max(packets);
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate_bytes_per_s
    }

    fn capacity(&self, of: &FlowControl) -> f64 {
        let flown =
            QUEUE_UPDATES * self.rate_bytes_per_s * of.update.as_secs_f64() / PACKET_BYTES as f64;
        match of.kind {
            PriceProfile::Off | PriceProfile::Paper => of.queue_packets,
            PriceProfile::Fast => of.queue_packets.max(flown),
        }
    }

    /// Ends the interval and returns its price. `left`: total bytes that have left the queue.
    pub(crate) fn update(&mut self, of: &FlowControl, time: Duration, left: u64) -> f64 {
        let seconds = time.as_secs_f64();
        self.packets_mean = core::mem::take(&mut self.packet_seconds) / seconds;
        self.packets_max = core::mem::take(&mut self.packets_most);
        let rate =
            left.saturating_sub(core::mem::replace(&mut self.left_bytes, left)) as f64 / seconds;
        self.rate_bytes_per_s +=
            (rate - self.rate_bytes_per_s) / if rate > self.rate_bytes_per_s { 1.0 } else { 8.0 };
        of.price(self.packets_mean, self.capacity(of))
    }

    /// Returns the price, `since` the last update, of the mean queue, or of the present one if
    /// longer than a full one. A queue that empties within each turn of the driver is free.
    pub(crate) fn price(&self, of: &FlowControl, packets: f64, since: Duration) -> f64 {
        let (update, capacity) = (of.update.as_secs_f64(), self.capacity(of));
        let rest = (update - since.as_secs_f64()).max(0.0);
        let mean =
            (self.packet_seconds + self.packets_mean * rest) / update.max(since.as_secs_f64());
        of.price(if packets > capacity { packets } else { mean }, capacity)
    }
}

/// Money of a client, and its salary period (section 4.2.3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purse {
    /// Money in dollars; negative after a message of many packets.
    pub(crate) money: f64,
    /// Salary period, and time of the next salary.
    period: Duration,
    salary_at: Time,
    /// True if a message was too expensive since the last salary.
    is_blocked: bool,
    /// Greatest threshold price of a message bought since the last salary; 0 for none.
    dearest_bought: f64,
    /// Time of the next toss after a lost one.
    retry_at: Option<Time>,
    /// Sort key among the clients that lack money; `None` if the client has enough.
    pub(crate) lacking: Option<(PriceKey, Money)>,
    /// Bytes of the last purchase that no message has used (fast profile).
    paid_bytes: usize,
    /// Time of the client's alarm, and start of the present wait.
    pub(crate) alarm: Option<Time>,
    pub(crate) waits_since: Option<Time>,
    /// Total of earlier waits.
    pub(crate) waited: Duration,
}

impl Purse {
    pub(crate) fn new(cx: &mut Cx<'_>, of: &FlowControl, clients: usize) -> Self {
        let within = of.first_salary_within(clients);
        // The own link's price is always current, so it stops a fast start at once.
        let period = if of.kind == PriceProfile::Fast { of.period_min } else { of.update };
        let salary_at = cx.now + cx.rng.up_to(within.min(period * clients.max(1) as u64));
        Self { period, salary_at, ..Self::default() }
    }

    /// Pays all salaries that are due. An unblocked client keeps its period. For a blocked client
    /// the rate grows by one salary per update, or halves if messages were dear.
    fn pay_salaries(
        &mut self,
        now: Time,
        of: &FlowControl,
        (threshold_price, clients): (f64, usize),
    ) {
        while self.salary_at <= now {
            let mut count = 1;
            if core::mem::take(&mut self.is_blocked) {
                let dearest =
                    if self.dearest_bought > 0.0 { self.dearest_bought } else { threshold_price };
                let (period, update) = (self.period.as_secs_f64(), of.update.as_secs_f64());
                let next = match dearest < of.threshold {
                    true => period * update / (period + update),
                    false => 2.0 * period,
                };
                let next = Duration::from_secs_f64(next);
                let longest = of.period_max.mul_f64((clients as f64 / CROWD).max(1.0));
                self.period = next.min(longest).max(of.period_min);
                self.retry_at = None;
            } else {
                count += now.since(self.salary_at).as_nanos() / self.period.as_nanos();
            }
            self.dearest_bought = 0.0;
            self.money = (self.money + of.salary * count as f64).min(of.savings_max);
            self.salary_at += self.period * count;
        }
    }

    /// Buys a message in competition with `clients`, on debt beyond the price of one packet. The
    /// error is the time of the next attempt; clients that lack money try earlier if prices fall.
    pub(crate) fn buy(
        &mut self,
        cx: &mut Cx<'_>,
        of: &FlowControl,
        (quote, clients): (Quote, usize),
        bytes: usize,
    ) -> Result<(), Time> {
        let Quote { price, least, threshold_price, batch } = quote;
        self.pay_salaries(cx.now, of, (threshold_price, clients));
        let wait = |it: &Self| it.salary_at.min(it.retry_at.unwrap_or(Time::MAX));
        if self.retry_at.is_some_and(|at| at > cx.now) {
            return Err(wait(self));
        }
        self.retry_at = None;
        let packets = match of.kind {
            PriceProfile::Off | PriceProfile::Paper => bytes.div_ceil(PACKET_BYTES).max(1),
            PriceProfile::Fast => bytes.saturating_sub(self.paid_bytes).div_ceil(batch),
        };
        if packets > 0 {
            if least > self.money {
                self.is_blocked = true;
                return Err(wait(self));
            }
            // An immediate second toss would make the coin ineffective.
            if of.coin && !cx.rng.chance(1.0 / threshold_price.max(1.0)) {
                let longest = of.update.mul_f64(2.0 / 3.0);
                let longest = match of.kind {
                    // One update after each lost toss would limit a fast client.
                    PriceProfile::Fast => longest.min(self.period.mul_f64(price / of.salary)),
                    PriceProfile::Off | PriceProfile::Paper => longest,
                };
                self.retry_at = Some(cx.now + cx.rng.up_to(longest));
                return Err(wait(self));
            }
            self.money -= price * packets as f64;
            self.dearest_bought = self.dearest_bought.max(threshold_price);
        }
        if of.kind == PriceProfile::Fast {
            self.paid_bytes = self.paid_bytes + packets * batch - bytes;
        }
        Ok(())
    }

    pub(crate) fn lacks_money(&self) -> bool {
        self.is_blocked && self.retry_at.is_none()
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NodeId, Purpose, Rng};
    use proptest::prelude::*;

    use super::*;

    const PAPER: FlowControl = FlowControl {
        kind: PriceProfile::Paper,
        salary: 10.0,
        savings_max: 20.0,
        fee: 1.0,
        queue_packets: 100.0,
        update: Duration::from_millis(50),
        threshold: 10.0,
        period_min: Duration::from_millis(1),
        period_max: Duration::from_secs(1),
        coin: false,
        benefit: Benefit::Throughput,
    };

    fn at(price: f64) -> Quote {
        Quote { price, least: price, threshold_price: price, batch: BATCH_BYTES }
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn rng() -> Rng {
        Rng::new(1, NodeId(0), Purpose::Machine(0))
    }

    fn purse() -> Purse {
        let update = PAPER.update;
        Purse { money: 10.0, period: update, salary_at: ms(0) + update, ..Purse::default() }
    }

    /// Buys a message after 1 ms, without a coin.
    fn buy(purse: &mut Purse, quote: Quote, bytes: usize) -> Result<(), Time> {
        purse.buy(&mut Cx::untraced(ms(1), &mut rng()), &PAPER, (quote, 1), bytes)
    }

    #[test]
    fn the_constants_are_those_of_the_paper() {
        assert_eq!(FlowControl { coin: false, ..FlowControl::profile(PriceProfile::Paper) }, PAPER);
    }

    #[test]
    fn a_price_is_zero_for_an_empty_queue_and_the_savings_for_a_full_one() {
        let price = |packets| PAPER.price(packets, 100.0);
        assert!(price(0.0) == 0.0 && (price(100.0) - 20.0).abs() < 1e-9);
        assert!((price(50.0) - 20.0 * 0.648_721 / 1.718_282).abs() < 1e-4, "{}", price(50.0));
        assert!((price(200.0) - 74.366).abs() < 1e-2 && price(1e9) == PRICE_MAX);
    }

    #[test]
    fn a_meter_takes_the_mean_over_time() {
        let mut meter = Meter::default();
        meter.count(200.0, Duration::from_millis(10));
        meter.count(50.0, Duration::from_millis(20));
        meter.count(0.0, Duration::from_millis(20));
        let price = meter.update(&PAPER, Duration::from_millis(50), 0);
        assert!((meter.packets_mean - 60.0).abs() < 1e-9 && meter.packets_max == 200.0);
        assert_eq!(price, PAPER.price(60.0, 100.0));
        assert_eq!(meter.update(&PAPER, Duration::from_millis(50), 0), 0.0, "a new interval");
    }

    #[test]
    fn the_queue_of_a_fast_link_may_be_longer() {
        let fast = FlowControl { kind: PriceProfile::Fast, ..PAPER };
        let mut meter = Meter::default();
        for _ in 0..50 {
            meter.count(100.0, fast.update);
            let left = meter.left_bytes + 1_460_000;
            meter.update(&fast, fast.update, left);
        }
        assert!((meter.capacity(&fast) - 6000.0).abs() < 1.0, "{}", meter.capacity(&fast));
        assert_eq!(Meter::default().capacity(&fast), 100.0);
    }

    #[test]
    fn a_purse_buys_at_the_price_until_the_money_is_gone() {
        let mut purse = purse();
        for _ in 0..4 {
            assert_eq!(buy(&mut purse, at(2.5), 1000), Ok(()));
        }
        assert_eq!(buy(&mut purse, at(2.5), 1000), Err(purse.salary_at), "prices may fall before");
        assert!(purse.money == 0.0 && purse.lacks_money());
    }

    /// Source: section 4.2.3. After a salary period the period stays, shrinks or doubles.
    #[test]
    fn the_salary_period_follows_how_the_client_fared() {
        let cases = [
            (Some(2.0), None, 50.0),
            (Some(2.0), Some(15.0), 25.0),
            (Some(10.0), Some(15.0), 100.0),
            (None, Some(11.0), 100.0),
            (None, None, 50.0),
        ];
        for (bought, refused, period_ms) in cases {
            let mut purse = purse();
            bought.iter().for_each(|price| buy(&mut purse, at(*price), 1000).unwrap());
            refused.iter().for_each(|price| _ = buy(&mut purse, at(*price), 1000).unwrap_err());
            let price = refused.or(bought).unwrap_or(1.0);
            purse.pay_salaries(ms(50), &PAPER, (price, 1));
            let found = purse.period.as_secs_f64() * 1e3;
            assert!((found - period_ms).abs() < 1e-6, "{bought:?} {refused:?}: {found}");
            assert!(!purse.is_blocked && purse.dearest_bought == 0.0 && purse.retry_at.is_none());
        }
    }

    #[test]
    fn a_fee_that_nobody_can_save_is_refused() {
        assert_eq!(PAPER.check(), Ok(()));
        let dear = FlowControl { fee: 20.5, ..PAPER };
        let (option, text) = dear.check().unwrap_err();
        assert_eq!((option, &*text), ("fee", "is 20.5; allowed: at most savings_max, 20"));
    }

    #[test]
    fn an_idle_client_saves_no_more_than_the_limit() {
        let mut purse = purse();
        purse.pay_salaries(Time::ZERO + Duration::from_secs(3600), &PAPER, (1.0, 1));
        assert!(purse.money == 20.0 && purse.salary_at > Time::ZERO + Duration::from_secs(3600));
    }

    #[test]
    fn a_long_message_leaves_a_debt() {
        let (mut purse, mut rng) = (purse(), rng());
        buy(&mut purse, at(1.0), 146_000).unwrap();
        assert_eq!(purse.money, -90.0);
        let mut cx = Cx::untraced(ms(449), &mut rng);
        assert!(purse.buy(&mut cx, &PAPER, (at(1.0), 1), 1).is_err());
    }

    #[test]
    fn a_client_that_can_pay_buys_as_often_as_the_coin_says() {
        let (coin, mut rng) = (FlowControl { coin: true, ..PAPER }, rng());
        for price in [1.0, 4.0] {
            let bought = (0..4000).filter(|_| {
                let mut purse = purse();
                let bought =
                    purse.buy(&mut Cx::untraced(ms(1), &mut rng), &coin, (at(price), 1), 1);
                assert!(!purse.is_blocked, "a coin blocks nobody");
                bought.is_ok()
            });
            let share = bought.count() as f64 / 4000.0;
            assert!((share - 1.0 / price).abs() < 0.03, "{price}: {share}");
        }
    }

    #[test]
    fn a_purchase_of_the_fast_profile_covers_a_batch() {
        let (fast, mut rng) = (FlowControl { kind: PriceProfile::Fast, ..PAPER }, rng());
        let (mut purse, mut cx) = (purse(), Cx::untraced(ms(1), &mut rng));
        for _ in 0..64 {
            purse.buy(&mut cx, &fast, (at(3.0), 1), 1024).unwrap();
        }
        assert_eq!((purse.money, purse.paid_bytes), (7.0, 0));
        purse.buy(&mut cx, &fast, (at(3.0), 1), 1).unwrap();
        assert_eq!((purse.money, purse.paid_bytes), (4.0, BATCH_BYTES - 1));
    }

    #[test]
    fn a_client_alone_fills_a_fast_link_though_it_loses_coins_and_timers_are_coarse() {
        let of = FlowControl::profile(PriceProfile::Fast);
        assert_eq!((of.batch(1e6, 1), of.batch(240e6, 400)), (BATCH_BYTES, BATCH_BYTES));
        let (rate, timer) = (240e6, Duration::from_millis(1));
        let quote = Quote { batch: of.batch(rate, 1), ..at(1.25) };
        let mut rng = rng();
        let mut now = ms(0);
        let mut purse = Purse::new(&mut Cx::untraced(now, &mut rng), &of, 1);
        let (end, mut bytes) = (ms(2000), 0.0);
        while now < end {
            match purse.buy(&mut Cx::untraced(now, &mut rng), &of, (quote, 1), 16384) {
                Ok(()) => bytes += 16384.0,
                Err(at) => now = at.max(now) + timer,
            }
        }
        assert!(bytes / 2.0 > rate, "{bytes} bytes in 2 s");
    }

    #[test]
    fn a_benefit_counts_receivers_or_has_long_and_short_paths_spend_alike() {
        let cases = [
            (Benefit::Throughput, 0.5, at(31.0)),
            (Benefit::Receivers, 1.0, at(31.0)),
            (Benefit::Receivers, 0.5, at(61.0)),
            (Benefit::Receivers, 0.01, at(241.0)),
            (Benefit::Concave, 0.5, Quote { least: 20.0, threshold_price: 13.0, ..at(31.0) }),
        ];
        for (benefit, reach, wanted) in cases {
            assert_eq!(PAPER.quote(benefit, (30.0, 12.0), reach), wanted, "{benefit:?} {reach}");
        }
    }

    #[test]
    fn a_path_dearer_than_all_savings_is_bought_on_debt_where_the_benefit_is_concave() {
        let (mut purse, mut rng) = (Purse { money: 20.0, ..purse() }, rng());
        let quote = PAPER.quote(Benefit::Concave, (30.0, 6.0), 1.0);
        assert_eq!(buy(&mut purse, quote, 1000), Ok(()));
        assert_eq!(purse.money, -11.0);
        buy(&mut purse, quote, 1000).unwrap_err();
        let period = purse.period;
        purse.pay_salaries(ms(50), &PAPER, (quote.threshold_price, 1));
        assert!(purse.period < period, "its dearest link is below the threshold");
        // With the benefit of throughput the same path needs more money than `savings_max`.
        let quote = PAPER.quote(Benefit::Throughput, (30.0, 6.0), 1.0);
        purse.money = 20.0;
        purse.buy(&mut Cx::untraced(ms(2000), &mut rng), &PAPER, (quote, 1), 1000).unwrap_err();
    }

    proptest! {
        #[test]
        fn purses_keep_their_bounds(
            steps in prop::collection::vec((0..200u64, 0.0..700.0f64, 0..20_000usize), 1..200),
            kind in prop::sample::select([PriceProfile::Paper, PriceProfile::Fast].as_slice()),
            benefit in prop::sample::select(Benefit::EACH),
            coin: bool,
        ) {
            let (of, mut rng) = (FlowControl { kind, coin, ..PAPER }, rng());
            let (mut purse, mut now) = (purse(), ms(0));
            for (pause, links, bytes) in steps {
                now += Duration::from_millis(pause);
                let (quote, before) = (of.quote(benefit, (links, links / 2.0), 0.5), purse);
                let Quote { price, least, .. } = quote;
                let bought = purse.buy(&mut Cx::untraced(now, &mut rng), &of, (quote, 30), bytes);
                prop_assert!(purse.money <= of.savings_max);
                prop_assert!(purse.period >= of.period_min);
                prop_assert!(purse.period <= of.period_max);
                if let Err(at) = bought {
                    prop_assert!(at > now && at <= now + of.period_max);
                }
                prop_assert!(purse.money >= before.money.min(least) - 14.0 * price);
            }
        }
    }
}
