//! The program `faircast`: command line and verbs.

mod args;
mod bench;
mod check;
mod clean;
mod demo;
mod error;
mod groups;
mod interrupt;
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
mod threads;

use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use args::{Args, LabVerb, Verb};
use error::Failure;

/// Raises the limit of open files to the hard limit: a daemon has one connection for each client.
fn raise_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Parses the command line and runs the verb. Exit status: 0 success, 1 failure, 2 wrong usage.
fn main() -> ExitCode {
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
    result.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

fn not_parsed(error: clap::Error) -> ExitCode {
    let bare = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if bare || !error.use_stderr() {
        let _ = error.print();
        return if bare { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    Failure::from(error).report()
}
