//! Arguments of `faircast send` about files and folders.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use faircast::{Links, ScanOptions};

use crate::error::Failure;

/// What is taken of paths.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is sent")]
pub struct FileOptions {
    /// What to call all of it at receivers [default: the last name of the first PATH; of -, pipe]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// What to do about symbolic links inside folders: `keep` those that lead to something in what
    /// is sent, and leave out others; `follow` them and send what they lead to; `skip` them
    #[arg(long, value_name = "WHAT", default_value = "keep", value_parser = links(), hide_possible_values = true)]
    pub links: Links,
    /// Leave out what fits this pattern, as in a .gitignore: '*.tmp', 'cache/' (folders), '/photos/raw'
    /// (as it arrives), '!keep.tmp' (do not leave out); may be repeated, the last that fits counts
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Leave out what fits a pattern of this file, one a line, before those of --exclude
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// Without effect: all names that a Linux system can hold are sent.
    #[arg(long, hide = true)]
    pub skip_bad_names: bool,
    /// Tell receivers whose files, folders and links are; they follow it where they have --owner too
    #[arg(long)]
    pub owner: bool,
    /// Send extended attributes (user.*) and access control lists; receivers take them where they
    /// have --xattrs too
    #[arg(long)]
    pub xattrs: bool,
    /// Say what would be sent, and send nothing
    #[arg(long)]
    pub dry_run: bool,
}

fn links() -> impl TypedValueParser<Value = Links> {
    PossibleValuesParser::new(["keep", "follow", "skip"]).map(|name| match &*name {
        "follow" => Links::Follow,
        "skip" => Links::Skip,
        _ => Links::Keep,
    })
}

impl FileOptions {
    pub(crate) fn scan(&self) -> Result<ScanOptions, Failure> {
        let mut exclude = Vec::new();
        for file in &self.exclude_from {
            let text = std::fs::read_to_string(file).map_err(|error| {
                Failure::Usage(format!("--exclude-from {}: {error}", file.display()))
            })?;
            exclude.extend(text.lines().map(ToString::to_string));
        }
        exclude.extend(self.exclude.iter().cloned());
        Ok(ScanOptions {
            name: self.name.clone(),
            links: self.links,
            exclude,
            owner: self.owner,
            xattrs: self.xattrs,
        })
    }
}
