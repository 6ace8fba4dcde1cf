//! `faircast key`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast key new group.key        then copy it to all members, for example by scp
  faircast send FILE --group 239.192.7.1:7500 --key group.key
  faircast key show group.key       the id of the key, to compare by telephone
  faircast key relay group.key relay.key      for relays, which must not read content

Exit status: 0 done, 2 the file or the arguments are wrong.")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) what: KeyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Write a new key of a group into a file that only you can read
    New {
        /// New file; an existing file is never overwritten
        #[arg(value_name = "FILE", default_value = "faircast.key")]
        file: PathBuf,
    },
    /// Write the key for relays of a group, which forward content and cannot read it
    Relay {
        /// Key file of the group
        #[arg(value_name = "GROUP_KEY")]
        group: PathBuf,
        /// New file; an existing file is never overwritten
        #[arg(value_name = "FILE", default_value = "relay.key")]
        file: PathBuf,
        /// Accept a key file that other users can read
        #[arg(long)]
        key_exposed: bool,
    },
    /// Print the id of a key, which does not disclose the key
    Show {
        /// Key file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Accept a key file that other users can read
        #[arg(long)]
        key_exposed: bool,
    },
}
