//! Live tests against OpenPGM's library, ZeroMQ over it, and tshark as a dissector.
//!
//! Hosts are network namespaces. Small programs in `tests/interop`, compiled here, link the other
//! implementations. Without root or a package the tests are skipped; with
//! `FAIRCAST_REQUIRE_INTEROP` they fail.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod capture;
mod hop;
mod hosts;
mod libpgm;
#[path = "../../../../tests/noise.rs"]
mod noise;
mod objects;
mod ours;
mod zeromq;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const GROUP: [u8; 4] = [239, 192, 0, 1];

const PORT: u16 = 7500;

fn programs() -> Option<&'static Path> {
    static PROGRAMS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PROGRAMS.get_or_init(build) {
        Ok(folder) => Some(folder),
        Err(why) => {
            let required = std::env::var_os("FAIRCAST_REQUIRE_INTEROP").is_some();
            assert!(!required, "interoperation cannot be tested: {why}");
            eprintln!("passed over: {why}");
            None
        }
    }
}

fn build() -> Result<PathBuf, String> {
    if !nix::unistd::Uid::effective().is_root() {
        return Err("network namespaces need root".into());
    }
    for (program, package) in
        [("ip", "iproute2"), ("ethtool", "ethtool"), ("tshark", "tshark"), ("cc", "gcc")]
    {
        if !has(program) {
            return Err(format!("{program} is not installed: apt-get install {package}"));
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
    for (name, library, package) in
        [("libpgm", "openpgm-5.3", "libpgm-dev"), ("zeromq", "libzmq", "libzmq3-dev")]
    {
        let said = Command::new("pkg-config").args(["--cflags", "--libs", library]).output();
        let said = said.map_err(|_| "pkg-config is not installed".to_string())?;
        if !said.status.success() {
            return Err(format!("{library} is not installed: apt-get install {package}"));
        }
        let flags = String::from_utf8_lossy(&said.stdout).into_owned();
        let said = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-o"])
            .arg(folder.join(name))
            .arg(sources.join(format!("{name}.c")))
            .args(flags.split_whitespace())
            .output()
            .map_err(|error| error.to_string())?;
        let complaints = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && complaints.is_empty(), "{name}: {complaints}");
    }
    Ok(folder)
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn until<T>(mut found: impl FnMut() -> Option<T>, known: impl Fn() -> String) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < START_TIMEOUT, "after {START_TIMEOUT:?}: {}", known());
        std::thread::sleep(Duration::from_millis(10));
    }
}

const START_TIMEOUT: Duration = Duration::from_secs(60);

fn content(len: usize) -> Vec<u8> {
    noise::noise(len, 1)
}
