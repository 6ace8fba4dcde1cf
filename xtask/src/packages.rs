//! Packages that the checks need in addition to cargo, and their installation.

use std::path::Path;

use crate::shell::{exists, output, run};

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

const fn need(
    any: &'static [&'static str],
    package: &'static str,
    why: &'static str,
    scope: Scope,
) -> Need {
    Need { any, package, why, scope }
}

const NEEDS: &[Need] = &[
    need(&["cc"], "gcc", "the linker", Scope::All),
    need(&["git"], "git", "the list of files", Scope::All),
    need(BROWSERS, "chromium", "the tests of the HTML report", Scope::Browser),
    need(&["ip"], "iproute2", INTEROP, Scope::Network),
    need(&["ethtool"], "ethtool", INTEROP, Scope::Network),
    need(&["pkg-config"], "pkg-config", INTEROP, Scope::Network),
    need(&["python3"], "python3", INTEROP, Scope::Network),
    need(&["tshark"], "tshark", INTEROP, Scope::Network),
    need(&["/usr/include/pgm-5.3/pgm/pgm.h"], "libpgm-dev", INTEROP, Scope::Network),
    need(FAKETIME, "libfaketime", "the test of clocks that jump", Scope::Network),
    need(&["/usr/include/zmq.h"], "libzmq3-dev", INTEROP, Scope::Network),
];

const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];
const FAKETIME: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
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
    let needed = NEEDS.iter().filter(|need| need.scope == Scope::Network);
    let absent = needed.filter(|need| !need.is_there()).map(|need| need.package);
    let absent: Vec<&str> = absent.collect();
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
    let mut add = |what: &str, name: &str, lacking: String| {
        if !exists("rustup") {
            return Err(format!("missing: {lacking}"));
        }
        run("rustup", &[what, "add", name], &[])?;
        done.push(format!("added {name}"));
        Ok(())
    };
    for (program, component) in COMPONENTS.iter().filter(|(program, _)| !exists(program)) {
        let lacking = format!("{program}, which is part of the Rust toolchain");
        add("component", component, lacking)?;
    }
    if !has_target(PROGRAMS_TARGET) {
        let lacking = format!("the standard library of Rust for {PROGRAMS_TARGET}");
        add("target", PROGRAMS_TARGET, lacking)?;
    }
    Ok(done)
}

fn has_target(target: &str) -> bool {
    let libraries = output("rustc", &["--print", "target-libdir", "--target", target]);
    libraries.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

fn is_root() -> bool {
    output("id", &["-u"]).is_ok_and(|id| id.trim() == "0")
}
