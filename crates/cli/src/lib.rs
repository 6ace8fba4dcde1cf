//! The program `faircast`: its command line and what its verbs do.
//!
//! Reading order: [`args`] (the one definition of the command line), `run` (one scenario),
//! `bench` (suites of scenarios with expectations), `send` and `recv` (real networks).

pub mod args;
mod bench;
mod check;
mod clean;
mod demo;
mod error;
mod groups;
mod key;
mod lab;
mod live;
mod manual;
mod node;
mod program;
mod progress;
mod recv;
mod relay;
mod report;
mod run;
mod schemes;
mod send;
mod soak;
mod sweep;

use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use args::{Args, LabVerb, Verb};

pub use error::Failure;

/// Allows as many open files and connections as the system lets this user have: a daemon has one
/// for each client.
fn raise_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A system that refuses leaves the limit as it is.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Reads the command line and does what it says. Exit status 0: done; 1: it failed; 2: the
/// arguments or a file that they name are wrong.
pub fn main() -> ExitCode {
    raise_descriptors();
    let matches = Args::definition().try_get_matches();
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return not_parsed(error),
    };
    let result = match &args.verb {
        Verb::Send(args) => send::send(args),
        Verb::Recv(args) => recv::recv(args),
        Verb::Relay(args) => relay::relay(args),
        Verb::Node(args) => node::node(args),
        Verb::Pub(args) => groups::publish(args),
        Verb::Sub(args) => groups::subscribe(args),
        Verb::Program(args) => program::program(args),
        Verb::Check(args) => check::check(args),
        Verb::Clean(args) => clean::clean(args),
        Verb::Key(args) => key::key(args),
        Verb::Run(run) => run::run(run),
        Verb::Sweep(sweep) => sweep::sweep(sweep),
        Verb::Bench(bench) => bench::bench(bench),
        Verb::Lab { verb: LabVerb::Check(check) } => lab::check(check),
        Verb::Soak(soak) => soak::soak(soak),
        Verb::Demo(demo) => demo::demo(demo),
        Verb::Report(report) => report::report(report),
        Verb::Schemes(schemes) => schemes::schemes(schemes),
        Verb::Completions { shell } => manual::completions(*shell),
        Verb::Man { out } => manual::man(out.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

/// Help and version where they were asked for, else what is wrong.
fn not_parsed(error: clap::Error) -> ExitCode {
    let bare = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if bare || !error.use_stderr() {
        // A reader that went away is no failure.
        let _ = error.print();
        return if bare { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let failure = Failure::from(error);
    failure.print();
    failure.exit_code()
}
