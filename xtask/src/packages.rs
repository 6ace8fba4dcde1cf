//! Packages that the checks need in addition to cargo, and their installation.

use std::path::Path;

use crate::shell::{exists, run};

/// Package, and how its presence shows.
struct Need {
    /// Alternatives: programs by name, files by path.
    any: &'static [&'static str],
    package: &'static str,
    why: &'static str,
    scope: Scope,
}

/// Tests that need a package.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Browser,
    /// Tests with other implementations in network namespaces: skipped without root.
    Network,
}

const INTEROP: &str = "the tests with other implementations";

const NEEDS: &[Need] = &[
    Need { any: &["cc"], package: "gcc", why: "the linker", scope: Scope::All },
    Need { any: &["git"], package: "git", why: "the list of files", scope: Scope::All },
    Need {
        any: &["chromium", "chromium-browser", "google-chrome"],
        package: "chromium",
        why: "the tests of the HTML report",
        scope: Scope::Browser,
    },
    Need { any: &["ip"], package: "iproute2", why: INTEROP, scope: Scope::Network },
    Need { any: &["ethtool"], package: "ethtool", why: INTEROP, scope: Scope::Network },
    Need { any: &["pkg-config"], package: "pkg-config", why: INTEROP, scope: Scope::Network },
    Need { any: &["python3"], package: "python3", why: INTEROP, scope: Scope::Network },
    Need { any: &["tshark"], package: "tshark", why: INTEROP, scope: Scope::Network },
    Need {
        any: &["/usr/include/pgm-5.3/pgm/pgm.h"],
        package: "libpgm-dev",
        why: INTEROP,
        scope: Scope::Network,
    },
    Need {
        any: &[
            "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
            "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
        ],
        package: "libfaketime",
        why: "the test of clocks that jump",
        scope: Scope::Network,
    },
    Need {
        any: &["/usr/include/zmq.h"],
        package: "libzmq3-dev",
        why: INTEROP,
        scope: Scope::Network,
    },
];

const COMPONENTS: &[(&str, &str)] = &[("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Second target of the pure crates, and only target of session programs.
pub(crate) const PROGRAMS_TARGET: &str = "wasm32-unknown-unknown";

pub(crate) fn install(with_browser: bool) -> Result<String, String> {
    let mut done = components()?;
    let missing = missing(with_browser);
    if missing.is_empty() {
        done.push("all packages are there".to_string());
        return Ok(done.join("; "));
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let command = format!("apt-get install {}", packages.join(" "));
    let whys: Vec<String> =
        missing.iter().map(|need| format!("{} for {}", need.package, need.why)).collect();
    if !exists("apt-get") {
        let whys = whys.join(", ");
        return Err(format!("missing: {whys}; this system has no apt-get: install them by hand"));
    }
    if !is_root() {
        return Err(format!(
            "missing: {}; run `sudo {command}`, or leave out the browser with --without-browser",
            whys.join(", ")
        ));
    }
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    run("apt-get", &["update", "-qq"], &quiet)?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(&packages);
    run("apt-get", &arguments, &quiet)?;
    if let Some(need) = self::missing(with_browser).first() {
        let what = need.any[0];
        return Err(format!("installed {}, and yet {what} is not there", packages.join(", ")));
    }
    done.push(format!("installed {}", packages.join(", ")));
    Ok(done.join("; "))
}

pub(crate) fn network() -> Result<(), String> {
    if !is_root() {
        return Err("network namespaces need root".to_string());
    }
    let absent: Vec<&str> = NEEDS
        .iter()
        .filter(|need| need.scope == Scope::Network && !need.is_there())
        .map(|need| need.package)
        .collect();
    if !absent.is_empty() {
        return Err(format!("missing: {}", absent.join(", ")));
    }
    let name = format!("xtask-{}", std::process::id());
    run("ip", &["netns", "add", &name], &[])
        .and_then(|()| run("ip", &["netns", "del", &name], &[]))
        .map_err(|error| format!("no network namespaces here: {error}"))
}

impl Need {
    fn is_there(&self) -> bool {
        self.any.iter().any(|what| match what.starts_with('/') {
            true => Path::new(what).exists(),
            false => exists(what),
        })
    }
}

fn missing(with_browser: bool) -> Vec<&'static Need> {
    let wanted = |need: &&Need| match need.scope {
        Scope::All => true,
        Scope::Browser => with_browser,
        Scope::Network => is_root() && exists("apt-get"),
    };
    NEEDS.iter().filter(wanted).filter(|need| !need.is_there()).collect()
}

fn components() -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    for (program, component) in COMPONENTS {
        if exists(program) {
            continue;
        }
        if !exists("rustup") {
            return Err(format!("missing: {program}, which is part of the Rust toolchain"));
        }
        run("rustup", &["component", "add", component], &[])?;
        done.push(format!("added {component}"));
    }
    if !crate::steps::has_target(PROGRAMS_TARGET) {
        if !exists("rustup") {
            return Err(format!("missing: the standard library of Rust for {PROGRAMS_TARGET}"));
        }
        run("rustup", &["target", "add", PROGRAMS_TARGET], &[])?;
        done.push(format!("added {PROGRAMS_TARGET}"));
    }
    Ok(done)
}

fn is_root() -> bool {
    crate::shell::output("id", &["-u"]).is_ok_and(|id| id.trim() == "0")
}
