//! Clock jumps of an hour during a transfer, faked for single programs by libfaketime.

use super::running::until;
use super::site::Site;
use super::*;

fn library() -> Option<PathBuf> {
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let paths = folders.map(|arch| format!("/usr/lib/{arch}/faketime/libfaketimeMT.so.1"));
    paths.into_iter().map(PathBuf::from).find(|path| path.exists())
}

fn with_clock(library: &Path, site: &Site, clock: &str, words: &str) -> Running {
    let clock = site.put(clock, "+0");
    let mut command = site.command(words);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "0");
    command.env("FAIRCAST_LOG", "debug");
    Running::spawn(command)
}

fn has_begun(into: &Path) -> bool {
    let parts = std::fs::read_dir(into.join(".faircast")).into_iter().flatten();
    parts.flatten().any(|found| found.path().join("0.part").exists())
}

#[test]
fn a_transfer_goes_on_where_clocks_jump_by_an_hour() {
    let Some(library) = library() else {
        assert!(std::env::var_os("FAIRCAST_REQUIRE_INTEROP").is_none(), "no libfaketime");
        eprintln!("passed over: libfaketime is not installed");
        return;
    };
    for who in ["send", "recv"] {
        let site = Site::with_file(4_000_000);
        let receiver = with_clock(&library, &site, "clock-recv", "recv --into in --once");
        let sender = with_clock(&library, &site, "clock-send", "send file --rate-max 20Mbit/s");
        until("content comes", || has_begun(&site.path("in")));
        site.put(&format!("clock-{who}"), "+1h");
        for (verb, ended) in [("send", sender), ("recv", receiver)] {
            let ended = ended.end_with(0);
            assert_eq!(ended.summary()["ok"], true);
            let told = ended.err.contains("the clock went ahead by 36");
            assert_eq!(told, verb == who, "{who}, {verb}: {}", ended.err);
        }
        site.assert_same("in/file", "file");
    }
}
