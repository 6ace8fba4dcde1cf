//! Sessions of TRAM in the simulator: trees that form, break and heal, and everything that arrives.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

/// Calls of a machine that the one in this field is to handle as they are.
macro_rules! forwards {
    ($machine:ident) => {
        fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
            self.$machine.handle_timeout(cx);
        }

        fn handle_close(&mut self, cx: &mut Cx<'_>) {
            self.$machine.handle_close(cx);
        }

        fn poll_membership(&mut self) -> Option<Membership> {
            self.$machine.poll_membership()
        }

        fn poll_event(&mut self) -> Option<AppEvent> {
            self.$machine.poll_event()
        }

        fn next_timeout(&self) -> Option<Time> {
            self.$machine.next_timeout()
        }
    };
}

mod controllers;
mod delivery;
mod faults;
mod liars;
mod named;
mod overheard;
mod scale;
mod world;
