//! Trees with links, holes, owners and attributes, compared by other programs.

use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};

use nix::sys::signal::Signal;

use super::site::{Site, noise};
use super::*;

/// Returns the facts of a tree by `find` and `sha256sum`, without directories, whose sizes differ.
pub(super) fn facts(root: &Path) -> Vec<String> {
    let script = "cd \"$1\" && find . -printf '%p %y %m %s %T@ %l\\n' | sort && \
                  find . -type f -print0 | sort -z | xargs -0 -r sha256sum";
    let said = Command::new("sh").args(["-c", script, "sh"]).arg(root).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    said.lines().filter(|line| !line.contains(" d ")).map(str::to_string).collect()
}

pub(super) fn hub(root: &Path, mib: u64) {
    std::fs::create_dir_all(root.join("blobs")).unwrap();
    std::fs::create_dir_all(root.join("snapshots/main/sub")).unwrap();
    std::fs::write(root.join("blobs/0abc"), noise(1_500_000)).unwrap();
    std::fs::write(root.join("blobs/1def"), b"{}").unwrap();
    symlink("../../blobs/0abc", root.join("snapshots/main/model.bin")).unwrap();
    symlink("../../../blobs/1def", root.join("snapshots/main/sub/config.json")).unwrap();
    symlink("main", root.join("snapshots/latest")).unwrap();
    let image = std::fs::File::create(root.join("disk.img")).unwrap();
    image.set_len(mib << 20).unwrap();
    image.write_all_at(&noise(70_000), 0).unwrap();
    image.write_all_at(b"end", (mib << 20) - 3).unwrap();
    image.sync_all().unwrap();
}

#[test]
fn a_tree_of_blobs_snapshots_and_a_sparse_image_arrives_plain_and_with_a_key() {
    for sealed in [false, true] {
        let site = Site::keyed(sealed);
        let tree = site.path("hub");
        hub(&tree, 64);
        symlink("/etc/passwd", tree.join("absolute")).unwrap();
        symlink("../../outside", tree.join("snapshots/outside")).unwrap();
        let receiver = site.start("recv --into in --once");
        // An entry left out without an option makes the status 1, even if all else was received.
        let sent = site.start("send hub").end_with(1);
        receiver.end_with(0);
        let waiting = sent.event("waiting");
        assert_eq!((&waiting["files"], &waiting["links"]), (&3.into(), &3.into()));
        let summary = sent.summary();
        let skipped = serde_json::json!({ "links": 2, "special": 0, "excluded": 0, "names": 0, "lacking": 2 });
        assert_eq!(summary["skipped"], skipped);
        let bytes = summary["bytes_sent"].as_u64().unwrap();
        assert!(bytes < 30_000_000, "{bytes} bytes were sent for 3.6 MB with 62 MiB of holes");
        let warning = sent.event("warning");
        let warned = warning["text"].as_str().unwrap();
        assert!(warned.contains("2 symbolic links are not sent"), "{warned}");
        let mut want = facts(&tree);
        want.retain(|line| !line.contains("/absolute ") && !line.contains("/outside "));
        assert_eq!(facts(&site.path("in/hub")), want);
        let room = std::fs::metadata(site.path("in/hub/disk.img")).unwrap().blocks() * 512;
        assert!(room < 4 << 20, "the image takes {room} bytes");
        site.assert_same("in/hub/snapshots/latest/model.bin", "hub/blobs/0abc");
    }
}

#[test]
fn nothing_to_send_is_refused_with_what_to_do() {
    let site = Site::with("--group 239.192.78.1:7 --interface lo");
    hub(&site.path("hub"), 1);
    for dry in ["", "--dry-run"] {
        let send = format!("send hub/snapshots/main {dry}");
        let ended = site.start(&send).end_within(20).with(2);
        for want in ["nothing to send", "2 symbolic links are not sent", "--links follow"] {
            assert!(ended.err.contains(want), "{}", ended.err);
        }
    }
    let followed = site.start("send hub/snapshots/main --links follow --dry-run").end_with(0);
    assert!(followed.out.contains("2 files, 1.5 MB, as `main`"), "{}", followed.out);
    std::fs::create_dir(site.path("empty")).unwrap();
    site.start("send empty --dry-run").complain(2, "an empty directory");
}

