//! Devices, pipes and commands at both ends of a transfer.

use std::io::Write as _;
use std::process::Child;

use nix::sys::signal::Signal;

use super::live::{Running, digest, event, events, group, noise, until};
use super::*;

/// A sender whose standard input is a pipe, into which `bytes` are written, half of them at once and
/// the rest when the caller lets them.
pub(super) fn pipe(arguments: &[&str], bytes: &[u8]) -> (Running, impl FnOnce() + use<>) {
    let mut child: Child = program(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let half = bytes.len() / 2;
    let (first, second) = (bytes[..half].to_vec(), bytes[half..].to_vec());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        input.write_all(&first).unwrap();
        // Where the test has failed before nobody lets it go on.
        let _ = wait.recv();
        input.write_all(&second).unwrap();
    });
    let rest = move || {
        go.send(()).unwrap();
        writer.join().unwrap();
    };
    (Running::of(child), rest)
}

#[test]
fn a_pipe_gets_to_a_file_and_through_a_command_with_a_key_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    // No zeros: what is written can be told from what is not.
    let bytes: Vec<u8> = noise(12_000_000).into_iter().map(|byte| byte | 1).collect();
    std::fs::write(at("image"), &bytes).unwrap();
    succeed(&["key", "new", &at("group.key")]);
    for key in [false, true] {
        let group = group();
        let key = if key { vec!["--key".to_string(), at("group.key")] } else { Vec::new() };
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        let common = [&["--group", &group, "--interface", "lo", "--json"][..], &key].concat();
        let command = format!("tee {} | sha256sum > {}", at("copy"), at("sum"));
        let own = ["recv", "--to-command", &command, "--object", "disk", "--name", "command"];
        let by_command = Running::start(&[&own[..], &common].concat());
        let (out, journal) = (at("out"), at("journal"));
        let own = ["recv", "--to-device", &out, "--object", "disk", "--name", "device"];
        let device = [&own[..], &["--journal", &journal], &common].concat();
        let killed = Running::start(&device);
        let own = ["send", "-", "--name", "disk", "--wait-for", "2", "--give-up", "5s"];
        let (sender, rest) = pipe(&[&own[..], &common].concat(), &bytes);
        until("a group is in the journal", || {
            std::fs::metadata(at("journal")).is_ok_and(|it| it.len() > 36)
        });
        killed.signal(Signal::SIGKILL);
        killed.end();
        let again = Running::start(&device);
        rest();
        let sent = sender.end();
        let told = events("send", &sent.out);
        assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
        assert_eq!(event(&told, "summary")["bytes_total"], bytes.len());
        let received = again.end();
        assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
        let told = events("recv", &received.out);
        let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
        assert!(found >= 1 << 20, "{found} bytes were there from the first run");
        let received = by_command.end();
        assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
        let want = digest(&folder.path().join("image"));
        assert_eq!(digest(&folder.path().join("out")), want);
        assert_eq!(digest(&folder.path().join("copy")), want);
        assert!(std::fs::read_to_string(at("sum")).unwrap().starts_with(&want));
        assert!(!Path::new(&at("journal")).exists(), "it has nothing to say any more");
        std::fs::remove_file(at("out")).unwrap();
    }
}

#[test]
fn a_host_that_comes_back_in_the_session_of_another_object_does_not_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    for (name, salt) in [("windows", 1), ("linux", 2)] {
        let bytes: Vec<u8> = noise(3_000_000).into_iter().map(|byte| byte ^ salt).collect();
        std::fs::write(at(name), bytes).unwrap();
    }
    std::fs::write(at("disk"), b"what is on the disk").unwrap();
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--json"];
    // A session of `linux` is under way for others, when a host comes back that is to get `windows`.
    let other = ["recv", "--into", &at("in"), "--once", "--name", "other"];
    let other = Running::start(&[&other[..], &common].concat());
    let slow = ["send", &at("linux"), "--rate-max", "8Mbit/s"];
    let linux = Running::start(&[&slow[..], &common].concat());
    until("the other session is under way", || Path::new(&at("in/.faircast")).exists());
    let host = ["recv", "--to-device", &at("disk"), "--object", "windows", "--name", "host"];
    let host = Running::start(&[&host[..], &common].concat());
    let sent = linux.end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    assert_eq!(other.end().code, Some(0));
    assert_eq!(std::fs::read(at("disk")).unwrap(), b"what is on the disk");
    // It waits for its own.
    let windows = ["send", &at("windows")];
    let sent = Running::start(&[&windows[..], &common].concat()).end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    let received = host.end();
    assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
    assert_eq!(digest(&folder.path().join("disk")), digest(&folder.path().join("windows")));
}

