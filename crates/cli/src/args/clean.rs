//! `faircast clean`.

use std::path::PathBuf;

use faircast_base::Duration;

use super::live::duration;

/// Arguments of `faircast clean`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast clean in                      what was not touched for 30 days (720 h)
  faircast clean in --older-than 0s      everything that nobody is receiving now

A transfer that was cut off leaves what came in DIR/.faircast, so that the next one goes on. That of an
earlier version goes by itself once a newer one of the same name is complete. What a running recv is
receiving always stays.

Exit status: 0 done, 1 something cannot be removed, 2 the arguments are wrong.")]
pub struct CleanArgs {
    /// The folders that `recv --into` has
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// Remove what was not touched for this time
    #[arg(long, value_name = "TIME", default_value = "720h", value_parser = duration)]
    pub older_than: Duration,
    /// Print the result as one JSON document
    #[arg(long)]
    pub json: bool,
}
