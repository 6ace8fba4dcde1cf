//! Arguments of `faircast send` about files and folders.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use faircast::{Links, ScanOptions};

use crate::error::{Failure, Result};

#[derive(Debug, Args)]
#[command(next_help_heading = "Content")]
pub(crate) struct FileOptions {
    /// Folder for a temporary copy of standard input, which late receivers need; it needs room for
    /// all of it [default: folder for temporary files of the system]
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Name of the content at receivers [default: last name of the first PATH; `pipe` for -]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Symbolic links inside folders: `keep` links whose target is sent too, and leave out others;
    /// `follow` links and send their targets; `skip` links
    #[arg(long, value_name = "POLICY", default_value = "keep", value_parser = links(), hide_possible_values = true)]
    pub(crate) links: Links,
    /// Pattern of names to leave out, as in .gitignore: '*.tmp', 'cache/' (folders), '/photos/raw'
    /// (path at the receiver), '!keep.tmp' (exception); may be repeated, the last match counts
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// File with patterns of names to leave out, one a line; --exclude comes after them
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Without effect: all names that a Linux system can hold are sent.
    #[arg(long, hide = true)]
    pub(crate) skip_bad_names: bool,
    /// Send the owners of files, folders and links; receivers with --owner set them
    #[arg(long)]
    pub(crate) owner: bool,
    /// Send extended attributes (user.*) and access control lists; receivers with --xattrs set them
    #[arg(long)]
    pub(crate) xattrs: bool,
    /// Print the list of entries, and send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn links() -> impl TypedValueParser<Value = Links> {
    PossibleValuesParser::new(["keep", "follow", "skip"]).map(|name| match &*name {
        "follow" => Links::Follow,
        "skip" => Links::Skip,
        _ => Links::Keep,
    })
}

impl FileOptions {
    pub(crate) fn scan(&self) -> Result<ScanOptions> {
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
