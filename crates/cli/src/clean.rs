//! `faircast clean`: removes the leftovers of transfers that were cut off.

use std::time::Duration as WallDuration;

use faircast::{clean as clean_folder, shown_path};
use serde_json::json;

use crate::args::CleanArgs;
use crate::error::{Failure, print};
use crate::live::words::lossless;

/// Removes what nobody is receiving and nobody has touched for the time that was asked for.
pub(crate) fn clean(args: &CleanArgs) -> Result<(), Failure> {
    let age = WallDuration::from_nanos(args.older_than.as_nanos());
    let mut removed = Vec::new();
    for dir in &args.dirs {
        let found = clean_folder(dir, age).map_err(|error| Failure::Work(error.to_string()))?;
        removed.extend(found);
    }
    if args.json {
        let paths: Vec<String> = removed.iter().map(|path| lossless(path)).collect();
        return print(&format!("{:#}\n", json!({ "removed": paths })));
    }
    let lines = removed.iter().map(|path| format!("removed {}\n", shown_path(path)));
    let text: String = lines.collect();
    print(if text.is_empty() { "nothing to remove\n" } else { &text })
}
