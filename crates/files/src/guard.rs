//! Notice of a thread's panic to its waiters.

/// Guard that calls `report` if its thread panics, so that no waiter hangs.
pub(crate) struct PanicGuard<F: FnMut(String)> {
    /// Work of the thread, as a verb: `writes files`.
    does: &'static str,
    report: F,
}

impl<F: FnMut(String)> PanicGuard<F> {
    pub(crate) const fn new(does: &'static str, report: F) -> Self {
        Self { does, report }
    }
}

pub(crate) fn panicked(does: &str) -> String {
    format!("the thread that {does} has panicked; this is a fault of faircast")
}

impl<F: FnMut(String)> Drop for PanicGuard<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.report)(panicked(self.does));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn only_a_panic_is_told() {
        for panics in [false, true] {
            let told = Mutex::new(None);
            std::thread::scope(|scope| {
                let work = || {
                    let _guard =
                        PanicGuard::new("works", |fault| *told.lock().unwrap() = Some(fault));
                    assert!(!panics, "wanted here");
                };
                assert_eq!(scope.spawn(work).join().is_err(), panics);
            });
            let told = told.into_inner().unwrap();
            assert_eq!(told.is_some_and(|told| told.contains("the thread that works")), panics);
        }
    }
}
