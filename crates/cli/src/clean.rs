//! `faircast clean`: removes the leftovers of interrupted transfers.

use std::time::Duration as WallDuration;

use faircast::{clean as clean_folder, shown_path};
use serde_json::json;

use crate::args::CleanArgs;
use crate::error::{Failure, Result, print};
use crate::live::words::path_text;

pub(crate) fn clean(args: &CleanArgs) -> Result {
    let age = WallDuration::from_nanos(args.older_than.as_nanos());
    let (mut removed, mut errors) = (Vec::new(), Vec::new());
    for dir in &args.dirs {
        if let Err(error) = clean_folder(dir, age, &mut removed) {
            errors.push(error.to_string());
        }
    }
    if args.json {
        let paths: Vec<String> = removed.iter().map(|path| path_text(path)).collect();
        print(&format!("{:#}\n", json!({ "removed": paths })))?;
    } else if removed.is_empty() && errors.is_empty() {
        print("nothing to remove\n")?;
    } else {
        let lines = removed.iter().map(|path| format!("removed {}\n", shown_path(path)));
        print(&lines.collect::<String>())?;
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::Work(errors.join("; "))) }
}
