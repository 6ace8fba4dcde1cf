//! Tests of the scheme.

use faircast_base::{Purpose, Rng};
use proptest::prelude::*;

use super::*;

/// Carrier of reports that ask for nothing.
const ON_ITS_OWN: Carrier = Carrier::NullNak { latest: Seq::new(0) };

/// A world of one machine: a clock, and chance from a seed.
struct World(Time, Rng);

impl World {
    fn new() -> Self {
        Self(Time::ZERO, Rng::new(1, NodeId(0), Purpose::Machine(0)))
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Cx<'_>) -> R) -> R {
        act(&mut Cx::untraced(self.0, &mut self.1))
    }

    /// A round in which packets of 1000 bytes leave as allowed and this is heard at worst.
    fn round(&mut self, sender: &mut AimdSender, heard: Option<u16>) -> f64 {
        let end = self.0 + ROUND;
        while self.0 < end {
            self.0 = match self.with(|cx| sender.permit(cx, 1000, false)) {
                Permit::Now => {
                    self.with(|cx| sender.on_sent(cx, Seq::new(0), 1000));
                    self.0
                }
                Permit::At(at) => at.min(end),
                Permit::Blocked => unreachable!("a rate is never blocked"),
            };
        }
        if let Some(loss) = heard {
            let report = Loss { of: 1, loss };
            self.with(|cx| sender.on_report(cx, NodeId(1), ON_ITS_OWN, &report));
        }
        self.with(|cx| sender.on_timeout(cx));
        sender.gauges().rate_bits_per_s.unwrap()
    }
}

fn sender() -> AimdSender {
    AimdScheme::control(&Options::default())
}

#[test]
fn the_rate_doubles_then_loses_a_share_and_grows_by_steps() {
    let (mut world, mut sender) = (World::new(), sender());
    assert_eq!(world.round(&mut sender, Some(1)), 200e3);
    assert_eq!(world.round(&mut sender, Some(1)), 400e3);
    // All is lost: half of the rate goes, and a step comes.
    assert_eq!(world.round(&mut sender, Some(65535)), 250e3);
    assert_eq!(world.round(&mut sender, Some(1)), 300e3);
    // 1 % takes 8 %.
    let rate = world.round(&mut sender, Some(656));
    assert!((rate - (300e3 * 0.92 + 50e3)).abs() < 20.0, "{rate}");
}

#[test]
fn silence_halves_the_rate_down_to_a_packet_a_second() {
    let (mut world, mut sender) = (World::new(), sender());
    assert_eq!(world.round(&mut sender, None), 50e3);
    for _ in 0..20 {
        world.round(&mut sender, None);
    }
    assert_eq!(world.round(&mut sender, None), 8000.0);
}

#[test]
fn a_rate_that_is_not_used_does_not_grow() {
    let (mut world, mut sender) = (World::new(), sender());
    world.with(|cx| sender.on_idle(cx));
    assert_eq!(world.round(&mut sender, Some(1)), START);
}

/// Number of receivers with this loss that report, if the worst reported loss comes back
/// to them with the next packet, 10 ms later.
fn speakers(losses: &[u32]) -> usize {
    let mut world = World::new();
    let nodes = (1..).map(NodeId).take(losses.len());
    let mut receivers: Vec<_> =
        nodes.map(|node| AimdScheme::feedback(&Options::default(), node)).collect();
    for (receiver, lost) in receivers.iter_mut().zip(losses) {
        world.with(|cx| receiver.on_missing(cx, Seq::new(0), Seq::new(*lost)));
    }
    let (mut heard, mut spoken) = (Loss { of: 1, loss: 0 }, 0);
    let (repair, duplicate, congestion_experienced, reordering) = (false, false, false, None);
    for seq in (0..50).map(Seq::new) {
        let len = 1000;
        let arrival = Arrival { seq, len, repair, duplicate, congestion_experienced, reordering };
        let before = heard;
        for receiver in &mut receivers {
            world.with(|cx| receiver.on_data(cx, &arrival, Some(&before)));
            if let Some((_, report)) = world.with(|cx| receiver.poll_report(cx)) {
                heard.loss = heard.loss.max(report.loss);
                spoken += 1;
            }
        }
        world.0 += Duration::from_millis(10);
    }
    spoken
}

#[test]
fn a_lone_receiver_speaks_once_and_of_many_few_do() {
    assert_eq!(speakers(&[0]), 1);
    let many = speakers(&[3; 1000]);
    assert!((1..60).contains(&many), "{many} of 1000");
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else(of: u32, loss: u16, cut in 0usize..6) {
        let mut bytes = Vec::new();
        Loss { of, loss }.encode(&mut bytes);
        prop_assert_eq!(Loss::decode(&bytes), Some(Loss { of, loss }));
        prop_assert_eq!(Loss::decode(&bytes[..cut]), None);
        bytes.push(0);
        prop_assert_eq!(Loss::decode(&bytes), None);
    }

    #[test]
    fn whatever_is_heard_the_rate_stays_within_its_bounds(
        heard in prop::collection::vec(prop::option::of(any::<u16>()), 1..60),
    ) {
        let (mut world, mut sender) = (World::new(), sender());
        for loss in heard {
            world.with(|cx| sender.on_sent(cx, Seq::new(0), 1000));
            if let Some(loss) = loss {
                let report = Loss { of: 1, loss };
                world.with(|cx| sender.on_report(cx, NodeId(1), ON_ITS_OWN, &report));
            }
            world.0 += ROUND;
            world.with(|cx| sender.on_timeout(cx));
            let rate = sender.gauges().rate_bits_per_s.unwrap();
            prop_assert!((8000.0..=MAX).contains(&rate), "{}", rate);
        }
    }
}
