//! `faircast pub` and `faircast sub`.

use std::path::PathBuf;

use clap::Args;
use faircast::groups::{Benefit, Service};

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectOptions {
    /// Address of the daemon, as in its `clients`: tcp:ADDR:PORT, unix:/PATH or tls:HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_value = "tcp:127.0.0.1:4803")]
    pub(crate) connect: String,
    /// Name of this client, 1 to 56 bytes; ends a running client of this name [default: random]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// File with the token for tls:HOST:PORT, or with a line of the daemon's `tokens`
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the CA of the daemon's certificate for tls:HOST:PORT, such as overlay-ca.pem
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// File with the certificate of this client for tls:HOST:PORT
    #[arg(long, value_name = "FILE", requires = "certificate_key")]
    pub(crate) certificate: Option<PathBuf>,
    /// File with the key of the certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) certificate_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo hello | faircast pub chat
  tail -f access.log | faircast pub logs --connect unix:/run/faircast/node.sock
  echo hello | faircast pub chat --connect tls:a.example:4804 --ca overlay-ca.pem \
    --token-file tokens.txt
  seq 1000000 | faircast pub numbers --service agreed --rate 1000
  echo go | faircast pub jobs --service safe --receipts      prints how many members have it

Ends when standard input ends and the daemon has taken all messages. Services: unreliable, reliable,
fifo, causal, agreed, safe; docs/promises.md has their guarantees. Benefits: throughput, receivers,
concave; docs/overlay.md has their meaning.

A lost connection is opened again until Ctrl-C.

Exit status: 0 done, 1 interrupted, there is no daemon or it refuses, 2 the arguments are wrong.")]
pub(crate) struct PubArgs {
    /// Name of the group, 1 to 64 bytes
    #[arg(value_name = "GROUP")]
    pub(crate) group: String,
    /// Service of the messages
    #[arg(long, value_name = "SERVICE", default_value = "fifo", value_parser = service)]
    pub(crate) service: Service,
    /// Benefit of the messages, if the daemon has flow control [default: the daemon's]
    #[arg(long, value_name = "BENEFIT", value_parser = benefit)]
    pub(crate) benefit: Option<Benefit>,
    /// Highest rate in messages per second [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Read messages with their length (4 bytes, most significant first) instead of lines
    #[arg(long)]
    pub(crate) binary: bool,
    /// Print the number of members that each message has reached, and wait for all receipts
    #[arg(long)]
    pub(crate) receipts: bool,
    #[command(flatten)]
    pub(crate) to: ConnectOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast sub chat
  faircast sub chat logs --json          with senders, members and views
  faircast sub numbers --count 10        ends after ten messages

A lost connection is opened again, and no message comes twice. Lost events are reported on standard
error. Ctrl-C ends it.

Exit status: 0 ended by Ctrl-C or --count, 1 there is no daemon or it refuses, 2 the arguments are
wrong.")]
pub(crate) struct SubArgs {
    /// Names of the groups
    #[arg(value_name = "GROUP", required = true)]
    pub(crate) groups: Vec<String>,
    /// Print all events as JSON, one a line
    #[arg(long, conflicts_with = "binary")]
    pub(crate) json: bool,
    /// Write messages with their length (4 bytes, most significant first) instead of lines
    #[arg(long)]
    pub(crate) binary: bool,
    /// Hold the senders of these groups while a member is slow, instead of cutting the member off
    #[arg(long)]
    pub(crate) hold_senders: bool,
    /// Number of messages after which the program ends [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) to: ConnectOptions,
}

fn service(text: &str) -> Result<Service, String> {
    named(text, &Service::ALL, Service::name)
}

fn benefit(text: &str) -> Result<Benefit, String> {
    named(text, Benefit::EACH, Benefit::name)
}

fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().find(|it| name(**it) == text).copied();
    let names: Vec<_> = all.iter().map(|it| name(*it)).collect();
    found.ok_or_else(|| format!("expected one of {}", names.join(", ")))
}
