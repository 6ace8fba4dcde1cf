//! Clocks that jump by an hour in the middle of a transfer, the monotonic one and that of the day.
//! libfaketime stands between the programs and the system's clocks; that of the machine is left alone.

use std::path::PathBuf;

use super::live::{Running, digest, event, events, group, noise, until};
use super::*;

/// Where Debian puts libfaketime for programs of several threads.
fn library() -> Option<PathBuf> {
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let paths = folders.map(|arch| format!("/usr/lib/{arch}/faketime/libfaketimeMT.so.1"));
    paths.into_iter().map(PathBuf::from).find(|path| path.exists())
}

/// A program whose clocks are ahead by what the file `clock` says.
fn with_clock(library: &Path, clock: &Path, arguments: &[&str]) -> Running {
    std::fs::write(clock, "+0").unwrap();
    let child = program(arguments)
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", clock)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "0")
        .env("FAIRCAST_LOG", "debug")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Running::of(child.unwrap())
}

/// Whether a receiver has begun to keep content.
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
        let folder = tempfile::tempdir().unwrap();
        let (file, into) = (folder.path().join("file"), folder.path().join("in"));
        let clocks = ["send", "recv"].map(|name| folder.path().join(name));
        std::fs::write(&file, noise(4_000_000)).unwrap();
        let (group, path, target) = (group(), text_of(&file), text_of(&into));
        let end = ["--group", &group, "--interface", "lo", "--json"];
        let receive = [&["recv", "--into", &target, "--once"], &end[..]].concat();
        let receiver = with_clock(&library, &clocks[1], &receive);
        let send = [&["send", &path, "--rate-max", "20Mbit/s"], &end[..]].concat();
        let sender = with_clock(&library, &clocks[0], &send);
        until("content comes", || has_begun(&into));
        std::fs::write(&clocks[usize::from(who == "recv")], "+1h").unwrap();
        let (sender, receiver) = (sender.end(), receiver.end());
        for (verb, ended) in [("send", &sender), ("recv", &receiver)] {
            assert_eq!(ended.code, Some(0), "{who}, {verb}: {}{}", ended.out, ended.err);
            assert_eq!(event(&events(verb, &ended.out), "summary")["ok"], true);
            // The clock that jumped was read: the driver says so.
            let told = ended.err.contains("the clock went ahead by 36");
            assert_eq!(told, verb == who, "{who}, {verb}: {}", ended.err);
        }
        assert_eq!(digest(&into.join("file")), digest(&file));
    }
}
