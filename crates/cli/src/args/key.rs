//! `faircast key`.

use std::path::PathBuf;

use clap::Subcommand;

/// Arguments of `faircast key`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast key new group.key        then bring it to all members, by scp for example
  faircast send FILE --group 239.192.7.1:7500 --key group.key
  faircast key show group.key       its id, to compare by telephone

Exit status: 0 done, 2 the file or the arguments are wrong.")]
pub struct KeyArgs {
    /// What to do with a key
    #[command(subcommand)]
    pub what: KeyVerb,
}

/// What to do with a key.
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make a key for a group, in a new file that only you can read
    New {
        /// The file to make; never overwritten
        #[arg(value_name = "FILE", default_value = "faircast.key")]
        file: PathBuf,
    },
    /// Print the id of a key, which says nothing of the key itself
    Show {
        /// The key file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Take it although others may read it
        #[arg(long)]
        key_exposed: bool,
    },
}
