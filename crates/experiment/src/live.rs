//! Measurements on this machine, by name.

use faircast_proto::catalog;
use faircast_study::{Error, Monitor};

use crate::request::{Request, Results};
use crate::{attack, overlay, speed, wire};

/// Measurement on this machine.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LiveBench {
    pub name: &'static str,
    /// True if the measurement can send with any scheme.
    pub takes_scheme: bool,
    pub list: fn(&Request) -> Result<String, Error>,
    pub run: fn(&Request, &dyn Monitor) -> Result<Results, Error>,
}

/// All measurements on this machine.
pub static LIVE: [LiveBench; 4] = [
    LiveBench { name: "speed", takes_scheme: false, list: speed::list, run: speed::run },
    LiveBench { name: "wire", takes_scheme: true, list: wire::list, run: wire::run },
    LiveBench { name: "overlay", takes_scheme: false, list: overlay::list, run: overlay::run },
    LiveBench { name: "attack", takes_scheme: true, list: attack::list, run: attack::run },
];

impl LiveBench {
    /// Fails if there is no scheme of the requested name.
    pub fn check(&self, request: &Request) -> Result<(), Error> {
        let Some(scheme) = &request.scheme else { return Ok(()) };
        let known: Vec<String> = catalog::live_stacks().map(|stack| stack.name()).collect();
        if known.contains(scheme) {
            return Ok(());
        }
        let known = known.join(", ");
        Err(Error::Usage(format!("--scheme {scheme}: no such scheme; there are {known}")))
    }
}