#[test]
fn what_would_be_sent_is_told_without_sending_it() {
    let site = Site::with("");
    let group = "--group 239.192.7.1:7500";
    hub(&site.path("hub"), 20);
    site.put("hub/blobs/x.tmp", "x");
    site.put("hub/keep.tmp", "x");
    site.put("patterns", "# what editors leave\n*.tmp\n");
    let own = "send hub --dry-run --exclude-from patterns";
    let more = "--exclude !keep.tmp --exclude /hub/snapshots/main --name models";
    let plan = site.start(&format!("{own} {more}")).end_with(0);
    let want = "4 files, 1 link, 3.6 MB (and 18.9 MB of holes, which are not sent), as `models`\n\
                left out: 2 excluded\nnothing was sent (--dry-run)\n";
    assert_eq!((plan.out.as_str(), plan.err.as_str()), (want, ""));
    let plan = site.start(&format!("{own} {more} --json")).end().event("plan");
    assert_eq!(plan["skipped"]["excluded"], 2, "{plan}");
    assert_eq!(plan["bytes_holes"], 18 << 20, "{plan}");
    assert!(plan["to"] == "" && plan["growing"] == false, "{plan}");
    let pipe = format!("send - --dry-run --name disk {group}");
    let plan = site.start(&pipe).end_with(0);
    let want = "what comes from standard input, as `disk`, to 239.192.7.1:7500\n\
                nothing was sent (--dry-run)\n";
    assert_eq!((plan.out.as_str(), plan.err.as_str()), (want, ""));
    let plan = site.start(&format!("{pipe} --json")).end().event("plan");
    assert!(plan["to"] == "239.192.7.1:7500" && plan["growing"] == true, "{plan}");
    for (pattern, code, want) in [("[z-a]", 2, "the pattern \"[z-a]\" cannot be used"), ("", 0, "")]
    {
        let ended = site.start(&format!("{own} --exclude '{pattern}'")).end_with(code);
        assert!(ended.err.contains(want), "{}", ended.err);
    }
    site.start("send hub --dry-run --exclude-from /none").complain(2, "--exclude-from /none");
}

/// Returns the program as another user than root; `None` if this user is not root.
fn somebody(site: &Site) -> Option<impl Fn(&str) -> Command> {
    let own = site.path("faircast");
    std::fs::copy(env!("CARGO_BIN_EXE_faircast"), &own).unwrap();
    set_mode(own.parent().unwrap(), 0o777);
    is_root().then_some(move |words: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&own);
        command.args(site.arguments(words)).current_dir(own.parent().unwrap());
        command.stdin(Stdio::null());
        command
    })
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}

#[test]
fn what_cannot_be_read_is_told_at_once_and_before_anybody_waits_for_it() {
    let site = Site::with("");
    let Some(somebody) = somebody(&site) else { return };
    for (name, bits) in [("open", 0o644), ("secret", 0o600), ("other", 0o000)] {
        set_mode(&site.put(&format!("tree/{name}"), "x"), bits);
    }
    std::fs::create_dir(site.path("tree/closed")).unwrap();
    set_mode(&site.path("tree/closed"), 0o700);
    let run = |words: &str| Running::spawn(somebody(words)).end();
    let refused = run("send tree --dry-run").with(2);
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    for want in ["tree/secret", "tree/other", "tree/closed", "permissions", "--exclude"] {
        assert!(refused.err.contains(want), "{}", refused.err);
    }
    let others = "--exclude secret --exclude other --exclude closed/";
    assert_eq!(run(&format!("send tree --dry-run {others}")).with(0).err, "");
    let recv = "recv --group 239.192.78.1:7509 --interface lo --object a --to-device tree/open";
    let refused = run(recv).with(2);
    assert!(refused.err.contains("cannot be written: Permission denied"), "{}", refused.err);
}

#[test]
fn owners_are_given_by_root_and_refused_to_others_before_anything_comes() {
    let site = Site::with(&format!("--group {} --interface lo --owner", site::group()));
    let Some(somebody) = somebody(&site) else { return };
    let file = site.put("file", "mine");
    std::os::unix::fs::chown(&file, Some(4242), Some(4343)).unwrap();
    // With the same name, the second receiver would count as a restart of the first.
    let other = Running::spawn(somebody("recv --once --name poor --into poor"));
    let root = site.start("recv --once --into rich");
    site.start("send file --wait-for 2").say(1, "start recv as root");
    other.complain(1, "cannot give files to user 4242");
    assert!(!site.path("poor/file").exists());
    root.end_with(0);
    let arrived = std::fs::metadata(site.path("rich/file")).unwrap();
    assert_eq!((arrived.uid(), arrived.gid()), (4242, 4343));
}

