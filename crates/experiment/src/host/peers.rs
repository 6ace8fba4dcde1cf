//! The programs of peers: which are there, and compiling those that we wrote against their
//! libraries.

use std::path::Path;
use std::process::{Command, Stdio};

/// Why a program cannot be run here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unprepared {
    /// It, or what it is made with, is not installed: what to install.
    #[error("{0}")]
    Missing(String),
    /// What is installed, or what is ours, does not do.
    #[error("{0}")]
    Failed(String),
}

/// A program of ours on the library of a peer.
pub(crate) struct Written {
    pub(crate) name: &'static str,
    source: &'static str,
    suffix: &'static str,
    compiler: &'static str,
    /// What `pkg-config` knows the library as; its flags are added.
    library: &'static str,
    flags: &'static [&'static str],
    /// Debian's package with the library and its header.
    package: &'static str,
}

pub(crate) const NORM: Written = Written {
    name: "norm",
    source: include_str!("../../../../tests/interop/norm.cpp"),
    suffix: "cpp",
    compiler: "c++",
    library: "norm",
    flags: &["-lpthread"],
    package: "libnorm-dev",
};

pub(crate) const LIBPGM: Written = Written {
    name: "libpgm",
    source: include_str!("../../../../tests/interop/libpgm.c"),
    suffix: "c",
    compiler: "cc",
    library: "openpgm-5.3",
    flags: &[],
    package: "libpgm-dev",
};

pub(crate) const ZEROMQ: Written = Written {
    name: "zeromq",
    source: include_str!("../../../../tests/interop/zeromq.c"),
    suffix: "c",
    compiler: "cc",
    library: "libzmq",
    flags: &[],
    package: "libzmq3-dev",
};

impl Written {
    /// Compiles it into a folder, once.
    pub(crate) fn compile(&self, folder: &Path) -> Result<(), Unprepared> {
        let program = folder.join(self.name);
        if program.exists() {
            return Ok(());
        }
        let missing = format!("apt-get install {} pkg-config g++", self.package);
        let source = folder.join(format!("{}.{}", self.name, self.suffix));
        std::fs::write(&source, self.source)
            .map_err(|error| Unprepared::Failed(error.to_string()))?;
        let library =
            output("pkg-config", &["--cflags", "--libs", self.library]).ok_or_else(|| {
                Unprepared::Missing(format!("{} is not installed: {missing}", self.library))
            })?;
        let said = Command::new(self.compiler)
            .args(["-O2", "-w", "-o"])
            .args([&program, &source])
            .args(library.split_whitespace())
            .args(self.flags)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                Unprepared::Missing(format!("{}: {error}: {missing}", self.compiler))
            })?;
        match said.status.success() {
            true => Ok(()),
            false => Err(Unprepared::Failed(format!(
                "{} does not compile: {}",
                self.name,
                String::from_utf8_lossy(&said.stderr).lines().next().unwrap_or_default()
            ))),
        }
    }
}

/// Whether a program can be found; the error says what to install.
pub(crate) fn installed(program: &str, package: &str) -> Result<(), Unprepared> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        true => Ok(()),
        false => {
            let missing = format!("{program} is not installed: apt-get install {package}");
            Err(Unprepared::Missing(missing))
        }
    }
}

fn output(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
