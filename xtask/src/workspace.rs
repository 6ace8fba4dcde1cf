//! The crates of the workspace, as cargo knows them.

use std::path::PathBuf;

use serde_json::Value;

use crate::shell;

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Crate {
    /// Its name without the prefix `faircast-`.
    pub(crate) name: String,
    /// Its `Cargo.toml`.
    pub(crate) manifest: PathBuf,
    /// The crates of the workspace that it uses when it is built or runs, without the prefix.
    pub(crate) uses: Vec<String>,
    /// The names of its programs.
    pub(crate) programs: Vec<String>,
}

const PREFIX: &str = "faircast-";

/// All crates of the workspace.
pub(crate) fn crates() -> Result<Vec<Crate>, String> {
    let text =
        shell::output("cargo", &["metadata", "--format-version", "1", "--no-deps", "--offline"])?;
    let metadata: Value =
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    Ok(packages.iter().map(from_metadata).collect())
}

fn from_metadata(package: &Value) -> Crate {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let short = |value: &Value| text(value).trim_start_matches(PREFIX).to_string();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let uses = list(&package["dependencies"])
        .iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter(|dependency| dependency["path"].is_string())
        .map(|dependency| short(&dependency["name"]))
        .collect();
    let programs = list(&package["targets"])
        .iter()
        .filter(|target| list(&target["kind"]).iter().any(|kind| kind == "bin"))
        .map(|target| text(&target["name"]))
        .collect();
    Crate {
        name: short(&package["name"]),
        manifest: PathBuf::from(text(&package["manifest_path"])),
        uses,
        programs,
    }
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let text =
        shell::output("cargo", &["metadata", "--format-version", "1", "--no-deps", "--offline"])?;
    let metadata: Value =
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(PathBuf::from(metadata["target_directory"].as_str().unwrap_or("target")))
}
