//! Hosts of programs, and programs at work.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use faircast_base::Time;
use faircast_relay_sdk::{Policy, View};

/// Result of loading a program; the error says in words why the host refuses it.
pub type Loaded = Result<Arc<dyn SessionProgram>, String>;

/// A load that was begun. A call returns the result once it is there; dropping the load gives it up.
pub type PendingLoad = Box<dyn FnMut(Time) -> Option<Loaded> + Send>;

/// Makes programs of their code: of WebAssembly, on hosts that can run it.
pub trait ProgramHost: Send + Sync {
    /// Begins to check and compile a program. Returns without delay, whatever the code is.
    fn load(&self, code: &[u8]) -> PendingLoad;
}

/// A program that was checked.
pub trait SessionProgram: Send + Sync {
    /// Starts it for one session, with what its source gives it.
    ///
    /// # Errors
    /// Fails if the program failed.
    fn start(&self, parameter: u32) -> Result<Box<dyn RunningProgram>, ProgramFault>;
}

/// A program at work: a [`Policy`] that can fail.
pub trait RunningProgram: Send {
    /// See [`Policy::credit`].
    ///
    /// # Errors
    /// Fails if the program failed.
    fn credit(&mut self, view: &dyn View) -> Result<Option<u32>, ProgramFault>;

    /// See [`Policy::accepts`].
    ///
    /// # Errors
    /// Fails if the program failed.
    fn accepts(&mut self, view: &dyn View, branch: u32, layer: u8) -> Result<bool, ProgramFault>;

    /// See [`Policy::discards`].
    ///
    /// # Errors
    /// Fails if the program failed.
    fn discards(&mut self, view: &dyn View, branch: u32) -> Result<u32, ProgramFault>;

    /// See [`Policy::interval_ms`]; asked once.
    ///
    /// # Errors
    /// Fails if the program failed.
    fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault>;

    /// See [`Policy::DROPS`]; asked once.
    ///
    /// # Errors
    /// Fails if the program failed.
    fn drops(&mut self) -> Result<bool, ProgramFault>;
}

/// Why a program has failed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFault(pub String);

/// A program as the policy of one session. Once it has failed it does as little as a policy can.
pub(crate) struct ProgramPolicy {
    running: Box<dyn RunningProgram>,
    interval_ms: Option<u32>,
    pub(crate) drops: bool,
    pub(crate) failed: bool,
    /// Keeps the program while a session uses it.
    _program: Arc<dyn SessionProgram>,
}

impl ProgramPolicy {
    pub(super) fn start(
        program: &Arc<dyn SessionProgram>,
        parameter: u32,
    ) -> Result<Self, ProgramFault> {
        let mut running = program.start(parameter)?;
        let interval_ms = running.interval_ms()?;
        let drops = running.drops()?;
        Ok(Self { running, interval_ms, drops, failed: false, _program: program.clone() })
    }

    fn ask<T>(
        &mut self,
        otherwise: T,
        question: impl FnOnce(&mut dyn RunningProgram) -> Result<T, ProgramFault>,
    ) -> T {
        if self.failed {
            return otherwise;
        }
        question(&mut *self.running).unwrap_or_else(|_| {
            self.failed = true;
            otherwise
        })
    }
}

impl Policy for ProgramPolicy {
    fn credit(&mut self, view: &impl View) -> Option<u32> {
        self.ask(None, |running| running.credit(view))
    }

    fn accepts(&mut self, view: &impl View, branch: u32, layer: u8) -> bool {
        self.ask(true, |running| running.accepts(view, branch, layer))
    }

    fn discards(&mut self, view: &impl View, branch: u32) -> u32 {
        self.ask(0, |running| running.discards(view, branch))
    }

    fn interval_ms(&self) -> Option<u32> {
        self.interval_ms
    }
}
