//! Trees with links, holes, owners and attributes, compared with what other programs say of them.

use std::os::unix::fs::{FileExt as _, symlink};

use super::live::{Running, digest, event, events, group, noise};
use super::soak::is_root;
use super::*;

/// Everything of a tree, as `find` and `sha256sum` tell it.
pub(super) fn facts(root: &Path) -> String {
    let script = "cd \"$1\" && find . -printf '%p %y %m %s %T@ %l\\n' | sort && \
                  find . -type f -print0 | sort -z | xargs -0 -r sha256sum";
    let said = Command::new("sh").args(["-c", script, "sh"]).arg(root).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// A cache of models as hubs lay it out, beside a sparse image of so many MiB.
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
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    let tree = folder.path().join("hub");
    hub(&tree, 64);
    symlink("/etc/passwd", tree.join("absolute")).unwrap();
    symlink("../../outside", tree.join("snapshots/outside")).unwrap();
    let key = at("group.key");
    succeed(&["key", "new", &key]);
    for key in [None, Some(&*key)] {
        let group = group();
        let mut common = vec!["--group", &*group, "--interface", "lo", "--json"];
        common.extend(key.iter().flat_map(|key| ["--key", key]));
        let into = at(if key.is_some() { "sealed" } else { "plain" });
        let receiver = ["recv", "--into", &into, "--once"];
        let receiver = Running::start(&[&receiver[..], &common].concat());
        let sent = Running::start(&[&["send", &text_of(&tree)][..], &common].concat()).end();
        assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
        let received = receiver.end();
        assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
        let told = events("send", &sent.out);
        let waiting = event(&told, "waiting");
        assert_eq!((&waiting["files"], &waiting["links"]), (&3.into(), &3.into()));
        let summary = event(&told, "summary");
        let skipped = serde_json::json!({ "links": 2, "special": 0, "excluded": 0, "names": 0 });
        assert_eq!(summary["skipped"], skipped);
        let bytes = summary["bytes_sent"].as_u64().unwrap();
        assert!(bytes < 8_000_000, "{bytes} bytes were sent for 3.6 MB with 62 MiB of holes");
        let warned = event(&told, "warning")["text"].as_str().unwrap();
        assert!(warned.contains("2 symbolic links are not sent"), "{warned}");
        // But for what was left out, it is all the same.
        let copy = Path::new(&into).join("hub");
        let want = facts(&tree);
        let left_out = |line: &&str| line.contains("/absolute ") || line.contains("/outside ");
        let want: Vec<&str> = want.lines().filter(|line| !left_out(line)).collect();
        let got = facts(&copy);
        let got: Vec<&str> = got.lines().collect();
        // Directories have other sizes.
        let plain = |line: &&str| !line.contains(" d ");
        let (want, got): (Vec<_>, Vec<_>) =
            (want.into_iter().filter(plain).collect(), got.into_iter().filter(plain).collect());
        assert_eq!(got, want);
        use std::os::unix::fs::MetadataExt as _;
        let room = std::fs::metadata(copy.join("disk.img")).unwrap().blocks() * 512;
        assert!(room < 4 << 20, "the image takes {room} bytes");
        assert_eq!(
            digest(&copy.join("snapshots/latest/model.bin")),
            digest(&tree.join("blobs/0abc"))
        );
    }
}

#[test]
fn nothing_to_send_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("hub");
    hub(&tree, 1);
    let snapshot = text_of(&tree.join("snapshots/main"));
    for dry in [&[][..], &["--dry-run"]] {
        let own = ["send", &snapshot, "--group", "239.192.78.1:7", "--interface", "lo"];
        let ended = run_within(20, &[&own[..], dry].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        for want in ["nothing to send", "2 symbolic links are not sent", "--links follow"] {
            assert!(ended.err.contains(want), "{}", ended.err);
        }
    }
    let followed = run_within(20, &["send", &snapshot, "--links", "follow", "--dry-run"]);
    assert_eq!(followed.code, Some(0), "{}", followed.err);
    assert!(followed.out.contains("2 files, 1.5 MB, as `main`"), "{}", followed.out);
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let empty = text_of(&folder.path().join("empty"));
    let ended = run_within(20, &["send", &empty, "--dry-run"]);
    assert!(ended.code == Some(2) && ended.err.contains("an empty directory"), "{}", ended.err);
}