#[test]
fn a_command_that_fails_or_ends_early_is_no_success_for_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    std::fs::write(&file, noise(300_000)).unwrap();
    for (command, want) in [
        ("cat > /dev/null; exit 3", "the command `cat > /dev/null; exit 3` failed: exit status: 3"),
        ("head -c 10 > /dev/null", "ended (exit status: 0) before it had taken everything"),
    ] {
        let group = group();
        let common = ["--group", &group, "--interface", "lo", "--json"];
        let own = ["recv", "--to-command", command, "--object", "image"];
        let receiver = Running::start(&[&own[..], &common].concat());
        let sent = Running::start(&[&["send", &text_of(&file)], &common[..]].concat()).end();
        let received = receiver.end();
        assert_eq!((sent.code, received.code), (Some(1), Some(1)), "{}{}", sent.out, received.out);
        assert!(received.out.contains(want), "{}", received.out);
        let told = events("send", &sent.out);
        let reason =
            event(&told, "summary")["receivers"][0]["reason"].as_str().unwrap().to_string();
        assert!(reason.contains("exit status"), "{reason}");
    }
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_received() {
    let folder = tempfile::tempdir().unwrap();
    let own = ["recv", "--group", "239.192.78.1:7509", "--interface", "lo"];
    let place = text_of(folder.path());
    let disk = text_of(&folder.path().join("disk"));
    std::fs::write(&disk, b"what is on the disk").unwrap();
    let fifo = text_of(&folder.path().join("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (more, want) in [
        (&["--into", "/dev/no-such-disk"][..], "--to-device"),
        (&["--to-device", "/dev/no-such-disk", "--object", "a"], "there is no such device"),
        (&["--to-device", "/dev/null", "--object", "a"], "neither a block device nor a file"),
        (&["--to-device", &place, "--object", "a"], "neither a block device nor a file"),
        (&["--to-device", &fifo, "--object", "a"], "--to-command 'cat > PIPE'"),
        (&["--to-device", &disk, "--object", "a", "--journal", "/no/such"], "/no/such: cannot be"),
        (
            &["--to-device", &disk, "--object", "a", "--journal", &disk],
            "something else than a jour",
        ),
        (&["--to-device", "/no/such/disk", "--object", "a"], "/no/such/disk: cannot be written"),
        (&["--to-stdout"], "--to-command 'COMMAND'"),
        (&["--into", "-"], "--to-command 'COMMAND'"),
        (&["--to-device", "-", "--object", "a"], "--to-command 'COMMAND'"),
        (&["--to-device", "/tmp/x"], "--object"),
        (&["--to-command", "cat"], "--object"),
        (&["--to-command", "cat", "--object", "a", "--into", "d"], "cannot be used with"),
        (&["--into", "d", "--journal", "j"], "--to-device"),
    ] {
        let line = refuse(&[&own[..], more].concat());
        assert!(line.contains(want), "{more:?}: {line}");
    }
    assert!(!Path::new("/dev/no-such-disk").exists());
    let sends = ["send", "--group", "239.192.78.1:7509", "--interface", "lo"];
    for (more, want) in [
        (&["-", "README.md"][..], "alone"),
        (&["README.md", "--spool", "/tmp"], "--spool"),
        (&["-", "--spool", "/no-such-folder"], "/no-such-folder"),
        (&["-", "--name", "a/b"], "a/b"),
        (&["/dev/null"], "neither a file nor a directory"),
        (&[&fifo], "faircast send - < PIPE"),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let line = refuse(&[&sends[..], more, dry].concat());
            assert!(line.contains(want), "{more:?}: {line}");
        }
    }
}

/// A block device over a file, where this system lets us have one.
pub(super) struct Loop(pub(super) String);

