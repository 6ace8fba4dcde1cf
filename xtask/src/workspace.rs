//! Crates of the workspace, according to cargo.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::shell;

#[derive(Clone, Debug)]
pub(crate) struct Crate {
    /// Name of the crate's folder, used in documents.
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) manifest: PathBuf,
    /// Folders of the crates that it depends on, without test dependencies.
    pub(crate) uses: Vec<String>,
    pub(crate) tests: Vec<String>,
}

pub(crate) fn crates() -> Result<Vec<Crate>, String> {
    let packages = metadata()?["packages"].as_array().cloned().unwrap_or_default();
    Ok(packages.iter().map(from_metadata).collect())
}

fn from_metadata(package: &Value) -> Crate {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let list = |key: &str| package[key].as_array().cloned().unwrap_or_default().into_iter();
    let folder = |path: &Path| {
        path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    };
    let dependencies = list("dependencies").filter(|dependency| dependency["kind"] != "dev");
    let tests = list("targets").filter(|target| target["kind"][0] == "test");
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    Crate {
        name: manifest.parent().map_or(String::new(), folder),
        package: text(&package["name"]),
        manifest,
        uses: dependencies.filter_map(|it| Some(folder(Path::new(it["path"].as_str()?)))).collect(),
        tests: tests.map(|target| text(&target["name"])).collect(),
    }
}

pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let metadata = metadata()?;
    Ok(PathBuf::from(metadata["target_directory"].as_str().unwrap_or("target")))
}

fn metadata() -> Result<Value, String> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let text = shell::output("cargo", &arguments)?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}