#[test]
fn what_would_be_sent_is_told_without_sending_it() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("hub");
    hub(&tree, 20);
    std::fs::write(tree.join("blobs/x.tmp"), b"x").unwrap();
    std::fs::write(tree.join("keep.tmp"), b"x").unwrap();
    let patterns = folder.path().join("patterns");
    std::fs::write(&patterns, "# what editors leave\n*.tmp\n").unwrap();
    let own = ["send", &text_of(&tree), "--dry-run", "--exclude-from", &text_of(&patterns)];
    let more = ["--exclude", "!keep.tmp", "--exclude", "/hub/snapshots/main", "--name", "models"];
    let plan = run_within(20, &[&own[..], &more].concat());
    assert_eq!(plan.code, Some(0), "{}", plan.err);
    let want = "4 files, 1 link, 3.6 MB (and 18.9 MB of holes, which are not sent), as `models`\n\
                left out: 2 excluded\nnothing was sent (--dry-run)\n";
    assert_eq!((plan.out.as_str(), plan.err.as_str()), (want, ""));
    let plan = run_within(20, &[&own[..], &more, &["--json"]].concat());
    let told = events("send", &plan.out);
    let plan = event(&told, "plan");
    assert_eq!(plan["skipped"]["excluded"], 2, "{plan}");
    assert_eq!(plan["bytes_holes"], 18 << 20, "{plan}");
    assert!(plan["to"] == "" && plan["growing"] == false, "{plan}");
    let group = ["--group", "239.192.7.1:7500"];
    let pipe = ["send", "-", "--dry-run", "--name", "disk"];
    let plan = run_within(20, &[&pipe[..], &group].concat());
    let want = "what comes from standard input, as `disk`, to 239.192.7.1:7500\n\
                nothing was sent (--dry-run)\n";
    assert_eq!((plan.out.as_str(), plan.err.as_str(), plan.code), (want, "", Some(0)));
    let told = run_within(20, &[&pipe[..], &group, &["--json"]].concat());
    let told = events("send", &told.out);
    let plan = event(&told, "plan");
    assert!(plan["to"] == "239.192.7.1:7500" && plan["growing"] == true, "{plan}");
    for (pattern, want) in [("[z-a]", "the pattern \"[z-a]\" cannot be used"), ("", "")] {
        let ended = run_within(20, &[&own[..], &["--exclude", pattern]].concat());
        assert_eq!(ended.code, Some(if want.is_empty() { 0 } else { 2 }));
        assert!(ended.err.contains(want), "{}", ended.err);
    }
    let missing =
        run_within(20, &["send", &text_of(&tree), "--dry-run", "--exclude-from", "/none"]);
    assert!(
        missing.code == Some(2) && missing.err.contains("--exclude-from /none"),
        "{}",
        missing.err
    );
}

/// The program as somebody who is not root, in `folder`, where everybody may go, which is not so where
/// it is built; nothing where we are not root, who alone can try to be somebody else.
fn somebody(folder: &Path) -> Option<impl Fn() -> Command> {
    let own = folder.join("faircast");
    std::fs::copy(env!("CARGO_BIN_EXE_faircast"), &own).unwrap();
    set_mode(folder, 0o777);
    is_root().then_some(move || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(&own).current_dir("/").stdin(Stdio::null());
        command
    })
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}

#[test]
fn what_cannot_be_read_is_told_at_once_and_before_anybody_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(somebody) = somebody(folder.path()) else { return };
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("closed")).unwrap();
    for (name, bits) in [("open", 0o644), ("secret", 0o600), ("other", 0o000)] {
        std::fs::write(tree.join(name), b"x").unwrap();
        set_mode(&tree.join(name), bits);
    }
    set_mode(&tree.join("closed"), 0o700);
    let send = |more: &[&str]| {
        let ran = somebody().arg("send").arg(&tree).arg("--dry-run").args(more).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    let (code, said) = send(&[]);
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    for want in ["tree/secret", "tree/other", "tree/closed", "permissions", "--exclude"] {
        assert!(said.contains(want), "{said}");
    }
    let others = ["--exclude", "secret", "--exclude", "other", "--exclude", "closed/"];
    assert_eq!(send(&others), (Some(0), String::new()));
    // Nor does a receiver wait for what it could not write.
    let target = text_of(&tree.join("open"));
    let mut recv = somebody();
    recv.args(["recv", "--group", "239.192.78.1:7509", "--interface", "lo", "--object", "a"]);
    let refused = recv.args(["--to-device", &target]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot be written: Permission denied"), "{said}");
}

#[test]
fn owners_are_given_by_root_and_refused_to_others_before_anything_comes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(somebody) = somebody(folder.path()) else { return };
    let file = folder.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    std::os::unix::fs::chown(&file, Some(4242), Some(4343)).unwrap();
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--owner"];
    let [rich, poor] = ["rich", "poor"].map(|name| text_of(&folder.path().join(name)));
    let mut other = somebody();
    // Under one name the second would be the first, started again.
    other.args(["recv", "--once", "--name", "poor", "--into", &poor]).args(common);
    let other = other.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let other = Running::of(other);
    let root = Running::start(&[&["recv", "--once", "--into", &rich][..], &common].concat());
    let own = ["send", &text_of(&file), "--wait-for", "2"];
    let sent = Running::start(&[&own[..], &common].concat()).end();
    assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
    assert!(sent.out.contains("start recv as root"), "{}", sent.out);
    let other = other.end();
    assert_eq!(other.code, Some(1), "{}{}", other.out, other.err);
    assert!(other.err.contains("cannot give files to user 4242"), "{}", other.err);
    assert!(!Path::new(&poor).join("file").exists());
    assert_eq!(root.end().code, Some(0));
    let arrived = Path::new(&rich).join("file");
    let stat = Command::new("stat").args(["-c", "%u %g"]).arg(arrived).output().unwrap();
    assert_eq!(String::from_utf8(stat.stdout).unwrap(), "4242 4343\n");
}
