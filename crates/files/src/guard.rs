//! Panics of a thread as its failure, so that no waiter hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Result;

/// Runs the work of a thread, which `does` names by a verb: `writes files`.
pub(crate) fn guarded<T>(does: &str, work: impl FnOnce() -> Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(panicked(does)),
    }
}

pub(crate) fn panicked(does: &str) -> String {
    format!("the thread that {does} has panicked; this is a fault of faircast")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        assert_eq!(guarded("works", || Ok(7)), Ok(7));
        let failure = guarded("works", || -> Result<()> { panic!("wanted here") }).unwrap_err();
        assert!(failure.contains("the thread that works"), "{failure}");
    }
}
