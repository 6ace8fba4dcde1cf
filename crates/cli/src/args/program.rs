//! `faircast program`.

use std::path::PathBuf;

use clap::Subcommand;

/// Arguments of `faircast program`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast program check mine.wasm                whether relays run it
  faircast program new-key signer.key             a key that signs, and what checks its signatures
  faircast program sign mine.wasm --with signer.key
  faircast send FILE --via 10.0.0.1:7600 --group 239.192.7.1:7500 --option program=mine.wasm

A program says which branch of a tree sets the pace, in the place of the policies that relays have.
Relays fetch it with the first packets of a session. It needs a faircast that was built with
--features programs, as do relays. docs/your-own-policy.md shows how one is written.

Exit status: 0 done, 1 the program would be refused, 2 a file or the arguments are wrong.")]
pub struct ProgramArgs {
    /// What to do
    #[command(subcommand)]
    pub what: ProgramVerb,
}

/// What to do with a program.
#[derive(Debug, Subcommand)]
pub enum ProgramVerb {
    /// Check a program as relays do, start it once, and print its hash and who has signed it
    Check {
        /// The program
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Sign a program, for relays that run those of some signers alone (relay --signer)
    Sign {
        /// The program; a signature that it has is replaced
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The key that signs, made by new-key
        #[arg(long, value_name = "KEY_FILE")]
        with: PathBuf,
        /// Write the signed program there instead of over FILE
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Make a key that signs, in a new file that only you can read, and print what checks its signatures
    NewKey {
        /// The file to make; never overwritten
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
