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
  faircast key relay group.key relay.key      for `relay --key relay.key` on hosts that must not read content

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
    /// Make the key for relays of a group, which pass content on and cannot read it
    Relay {
        /// The key file of the group
        #[arg(value_name = "GROUP_KEY")]
        group: PathBuf,
        /// The file to make; never overwritten
        #[arg(value_name = "FILE", default_value = "relay.key")]
        file: PathBuf,
        /// Take the group's key although others may read it
        #[arg(long)]
        key_exposed: bool,
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
