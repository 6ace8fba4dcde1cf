//! `faircast program`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast program check mine.wasm                as relays check it
  faircast program new-key signer.key             a signing key, and the public key of the relays
  faircast program sign mine.wasm --with signer.key
  faircast send FILE --via 10.0.0.1:7600 --group 239.192.7.1:7500 --option program=mine.wasm

A program chooses the branch of the tree that sets the pace of its session, in place of the built-in
policies. Relays fetch it with the first packets of a session. Senders and relays need a faircast that
was built with --features programs. docs/your-own-policy.md explains how to write a program.

Exit status: 0 done, 1 the program would be refused, 2 a file or the arguments are wrong.")]
pub(crate) struct ProgramArgs {
    #[command(subcommand)]
    pub(crate) what: ProgramVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProgramVerb {
    /// Check a program as relays do, start it once, and print its hash and its signer
    Check {
        /// Program
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Sign a program for relays with --signer
    Sign {
        /// Program; an existing signature is replaced
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Signing key of `program new-key`
        #[arg(long, value_name = "KEY_FILE")]
        with: PathBuf,
        /// File for the signed program [default: FILE]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Write a new signing key into a file that only you can read, and print its public key
    NewKey {
        /// New file; an existing file is never overwritten
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