#[test]
fn all_names_and_hard_links_arrive_and_lost_bits_are_told() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let site = Site::new();
    let tree = site.path("units");
    std::fs::create_dir(&tree).unwrap();
    let names: [&[u8]; 5] =
        [b"dev-by\\x2did.swap", b"c:", b"no\xffutf8", b"line\nbreak", "\u{202e}txt".as_bytes()];
    for name in names {
        std::fs::write(tree.join(OsStr::from_bytes(name)), noise(2000)).unwrap();
    }
    std::fs::hard_link(tree.join("c:"), tree.join("second")).unwrap();
    set_mode(&tree.join("c:"), 0o4755);
    let receiver = site.start("recv --into in --once");
    let sent = site.start("send units").end_with(0);
    let received = receiver.end_with(0);
    assert_eq!(sent.event("waiting")["hard_links"], 1);
    let warning = sent.event("warning")["text"].as_str().unwrap().to_string();
    assert!(warning.contains("set-user-ID") && warning.contains("units/c:"), "{warning}");
    for name in names {
        let there = std::fs::read(site.path("in/units").join(OsStr::from_bytes(name))).unwrap();
        assert!(there == noise(2000), "{name:?}");
    }
    let inode = |name: &str| std::fs::metadata(site.path("in/units").join(name)).unwrap().ino();
    assert_eq!(inode("c:"), inode("second"));
    assert!(received.out.contains("no\\\\xffutf8"), "{}", received.out);
}

#[test]
fn a_tree_that_changed_after_a_cut_goes_on_and_leaves_nothing_behind() {
    let site = Site::new();
    let tree = site.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("large"), noise(8_000_000)).unwrap();
    std::fs::write(tree.join("log"), noise(10)).unwrap();
    let receiver = site.start("recv --into in");
    let sender = site.start("send tree --rate-max 20Mbit/s");
    receiver
        .until("progress", |event| event["objects"][0]["bytes_done"].as_u64() > Some(4_000_000));
    sender.signal(Signal::SIGINT);
    sender.end_with(1);
    receiver.until("gone", |_| true);
    receiver.signal(Signal::SIGINT);
    receiver.end();
    std::fs::write(tree.join("log"), noise(20)).unwrap();
    let receiver = site.start("recv --into in --once");
    site.start("send tree").end_with(0);
    let received = receiver.end_with(0);
    let found = received.event("complete")["bytes_found"].as_u64();
    assert!(found >= Some(1 << 20), "{found:?}: at least a group was here");
    assert_eq!(facts(&site.path("in/tree")), facts(&tree));
    assert!(!site.path("in/.faircast").exists());
}

#[test]
fn leftovers_are_cleaned_once_they_are_old() {
    let site = Site::with_file(4_000_000);
    let receiver = site.start("recv --into in");
    let sender = site.start("send file --rate-max 10Mbit/s");
    receiver
        .until("progress", |event| event["objects"][0]["bytes_done"].as_u64() > Some(2_000_000));
    let clean = |words: &str| {
        let ended = program(words).current_dir(site.path("")).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    };
    // State in use stays, at any age.
    assert_eq!(clean("clean in --older-than 0s"), "nothing to remove\n");
    sender.signal(Signal::SIGKILL);
    sender.end();
    receiver.signal(Signal::SIGINT);
    receiver.end();
    assert!(site.path("in/.faircast").exists());
    assert_eq!(clean("clean in"), "nothing to remove\n");
    let removed = clean("clean in --older-than 0s");
    assert!(removed.starts_with("removed in/.faircast/"), "{removed}");
    assert!(!site.path("in/.faircast").exists());
}

#[test]
fn clean_reports_what_it_removed_before_an_error() {
    let site = Site::new();
    for json in [false, true] {
        std::fs::create_dir_all(site.path("in/.faircast/0123456789abcdef")).unwrap();
        let words = "clean in missing --older-than 0s";
        let mut clean = program(words);
        clean.args(json.then_some("--json")).current_dir(site.path(""));
        let ended = clean.output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let (said, errors) =
            [ended.stdout, ended.stderr].map(|it| String::from_utf8(it).unwrap()).into();
        assert!(said.contains("in/.faircast/0123456789abcdef"), "{said}");
        assert!(errors.contains("missing: cannot be opened"), "{errors}");
        assert!(!site.path("in/.faircast").exists());
    }
}
