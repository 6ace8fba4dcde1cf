//! Whole transfers at the sizes that operators have: trees, devices and pipes, plain and with a key,
//! each after a kill of one receiver, compared by digests that other programs take.
//!
//! They take minutes and gigabytes, and so run only when they are asked for:
//! HACKING.md has the command.

use nix::sys::signal::Signal;

use super::images::{Loop, pipe};
use super::live::{Running, digest, event, events, group, noise, until};
use super::trees::{facts, hub};
use super::*;

/// Seconds after which a transfer is taken to hang.
const LIMIT_S: u64 = 600;

/// Runs `transfer` plain and with a key, with the options that all ends of it have.
fn plain_and_with_a_key(what: &str, transfer: impl Fn(&Path, &[&str])) {
    for key in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let key_file = text_of(&folder.path().join("group.key"));
        succeed(&["key", "new", &key_file]);
        let group = group();
        let mut common = vec!["--group", &*group, "--interface", "lo", "--json"];
        common.extend(key.then_some(["--key", &*key_file]).iter().flatten());
        let started = Instant::now();
        transfer(folder.path(), &common);
        let seconds = started.elapsed().as_secs_f64();
        println!("{what}, {}: intact after {seconds:.0} s", if key { "key" } else { "plain" });
    }
}

/// The end of a sender or receiver that must succeed.
fn succeeded(running: Running) -> Ended {
    let ended = running.end_within(LIMIT_S);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    ended
}

/// Whether a journal names groups that are complete, behind its head of 36 bytes.
fn some_is_in(journal: &Path) -> bool {
    std::fs::metadata(journal).is_ok_and(|it| it.len() > 36)
}

