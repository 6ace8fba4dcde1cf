//! The examples run and print what they promise.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::PathBuf;
use std::process::Command;

fn example(name: &str) -> Command {
    let mut folder: PathBuf = std::env::current_exe().unwrap();
    folder.pop();
    folder.pop();
    Command::new(folder.join("examples").join(name))
}

#[test]
fn messages_get_to_both_receivers() {
    let said = example("messages").output().unwrap();
    let out = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(out.contains("first: message 1") && out.contains("second: message 3"), "{out}");
}

#[test]
fn files_get_to_the_receiver() {
    let said =
        example("send_files").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output();
    let said = said.unwrap();
    let out = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(out.contains("example is Done") && out.contains("Cargo.toml"), "{out}");
}
