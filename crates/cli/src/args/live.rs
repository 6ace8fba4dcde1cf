//! What `send` and `recv` have in common.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use faircast_base::{Bitrate, Bytes, Duration, Quantity};

/// The key of the group.
#[derive(Debug, Clone, Args)]
pub struct KeyOptions {
    /// Encrypt and authenticate everything with the key of this file; see `faircast key new`
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Take the key although others may read its file
    #[arg(long, requires = "key")]
    pub key_exposed: bool,
}

/// How to watch a session.
#[derive(Debug, Clone, Args)]
pub struct WatchOptions {
    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Write a trace of everything to this file; `faircast report FILE` makes a page of it
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print events as JSON, one a line, instead of text
    #[arg(long)]
    pub json: bool,
    /// Print nothing but errors and the result
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Write the log to standard error as JSON; FAIRCAST_LOG=debug chooses what is logged
    #[arg(long)]
    pub log_json: bool,
}

/// Reads a duration, such as 30s.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    quantity(text)
}

/// Reads a rate above zero, such as 10Mbit/s.
pub(super) fn rate(text: &str) -> Result<Bitrate, String> {
    match quantity::<Bitrate>(text)? {
        rate if rate.bits_per_s() == 0 => Err("must be above zero".to_string()),
        rate => Ok(rate),
    }
}

/// Reads a number of bytes, such as 9000 or 9000B.
pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(count) => Ok(Bytes::new(count)),
        Err(_) => quantity(text),
    }
}

fn quantity<Q: Quantity>(text: &str) -> Result<Q, String> {
    Q::parse(text).map_err(|error| error.to_string())
}
