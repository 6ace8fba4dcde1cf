//! Exports and imports of a policy as a program that relays fetch and run.

use core::cell::RefCell;

use crate::{Policy, View};

/// View of the relay through the imports of the program.
#[derive(Clone, Copy, Debug)]
pub struct HostView;

#[allow(unsafe_code, reason = "the host keeps its word on the types")]
mod imports {
    #[link(wasm_import_module = "faircast")]
    unsafe extern "C" {
        pub(super) safe fn branches() -> u32;
        pub(super) safe fn forwarded(branch: u32) -> i64;
        pub(super) safe fn reported() -> i64;
        pub(super) safe fn queued(branch: u32) -> u32;
        pub(super) safe fn buffer() -> u32;
        pub(super) safe fn weight(branch: u32) -> u32;
        pub(super) safe fn waited_ms(branch: u32) -> u32;
        pub(super) safe fn unit() -> u32;
    }
}

impl View for HostView {
    fn branches(&self) -> u32 {
        imports::branches()
    }

    fn forwarded(&self, branch: u32) -> i64 {
        imports::forwarded(branch)
    }

    fn reported(&self) -> i64 {
        imports::reported()
    }

    fn queued(&self, branch: u32) -> u32 {
        imports::queued(branch)
    }

    fn buffer(&self) -> u32 {
        imports::buffer()
    }

    fn weight(&self, branch: u32) -> u32 {
        imports::weight(branch)
    }

    fn waited_ms(&self, branch: u32) -> u32 {
        imports::waited_ms(branch)
    }

    fn unit(&self) -> u32 {
        imports::unit()
    }
}

/// Policy of the program; `None` before the start.
#[derive(Debug)]
pub struct Exported<P>(RefCell<Option<P>>);

#[allow(unsafe_code, reason = "a program has one thread")]
unsafe impl<P> Sync for Exported<P> {}

impl<P: Policy> Exported<P> {
    #[expect(clippy::new_without_default, reason = "it is made for a static alone")]
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    pub fn start(&self, policy: P) {
        *self.0.borrow_mut() = Some(policy);
    }

    fn with<T>(&self, otherwise: T, question: impl FnOnce(&mut P) -> T) -> T {
        self.0.borrow_mut().as_mut().map_or(otherwise, question)
    }

    /// Calls [`Policy::credit`]; returns -1 for `None`.
    pub fn credit(&self) -> i32 {
        let chosen = self.with(None, |policy| policy.credit(&HostView));
        chosen.and_then(|branch| i32::try_from(branch).ok()).unwrap_or(-1)
    }

    /// Calls [`Policy::accepts`]; returns 0 for false.
    pub fn accepts(&self, branch: u32, layer: u32) -> u32 {
        u32::from(self.with(true, |policy| policy.accepts(&HostView, branch, layer as u8)))
    }

    pub fn discards(&self, branch: u32) -> u32 {
        self.with(0, |policy| policy.discards(&HostView, branch))
    }

    /// Returns [`Policy::DROPS`]; 0 for false.
    #[expect(clippy::unused_self, reason = "as the others are called")]
    pub fn drops(&self) -> u32 {
        u32::from(P::DROPS)
    }

    /// Calls [`Policy::interval_ms`]; returns 0 for `None`.
    pub fn interval_ms(&self) -> u32 {
        self.with(None, |policy| policy.interval_ms()).unwrap_or(0)
    }
}
