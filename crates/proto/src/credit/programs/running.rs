//! Interfaces of hosts of programs and of running programs.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use faircast_base::Time;
use faircast_relay_sdk::{Policy, View};

/// Result of loading a program; the error is the host's reason in words.
pub type Loaded = Result<Arc<dyn SessionProgram>, String>;

/// Load in progress. A call returns the result once it is ready; dropping it cancels the load.
pub type PendingLoad = Box<dyn FnMut(Time) -> Option<Loaded> + Send>;

/// Loader of programs, such as WebAssembly.
pub trait ProgramHost: Send + Sync {
    /// Starts to check and compile a program. Returns at once for any code.
    fn load(&self, code: &[u8]) -> PendingLoad;
}

/// Checked program.
pub trait SessionProgram: Send + Sync {
    /// Starts the program for one session with the parameter of its source.
    ///
    /// # Errors
    /// The program fails.
    fn start(&self, parameter: u32) -> Result<Box<dyn RunningProgram>, ProgramFault>;
}

/// Running program: a [`Policy`] that can fail. Each function fails if the program does.
pub trait RunningProgram: Send {
    /// See [`Policy::credit`].
    fn credit(&mut self, view: &dyn View) -> Result<Option<u32>, ProgramFault>;

    /// See [`Policy::accepts`].
    fn accepts(&mut self, view: &dyn View, branch: u32, layer: u8) -> Result<bool, ProgramFault>;

    /// See [`Policy::discards`].
    fn discards(&mut self, view: &dyn View, branch: u32) -> Result<u32, ProgramFault>;

    /// See [`Policy::interval_ms`]; called once.
    fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault>;

    /// See [`Policy::DROPS`]; called once.
    fn drops(&mut self) -> Result<bool, ProgramFault>;
}

/// Failure of a program, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFault(pub String);

/// Program as the policy of a session. After a failure it does as little as a policy can.
pub(crate) struct ProgramPolicy {
    running: Box<dyn RunningProgram>,
    interval_ms: Option<u32>,
    pub(crate) drops: bool,
    pub(crate) failed: bool,
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