/// Bytes on the disk.
fn written(path: &Path) -> u64 {
    let said = Command::new("du").args(["-s", "-B1"]).arg(path).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    said.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

#[test]
#[ignore = "takes minutes"]
fn a_tree_with_blobs_a_sparse_image_and_20_000_files() {
    plain_and_with_a_key("tree", |folder, common| {
        let tree = folder.join("hub");
        hub(&tree, 2048);
        std::fs::write(tree.join("blobs/2fed"), noise(200_000_000)).unwrap();
        for file in 0..20_000_usize {
            let directory = tree.join(format!("many/{:03}", file % 200));
            if file < 200 {
                std::fs::create_dir_all(&directory).unwrap();
            }
            std::fs::write(directory.join(file.to_string()), noise(file % 5000)).unwrap();
        }
        let recv = |name: &str| {
            let into = text_of(&folder.join(name));
            let own = ["recv", "--into", &into, "--once", "--name", name];
            Running::start(&[&own[..], common].concat())
        };
        let (steady, killed) = (recv("steady"), recv("killed"));
        // Slow enough that something is left when a receiver is killed.
        let own = ["send", &text_of(&tree), "--wait-for", "2", "--rate-max", "400Mbit/s"];
        let sender = Running::start(&[&own[..], &["--give-up", "60s"], common].concat());
        let state = folder.join("killed/.faircast");
        until("some of the tree is in the journal", || {
            let objects = std::fs::read_dir(&state).into_iter().flatten().flatten();
            objects.into_iter().any(|object| some_is_in(&object.path().join("journal")))
        });
        killed.signal(Signal::SIGKILL);
        killed.end();
        let again = recv("killed");
        let sent = events("send", &succeeded(sender).out);
        let told = events("recv", &succeeded(again).out);
        let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
        assert!(found >= 1 << 20, "{found} bytes were there from the first run");
        succeeded(steady);
        let sent = event(&sent, "summary")["bytes_sent"].as_u64().unwrap();
        assert!(sent < 600_000_000, "{sent} bytes were sent for 250 MB and 2 GiB of holes");
        // Directories have sizes of their own.
        let files = |root: &Path| {
            let facts = facts(root);
            facts.lines().filter(|it| !it.contains(" d ")).map(str::to_string).collect::<Vec<_>>()
        };
        let want = files(&tree);
        assert!(want.len() > 40_000, "a line of facts and a digest for each file");
        for name in ["steady", "killed"] {
            let copy = folder.join(name).join("hub");
            assert!(files(&copy) == want, "{name} differs");
            assert!(written(&copy.join("disk.img")) < 4 << 20, "its holes are holes");
        }
    });
}

#[test]
#[ignore = "takes minutes"]
fn a_block_device_of_1_gib() {
    const LEN: usize = 1 << 30;
    plain_and_with_a_key("device", |folder, common| {
        let at = |name: &str| folder.join(name);
        std::fs::write(at("source.img"), noise(LEN)).unwrap();
        for name in ["steady.img", "killed.img"] {
            std::fs::File::create(at(name)).unwrap().set_len(LEN as u64).unwrap();
        }
        let device = |name| Loop::over(&at(name)).expect("losetup gives a device to root");
        let source = device("source.img");
        let (steady, killed) = (device("steady.img"), device("killed.img"));
        let journal = text_of(&at("journal"));
        let recv = |target: &Loop, name: &str| {
            let own = ["recv", "--to-device", &target.0, "--object", "disk", "--name", name];
            let journal: &[&str] = if name == "killed" { &["--journal", &journal] } else { &[] };
            Running::start(&[&own[..], journal, common].concat())
        };
        let (other, first) = (recv(&steady, "steady"), recv(&killed, "killed"));
        let own = ["send", &source.0, "--name", "disk", "--wait-for", "2", "--give-up", "60s"];
        let sender = Running::start(&[&own[..], common].concat());
        until("some of the device is in the journal", || some_is_in(Path::new(&journal)));
        first.signal(Signal::SIGKILL);
        first.end();
        let told = events("recv", &succeeded(recv(&killed, "killed")).out);
        let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
        assert!(found >= 1 << 20, "{found} bytes were there from the first run");
        succeeded(sender);
        succeeded(other);
        drop((source, steady, killed));
        let want = digest(&at("source.img"));
        assert_eq!(digest(&at("steady.img")), want);
        assert_eq!(digest(&at("killed.img")), want);
    });
}

#[test]
#[ignore = "takes minutes"]
fn a_pipe_of_300_mb_at_both_ends() {
    plain_and_with_a_key("pipe", |folder, common| {
        let at = |name: &str| text_of(&folder.join(name));
        let bytes = noise(300_000_000);
        std::fs::write(at("image"), &bytes).unwrap();
        let command = format!("tee {} | sha256sum > {}", at("copy"), at("sum"));
        let own = ["recv", "--to-command", &command, "--object", "disk", "--name", "command"];
        let by_command = Running::start(&[&own[..], common].concat());
        let (out, journal) = (at("out"), at("journal"));
        let own = ["recv", "--to-device", &out, "--object", "disk", "--journal", &journal];
        let to_file = [&own[..], &["--name", "file"], common].concat();
        let killed = Running::start(&to_file);
        let own = ["send", "-", "--name", "disk", "--wait-for", "2", "--give-up", "60s"];
        let (sender, rest) = pipe(&[&own[..], common].concat(), &bytes);
        until("some of the pipe is in the journal", || some_is_in(Path::new(&journal)));
        killed.signal(Signal::SIGKILL);
        killed.end();
        let again = Running::start(&to_file);
        rest();
        succeeded(sender);
        let told = events("recv", &succeeded(again).out);
        let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
        assert!(found >= 1 << 20, "{found} bytes were there from the first run");
        succeeded(by_command);
        let want = digest(Path::new(&at("image")));
        assert_eq!(digest(Path::new(&out)), want);
        assert_eq!(digest(Path::new(&at("copy"))), want);
        assert!(std::fs::read_to_string(at("sum")).unwrap().starts_with(&want));
    });
}
