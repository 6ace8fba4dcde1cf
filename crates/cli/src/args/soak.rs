//! `faircast soak`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use faircast_base::{Bytes, Duration};
use faircast_experiment::soak::Fault;
use faircast_proto::catalog::DEFAULT_SCHEME;

use super::live::{quantity, scheme};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo faircast soak                                rounds for ten minutes
  sudo faircast soak --seed 7 --rounds 1            repeat the round of seed 7
  sudo faircast soak --only kill-receiver --rounds 3 --key
  sudo faircast soak --one-by-one --rounds 4        does the rate come back after each fault?
  sudo faircast soak --relays --seed 0 --rounds 3   all faults over relays
  sudo faircast soak --overlay --duration 10min     daemons and clients of the overlay

In each round a sender and receivers run as programs of their own in network namespaces. Random
faults hit the programs and the links between them. After the last fault every receiver must get every
byte. Links, files and faults follow from the seed (round i is round 0 of the seed plus i); the order
of events on a busy machine does not.

Exit status: 0 every round holds, 1 a round fails, 2 the arguments are wrong.")]
pub(crate) struct SoakArgs {
    /// Time during which rounds begin
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = quantity::<Duration>)]
    pub(crate) duration: Duration,
    /// Number of rounds, in place of --duration
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Seed of the first round [default: drawn and printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Number of receivers [default: 4; with --relays 12]
    #[arg(long, help_heading = "Session", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) receivers: Option<u32>,
    /// Scheme of the senders; `faircast schemes` lists all
    #[arg(long, help_heading = "Session", value_name = "NAME", default_value = DEFAULT_SCHEME, value_parser = scheme)]
    pub(crate) scheme: String,
    /// Encrypt all packets with a key; with --one-by-one half of the seeds always do
    #[arg(long, help_heading = "Session")]
    pub(crate) key: bool,
    /// Faults one after the other at sender and receivers. All receivers must be back at their rate
    /// within 10 s. Even seeds send to the group, odd seeds to each receiver; seeds 4n+2 and 4n+3
    /// encrypt
    #[arg(long, help_heading = "Kind of rounds")]
    pub(crate) one_by_one: bool,
    /// Faults one after the other in a session over seven relays in three levels. The rate must be
    /// back within 10 s, and within 2 s after the restart of a relay. Seeds 3n, 3n+1 and 3n+2
    /// together have all faults at all levels
    #[arg(long, help_heading = "Kind of rounds", conflicts_with = "one_by_one")]
    pub(crate) relays: bool,
    /// Five daemons of the overlay with 200 clients in 50 groups, in place of files: one round of
    /// faults for the whole duration, or several with --rounds. The traces of all clients must keep
    /// the rules of `faircast-check`. Example: --overlay --duration 2min --seed 7 --out DIR
    #[arg(long, help_heading = "Kind of rounds", conflicts_with_all = ["one_by_one", "relays", "receivers", "scheme", "key", "size", "trace"])]
    pub(crate) overlay: bool,
    /// Fault of every round, in place of random ones; may be repeated
    #[arg(long, value_name = "FAULT", value_parser = faults())]
    pub(crate) only: Vec<Fault>,
    /// Size of the content of a round [default: drawn from the seed]
    #[arg(long, help_heading = "Session", value_name = "BYTES", value_parser = quantity::<Bytes>)]
    pub(crate) size: Option<Bytes>,
    /// Folder for the logs and files of all rounds
    #[arg(long, help_heading = "Output", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Keep the trace of each program that was not killed
    #[arg(long, help_heading = "Output", requires = "out")]
    pub(crate) trace: bool,
    /// Print one JSON document instead of lines
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

fn faults() -> impl TypedValueParser<Value = Fault> {
    let values = Fault::ALL.iter().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| {
        let named = Fault::ALL.iter().find(|(_, known, _)| *known == name);
        named.expect("the parser knows these names alone").0
    })
}
