//! `faircast soak`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use faircast_base::{Bytes, Duration};
use faircast_experiment::soak::Fault;
use faircast_proto::catalog::DEFAULT_SCHEME;

use super::live::{quantity, scheme};

/// Arguments of `faircast soak`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo faircast soak                                ten minutes of rounds
  sudo faircast soak --seed 7 --rounds 1            one round again
  sudo faircast soak --only kill-receiver --rounds 3 --key
  sudo faircast soak --one-by-one --rounds 4        does the rate come back after each fault?
  sudo faircast soak --relays --rounds 3            the same over relays
  sudo faircast soak --overlay --duration 10min     daemons and clients of the overlay

In each round a sender and receivers run as programs of their own in network namespaces. A random
choice of faults (from the seed: round i is round 0 of the seed plus i) happens to them and to the
links between them; then everything is left in peace, and in the end every receiver must have every
byte. Links, files and faults follow from the seed; the order of events on a busy machine does not.

Exit status: 0 every round holds, 1 one does not, 2 the arguments are wrong.")]
pub struct SoakArgs {
    /// Begin rounds for so long
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = quantity::<Duration>)]
    pub duration: Duration,
    /// End after so many rounds, however long they take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Seed of the first round; drawn and printed where none is given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Receivers that must get everything. Default: 4, and 12 with --relays
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub receivers: Option<u32>,
    /// The scheme of the senders; receivers follow. `faircast schemes` lists them
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEME, value_parser = scheme)]
    pub scheme: String,
    /// Seal everything with a key of the group; one by one half of the seeds do so anyway
    #[arg(long)]
    pub key: bool,
    /// Faults one after the other, at sender and receivers of a session that is at its rate. The rate of all must be
    /// back within 10 s. Even seeds send to the group, odd ones to each receiver (`send --to`). Seeds 4n+2 and 4n+3 are
    /// sealed
    #[arg(long)]
    pub one_by_one: bool,
    /// Faults one after the other in a session over seven relays in three levels. The rate must be
    /// back within 10 s, and within 2 s after a relay has started again. Three seeds in a row have
    /// all faults at all levels
    #[arg(long, conflicts_with = "one_by_one")]
    pub relays: bool,
    /// Five daemons of the overlay with 200 clients in 50 groups, in place of files: one round of
    /// faults for the whole duration, or several with --rounds. The traces of all clients must keep
    /// the rules of `faircast-check`. Example: --overlay --duration 2min --seed 7 --out DIR
    #[arg(long, conflicts_with_all = ["one_by_one", "relays", "receivers", "scheme", "key", "size", "trace"])]
    pub overlay: bool,
    /// Only these faults, in every round, instead of a random choice; may be repeated
    #[arg(long, value_name = "FAULT", value_parser = faults())]
    pub only: Vec<Fault>,
    /// Payload that is sent in a round; drawn from the seed where none is given
    #[arg(long, value_name = "BYTES", value_parser = quantity::<Bytes>)]
    pub size: Option<Bytes>,
    /// Keep what the programs said and wrote in this folder, also of rounds that hold
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Keep a trace of each program that was not killed too
    #[arg(long, requires = "out")]
    pub trace: bool,
    /// Print one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
}

fn faults() -> impl TypedValueParser<Value = Fault> {
    let values = Fault::ALL.iter().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| {
        let named = Fault::ALL.iter().find(|(_, known, _)| *known == name);
        named.expect("the parser knows these names alone").0
    })
}
