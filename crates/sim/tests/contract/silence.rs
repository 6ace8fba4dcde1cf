//! Clause 6: without reports the rate falls to its floor, and rises again with them.

use faircast_base::{Duration, Time};
use faircast_proto::congestion::Floor;
use faircast_proto::stack::Stack;

use crate::world::{World, plain, protocols, run};

const WELL: Duration = Duration::from_secs(30);

#[test]
fn silence_drives_the_rate_to_its_floor_and_reports_restore_it() {
    let mut tried = 0;
    for protocol in protocols() {
        let Some(floor) = protocol.floor(&Default::default()) else {
            assert!(!protocol.transport.answers, "{protocol} gets reports and states no floor");
            continue;
        };
        for receivers in [1, 3] {
            silence(protocol, receivers, floor);
            tried += 1;
        }
    }
    assert!(tried >= 8, "pgmcc and three kinds of TCP at least");
}

fn silence(protocol: Stack, receivers: u32, Floor { after, every, burst }: Floor) {
    let name = protocol.name();
    let (silent, slow) = (Time::ZERO + WELL, Time::ZERO + WELL + after);
    let restored = slow + every * 4;
    let well = restored + every + Duration::from_secs(5);
    let end = well + WELL;
    let seconds = |time: Time| time.as_nanos() / 1_000_000_000;
    let mut world = World::new(receivers, seconds(end));
    world.leaf = plain("10 Mbit/s", 100);
    world.up += &format!(
        "changes = [ {{ at = \"{} s\", loss = 1.0 }}, {{ at = \"{} s\", loss = 0.0 }} ]\n",
        seconds(silent),
        seconds(restored)
    );
    let (_, heard, _) = run(&world.scenario(protocol));
    let between = |list: &[Time], from: Time, to: Time| -> Vec<Time> {
        list.iter().copied().filter(|at| (from..to).contains(at)).collect()
    };
    let before = between(&heard.delivered, Time::ZERO + Duration::from_secs(10), silent).len();
    assert!(before > 20 * 40, "{name}: {before} deliveries while all was well");
    let lone = between(&heard.sent, slow, restored);
    assert!((1..=5 * burst).contains(&lone.len()), "{name}: {lone:?}");
    for span in lone.windows(burst + 1) {
        let gap = span[burst].since(span[0]);
        assert!(gap >= every.mul_f64(0.999), "{name}: {burst} packets within {gap}, floor {every}");
    }
    let again = between(&heard.delivered, well, well + Duration::from_secs(20)).len();
    assert!(again * 4 > before * 3, "{name}: {before} deliveries before and {again} after");
}
