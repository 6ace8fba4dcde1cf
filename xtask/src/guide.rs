//! The guide for one's own scheme, followed: a copy of the repository gets the scheme, which must
//! then pass its tests and the contract, and run.

use std::fs;
use std::path::Path;

use crate::{new_scheme, shell};

/// The name that the guide uses.
pub(crate) const NAME: &str = "aimd";
const LEFT_OUT: &[&str] = &["target", ".git"];

/// Start of the version of all crates in the manifest of the workspace, and in that of the copy.
/// Cargo mixes up crates of the same name and version in two copies of a workspace.
const VERSION: [&str; 2] = ["\nversion = \"", "\nversion = \"0.0.0-guide+"];

const PLAIN: &str = "profile.dev.package.faircast-proto.opt-level=0";

/// Follows the guide: the scheme's tests and the contract. With `whole`, the program runs the
/// scheme's scenario and its column of the matrix; all stacks run in the lab and on real sockets.
pub(crate) fn check(target: &Path, whole: bool) -> Result<String, String> {
    let copy = target.join("guide");
    let failed = |error: std::io::Error| format!("{}: {error}", copy.display());
    if copy.exists() {
        fs::remove_dir_all(&copy).map_err(failed)?;
    }
    copy_all(shell::root(), &copy).map_err(failed)?;
    let manifest = copy.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(failed)?;
    fs::write(&manifest, text.replacen(VERSION[0], VERSION[1], 1)).map_err(failed)?;
    let (manifest, target) = (manifest.display().to_string(), target.display().to_string());
    new_scheme::make(&copy, NAME)?;
    let steps = [
        // These few tests run in no time, and without optimisation they build in half of it.
        format!("test -p faircast-proto --lib --config {PLAIN} congestion::{NAME}"),
        // Relay nodes know nothing of schemes.
        "test -p faircast-sim --test contract --test memory -- --skip relays::".to_string(),
        format!("run -q -p faircast-cli -- run scenarios/{NAME}-beside-tcp.toml"),
        format!("run -q -p faircast-cli -- bench matrix --scheme {NAME} --quick"),
        // Over every transport and under credits: in simulator and lab, and on real sockets.
        "test -p faircast-experiment --lib stacks::".to_string(),
        "test -p faircast --test live over_every_stack".to_string(),
    ];
    for arguments in steps.iter().take(if whole { usize::MAX } else { 2 }) {
        let (command, rest) = arguments.split_once(' ').expect("a command has arguments");
        // Tests that may run beside it go first.
        let mut all = vec!["-n", "10", "cargo", command];
        all.extend(["--manifest-path", &manifest, "--target-dir", &target]);
        all.extend(rest.split(' '));
        shell::run_in(&copy, "nice", &all, &[("FAIRCAST_SCHEME", NAME)])?;
    }
    let more = if whole { ", runs in simulator, lab and live, and has its column" } else { "" };
    Ok(format!("`{NAME}` is made and passes the contract{more}"))
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                copy_all(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
        return Ok(());
    }
    fs::copy(from, to).map(|_| ())
}
