//! `faircast clean`.

use std::path::PathBuf;

use faircast_base::Duration;

use super::live::duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast clean in                      leftovers of more than 30 days (720 h)
  faircast clean in --older-than 0s      all leftovers that no running recv uses

An interrupted transfer keeps its content in DIR/.faircast, so that the next transfer continues. Leftovers
of an earlier version are removed once a newer version of the same name is complete. The state of a
running recv always stays.

Exit status: 0 done, 1 something cannot be removed, 2 the arguments are wrong.")]
pub(crate) struct CleanArgs {
    /// Folders of `recv --into`
    #[arg(value_name = "DIR", required = true)]
    pub(crate) dirs: Vec<PathBuf>,
    /// Least age of leftovers that are removed
    #[arg(long, value_name = "TIME", default_value = "720h", value_parser = duration)]
    pub(crate) older_than: Duration,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
