//! Ctrl-C: a flag that all work observes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// Exit status of a program that Ctrl-C killed, as shells report it: 128 plus SIGINT.
const KILLED_BY_INTERRUPT: i32 = 130;

/// Installs the handler: the first Ctrl-C ends the work at its next event, a second kills.
pub(crate) fn listen() {
    let on_signal = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(KILLED_BY_INTERRUPT);
        }
    };
    // Without a handler, Ctrl-C kills at once.
    let _ = ctrlc::set_handler(on_signal);
}

pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

pub(crate) async fn until_interrupted() {
    while !interrupted() {
        tokio::time::sleep(INTERRUPT_INTERVAL).await;
    }
}
