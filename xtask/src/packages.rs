//! What the checks need beside cargo, and installing it.

use crate::shell::{exists, run};

/// A program that a check needs, and the Debian package that has it.
struct Need {
    /// Any of these will do.
    programs: &'static [&'static str],
    package: &'static str,
    why: &'static str,
    /// Only for the tests that look at pages in a browser.
    browser: bool,
}

const NEEDS: &[Need] = &[
    Need { programs: &["cc"], package: "gcc", why: "the linker", browser: false },
    Need { programs: &["git"], package: "git", why: "the list of files", browser: false },
    Need {
        programs: &["chromium", "chromium-browser", "google-chrome"],
        package: "chromium",
        why: "the tests of the HTML report",
        browser: true,
    },
];

/// Components of the toolchain that the checks call.
const COMPONENTS: &[(&str, &str)] = &[("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// Installs what is missing. Returns what was done, in words.
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
        let program = need.programs[0];
        return Err(format!("installed {}, and yet {program} is not in PATH", packages.join(", ")));
    }
    done.push(format!("installed {}", packages.join(", ")));
    Ok(done.join("; "))
}

/// What is needed and cannot be found.
fn missing(with_browser: bool) -> Vec<&'static Need> {
    NEEDS
        .iter()
        .filter(|need| with_browser || !need.browser)
        .filter(|need| !need.programs.iter().any(|program| exists(program)))
        .collect()
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
    Ok(done)
}

fn is_root() -> bool {
    crate::shell::output("id", &["-u"]).is_ok_and(|id| id.trim() == "0")
}
