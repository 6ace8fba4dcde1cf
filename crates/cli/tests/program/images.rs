//! Devices, pipes and commands at both ends of a transfer.

use std::io::Write as _;

use super::site::{Site, noise};
use super::*;

/// Writes half of `bytes` to the sender's standard input; the returned function writes the rest.
pub(super) fn pipe(mut command: Command, bytes: &[u8]) -> (Running, impl FnOnce() + use<>) {
    command.stdin(Stdio::piped());
    let mut sender = Running::spawn(command);
    let mut input = sender.input();
    let half = bytes.len() / 2;
    let (first, second) = (bytes[..half].to_vec(), bytes[half..].to_vec());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        input.write_all(&first).unwrap();
        let _ = wait.recv();
        input.write_all(&second).unwrap();
    });
    let rest = move || {
        go.send(()).unwrap();
        writer.join().unwrap();
    };
    (sender, rest)
}

/// Pipes `bytes` to a command and to a file, whose receiver is killed and started again.
pub(super) fn pipe_to_command_and_file(site: &Site, bytes: &[u8], give_up: &str) {
    site.put("image", bytes);
    let recv = "recv --object disk --name command --to-command 'tee copy | sha256sum > sum'";
    let by_command = site.start(recv);
    let recv = "recv --to-device out --object disk --name device --journal journal";
    let killed = site.start(recv);
    let send = format!("send - --name disk --wait-for 2 --give-up {give_up}");
    let (sender, rest) = pipe(site.command(&send), bytes);
    site.until_kept("journal");
    killed.kill();
    let again = site.start(recv);
    rest();
    assert_eq!(sender.end_with(0).summary()["bytes_total"], bytes.len());
    let found = again.end_with(0).event("complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    by_command.end_with(0);
    site.assert_same("out", "image");
    site.assert_same("copy", "image");
    let sum = std::fs::read_to_string(site.path("sum")).unwrap();
    assert!(sum.starts_with(&site::digest(&site.path("image"))));
    assert!(!site.path("journal").exists(), "it has nothing to say any more");
}

#[test]
fn a_pipe_gets_to_a_file_and_through_a_command_with_a_key_and_after_a_kill() {
    let bytes: Vec<u8> = noise(12_000_000).into_iter().map(|byte| byte | 1).collect();
    for sealed in [false, true] {
        pipe_to_command_and_file(&Site::keyed(sealed), &bytes, "5s");
    }
}

#[test]
fn a_host_that_comes_back_in_the_session_of_another_object_does_not_write_it() {
    let site = Site::new();
    for (name, salt) in [("windows", 1), ("linux", 2)] {
        site.put(name, noise(3_000_000).into_iter().map(|byte| byte ^ salt).collect::<Vec<u8>>());
    }
    let disk = site.put("disk", "what is on the disk");
    // A session of `linux` is running for others when a host joins that waits for `windows`.
    let other = site.start("recv --into in --once --name other");
    let linux = site.start("send linux --rate-max 8Mbit/s");
    running::until("the other session is under way", || site.path("in/.faircast").exists());
    let host = site.start("recv --to-device disk --object windows --name host");
    linux.end_with(0);
    other.end_with(0);
    assert_eq!(std::fs::read(disk).unwrap(), b"what is on the disk");
    site.start("send windows").end_with(0);
    host.end_with(0);
    site.assert_same("disk", "windows");
}

#[test]
fn a_command_that_fails_or_ends_early_is_no_success_for_anybody() {
    for (command, want) in [
        ("cat > /dev/null; exit 3", "the command `cat > /dev/null; exit 3` failed: exit status: 3"),
        ("head -c 10 > /dev/null", "ended (exit status: 0) before it had taken everything"),
    ] {
        let site = Site::new();
        site.put("image", noise(300_000));
        let receiver = site.start(&format!("recv --object image --to-command '{command}'"));
        let sent = site.start("send image").end_with(1);
        receiver.say(1, want);
        let reason = &sent.summary()["receivers"][0]["reason"];
        assert!(reason.as_str().unwrap().contains("exit status"), "{reason}");
    }
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_received() {
    let site = Site::with("--group 239.192.78.1:7509 --interface lo");
    site.put("disk", "what is on the disk");
    site.put("file", "x");
    assert!(Command::new("mkfifo").arg(site.path("fifo")).status().unwrap().success());
    for (words, want) in [
        ("recv --into /dev/no-such-disk", "--to-device"),
        ("recv --to-device /dev/no-such-disk --object a", "there is no such device"),
        ("recv --to-device /dev/null --object a", "neither a block device nor a file"),
        ("recv --to-device . --object a", "neither a block device nor a file"),
        ("recv --to-device fifo --object a", "--to-command 'cat > PIPE'"),
        ("recv --to-device disk --object a --journal /no/such", "/no/such: cannot be"),
        ("recv --to-device disk --object a --journal disk", "something else than a jour"),
        ("recv --to-device /no/such/disk --object a", "/no/such/disk: cannot be written"),
        ("recv --to-stdout", "--to-command 'COMMAND'"),
        ("recv --into -", "--to-command 'COMMAND'"),
        ("recv --to-device - --object a", "--to-command 'COMMAND'"),
        ("recv --to-device /tmp/x", "--object"),
        ("recv --to-command cat", "--object"),
        ("recv --to-command cat --object a --into d", "cannot be used with"),
        ("recv --into d --journal j", "--to-device"),
        ("send - file", "alone"),
        ("send file --spool /tmp", "--spool"),
        ("send - --spool /no-such-folder", "/no-such-folder"),
        ("send - --name a/b", "a/b"),
        ("send /dev/null", "neither a file nor a directory"),
        ("send fifo", "faircast send - < PIPE"),
    ] {
        let dry: &[&str] = if words.starts_with("send") { &["", "--dry-run"] } else { &[""] };
        for dry in dry {
            site.start(&format!("{words} {dry}")).refuse_with(want);
        }
    }
    assert!(!Path::new("/dev/no-such-disk").exists());
}

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
    let site = Site::with("");
    let mut disk = vec![0; 8 << 20];
    disk[450] = 0x83;
    disk[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    disk[458..462].copy_from_slice(&8192_u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    site.put("disk.img", &disk);
    site.put("whole.img", vec![0; 8 << 20]);
    let all = ["disk.img", "whole.img"].map(|name| Loop::over(&site.path(name)));
    let [Some(disk), Some(whole)] = all else {
        println!("no loop devices here: not tested");
        return;
    };
    let part = format!("{}p1", disk.0);
    let _ = Command::new("partx").args(["-a", &disk.0]).output();
    let Some(_whole) = Mounted::from(&whole.0, &site.path("mounted whole")) else { return };
    let mut cases = vec![(&whole.0, "mounted whole")];
    let _part = match Mounted::from(&part, &site.path("mounted part")) {
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
        let recv = format!("recv --group 239.192.78.1:7509 --interface lo --to-device {device}");
        let line = site.start(&format!("{recv} --object a")).refuse();
        let want = format!("is mounted at {}; free it first", site.at(place));
        assert!(line.contains(&want), "{device}: {line}");
        // A mounted device is sent with a warning: its content may change meanwhile.
        site.start(&format!("send {device} --dry-run")).complain(0, "is mounted at");
    }
}

#[test]
fn a_device_gets_to_devices_with_a_key_and_a_killed_receiver_goes_on() {
    const LEN: usize = 12_000_000 / 512 * 512;
    let site = Site::keyed(true);
    site.put("source.img", noise(LEN));
    site.put("target.img", vec![0x55; 16 << 20]);
    site.put("small.img", vec![0x55; 1 << 20]);
    let all = ["source.img", "target.img", "small.img"].map(|name| Loop::over(&site.path(name)));
    let [Some(source), Some(target), Some(small)] = all else {
        println!("no loop devices here: not tested");
        return;
    };
    let recv = |device: &Loop, more: &str| {
        site.start(&format!("recv --to-device {} --object disk {more}", device.0))
    };
    let killed = recv(&target, "--name target --journal journal");
    let too_small = recv(&small, "--name small");
    let send = format!("send {} --name disk --wait-for 2", source.0);
    let sender = site.start(&format!("{send} --rate-max 30Mbit/s --give-up 5s"));
    site.until_kept("journal");
    killed.kill();
    let received = recv(&target, "--name target --journal journal").end_with(0);
    assert!(received.event("complete")["bytes_found"].as_u64().unwrap() >= 1 << 20);
    too_small.say(1, "is too small: it has 1048576 bytes");
    sender.end_with(1);
    drop((source, target, small));
    let read = |name: &str| std::fs::read(site.path(name)).unwrap();
    let is_untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0x55);
    let (target, small) = (read("target.img"), read("small.img"));
    assert!(target[..LEN] == read("source.img"));
    assert!(is_untouched(&target[LEN..]), "nothing is written beyond the end");
    assert!(is_untouched(&small), "nothing of it was touched");
}
