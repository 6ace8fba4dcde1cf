//! Measurements on this machine, by name.

use faircast_proto::catalog;
use faircast_study::{Error, Monitor};

use crate::request::{Request, Results};
use crate::{attack, overlay, speed, wire};

/// Measurement on this machine.
#[derive(Debug)]
pub struct LiveBench {
    /// Name on the command line.
    pub name: &'static str,
    /// True if the measurement can send with any scheme.
    pub takes_scheme: bool,
    list: fn(&Request) -> Result<String, Error>,
    run: fn(&Request, &dyn Monitor) -> Result<Results, Error>,
}

/// All measurements on this machine.
pub static LIVE: [LiveBench; 4] = [
    LiveBench { name: "speed", takes_scheme: false, list: speed::list, run: speed::run },
    LiveBench { name: "wire", takes_scheme: true, list: wire::list, run: wire::run },
    LiveBench { name: "overlay", takes_scheme: false, list: overlay::list, run: overlay::run },
    LiveBench { name: "attack", takes_scheme: true, list: attack::list, run: attack::run },
];

impl LiveBench {
    /// Checks that the measurement can send with the requested scheme.
    ///
    /// # Errors
    /// There is no such scheme.
    pub fn check(&self, request: &Request) -> Result<(), Error> {
        let Some(scheme) = &request.scheme else { return Ok(()) };
        let known: Vec<String> = catalog::live_stacks().map(|stack| stack.name()).collect();
        match known.contains(scheme) {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "--scheme {scheme}: no such scheme; there are {}",
                known.join(", ")
            ))),
        }
    }

    /// Lists the cases with their questions.
    ///
    /// # Errors
    /// The request selects no case.
    pub fn list(&self, request: &Request) -> Result<String, Error> {
        (self.list)(request)
    }

    /// Runs the selected cases.
    ///
    /// # Errors
    /// The work fails or is interrupted, or the machine lacks a feature.
    pub fn run(&self, request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
        (self.run)(request, monitor)
    }
}
