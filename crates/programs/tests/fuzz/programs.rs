//! Fuzz target: a program within the bounds is compiled, started and called; also a corpus test.

use std::sync::LazyLock;

use faircast_programs::{Limits, Signers, WasmHost};
use faircast_relay_sdk::View;

const ROUNDS: u32 = 3;

struct Three(u32);

impl View for Three {
    fn branches(&self) -> u32 {
        3
    }
    fn forwarded(&self, branch: u32) -> i64 {
        i64::from(self.0 * 7 + branch * 5)
    }
    fn reported(&self) -> i64 {
        i64::from(self.0)
    }
    fn queued(&self, branch: u32) -> u32 {
        branch * self.0
    }
    fn buffer(&self) -> u32 {
        10
    }
    fn weight(&self, branch: u32) -> u32 {
        branch + 1
    }
    fn waited_ms(&self, branch: u32) -> u32 {
        100 * branch
    }
    fn unit(&self) -> u32 {
        1
    }
}

pub(crate) fn program(data: &[u8]) -> bool {
    static HOST: LazyLock<WasmHost> = LazyLock::new(|| {
        WasmHost::new(Limits::default(), Signers::Any).expect("this machine runs programs")
    });
    if let Err(error) = HOST.check(data) {
        assert!(!error.to_string().is_empty());
        return false;
    }
    let program = HOST.load_now(data).expect("it was checked");
    let Ok(mut running) = program.start(7) else { return true };
    for round in 0..ROUNDS {
        let view = Three(round);
        let fails = running.credit(&view).is_err()
            || running.accepts(&view, 1, 2).is_err()
            || running.discards(&view, 2).is_err()
            || running.interval_ms().is_err()
            || running.drops().is_err();
        if fails {
            break;
        }
    }
    true
}
