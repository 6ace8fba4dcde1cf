//! The policies of the SDK, built as programs.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

pub(crate) const ALL: [&str; 7] = [
    "worst_path",
    "best_path",
    "quantile",
    "bounded_lag",
    "deadline",
    "layered_drop",
    "weighted_utility",
];

pub(crate) fn build(arguments: &[&str]) -> PathBuf {
    let target = "wasm32-unknown-unknown";
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("target/programs");
    let ended = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--target", target, "--profile", "program", "--target-dir"])
        .arg(&folder)
        .args(arguments)
        .current_dir(&root)
        // The settings of the test run must not apply to this build.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(ended.success(), "is the target there? rustup target add {target}");
    folder.join(target).join("program")
}

pub(crate) fn program(name: &str) -> Vec<u8> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| build(&["-p", "faircast-relay-sdk", "--examples"]));
    let file = folder.join("examples").join(format!("{name}.wasm"));
    std::fs::read(file).expect("it was built")
}