impl Loop {
    pub(super) fn over(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_string();
        (made.status.success() && !name.is_empty()).then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A file system that is mounted from a device.
struct Mounted(String);

impl Mounted {
    fn from(device: &str, place: &Path) -> Option<Self> {
        std::fs::create_dir(place).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", device]).output().ok()?;
        let mounted = Command::new("mount").arg(device).arg(place).output().ok()?;
        (made.status.success() && mounted.status.success()).then(|| Self(text_of(place)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_device_that_is_mounted_or_of_which_a_part_is_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // One partition of 4 MiB, from 1 MiB on.
    let mut disk = vec![0; 8 << 20];
    disk[450] = 0x83;
    disk[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    disk[458..462].copy_from_slice(&8192_u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(at("disk.img"), &disk).unwrap();
    std::fs::write(at("whole.img"), vec![0; 8 << 20]).unwrap();
    let all = ["disk.img", "whole.img"].map(|name| Loop::over(&at(name)));
    let [Some(disk), Some(whole)] = all else {
        println!("no loop devices here: not tested");
        return;
    };
    let part = format!("{}p1", disk.0);
    let _ = Command::new("partx").args(["-a", &disk.0]).output();
    let Some(_whole) = Mounted::from(&whole.0, &at("mounted whole")) else { return };
    let mut cases = vec![(&whole.0, "mounted whole")];
    let _part = match Mounted::from(&part, &at("mounted part")) {
        Some(mounted) => {
            cases.extend([(&disk.0, "mounted part"), (&part, "mounted part")]);
            Some(mounted)
        }
        None => {
            println!("no partitions of loop devices here: not tested");
            None
        }
    };
    for (device, place) in cases {
        let own = ["recv", "--group", "239.192.78.1:7509", "--interface", "lo"];
        let line = refuse(&[&own[..], &["--to-device", device, "--object", "a"]].concat());
        let want = format!("is mounted at {}; free it first", text_of(&at(place)));
        assert!(line.contains(&want), "{device}: {line}");
        // It is sent with a warning: what is on it may change meanwhile.
        let plan = run_within(20, &["send", device, "--dry-run"]);
        assert_eq!(plan.code, Some(0), "{}", plan.err);
        assert!(plan.err.contains("is mounted at"), "{device}: {}", plan.err);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_gets_to_devices_with_a_key_and_a_killed_receiver_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("source.img"), noise(12_000_000 / 512 * 512)).unwrap();
    std::fs::write(at("target.img"), vec![0x55; 16 << 20]).unwrap();
    std::fs::write(at("small.img"), vec![0x55; 1 << 20]).unwrap();
    let all = ["source.img", "target.img", "small.img"].map(|name| Loop::over(&at(name)));
    let [Some(source), Some(target), Some(small)] = all else {
        println!("no loop devices here: not tested");
        return;
    };
    let group = group();
    let key = text_of(&at("group.key"));
    succeed(&["key", "new", &key]);
    let common = ["--group", &group, "--interface", "lo", "--json", "--key", &key];
    let journal = text_of(&at("journal"));
    let recv = |device: &Loop, name: &str| {
        let own = ["recv", "--to-device", &device.0, "--object", "disk", "--name", name];
        let journal: &[&str] = if name == "target" { &["--journal", &journal] } else { &[] };
        Running::start(&[&own[..], journal, &common].concat())
    };
    let (killed, too_small) = (recv(&target, "target"), recv(&small, "small"));
    let own = ["send", &source.0, "--name", "disk", "--wait-for", "2", "--rate-max", "30Mbit/s"];
    let sender = Running::start(&[&own[..], &["--give-up", "5s"], &common].concat());
    until("a group is in the journal", || {
        std::fs::metadata(&journal).is_ok_and(|it| it.len() > 36)
    });
    killed.signal(Signal::SIGKILL);
    killed.end();
    let received = recv(&target, "target").end();
    assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
    let told = events("recv", &received.out);
    assert!(event(&told, "complete")["bytes_found"].as_u64().unwrap() >= 1 << 20);
    let refused = too_small.end();
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.out.contains("is too small: it has 1048576 bytes"), "{}", refused.out);
    assert_eq!(sender.end().code, Some(1), "one of two could not take it");
    drop((source, target, small));
    let sum = |name: &str, len: usize| {
        let bytes = std::fs::read(at(name)).unwrap();
        std::fs::write(at("cut"), &bytes[..len]).unwrap();
        (digest(&at("cut")), bytes[len..].iter().all(|byte| *byte == 0x55))
    };
    let len = 12_000_000 / 512 * 512;
    let (copy, rest_is_there) = sum("target.img", len);
    assert_eq!(copy, digest(&at("source.img")));
    assert!(rest_is_there, "nothing is written beyond the end");
    assert_eq!(sum("small.img", 0), (sum("small.img", 0).0, true), "nothing of it was touched");
}
