//! Fuzz target: a program within the bounds is compiled, started and called; also a corpus test.

#[path = "../programs/state.rs"]
mod state;

use std::sync::LazyLock;

use faircast_programs::{Limits, Signers, WasmHost};
use state::State;

const ROUNDS: u32 = 3;

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
        let branch =
            |branch| (i64::from(round * 7 + branch * 5), branch * round, branch + 1, 100 * branch);
        let branches = (0..3).map(branch).collect();
        let view = State { branches, reported: round.into(), buffer: 10, unit: 1 };
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
