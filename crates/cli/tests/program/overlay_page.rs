//! Commands, configurations and units in docs/overlay.md.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use super::running::until;
use super::site::Site;
use super::*;

fn page() -> String {
    std::fs::read_to_string(root().join("docs/overlay.md")).unwrap()
}

fn blocks(word: &str) -> Vec<String> {
    site::blocks(&page(), word)
}

fn block(word: &str, first: &str) -> String {
    let found = blocks(word).into_iter().find(|it| it.lines().next().unwrap().contains(first));
    found.unwrap_or_else(|| panic!("no block of {word} begins with {first}"))
}

fn first_column(head: &str) -> BTreeSet<String> {
    let page = page();
    let table = page.split(&format!("\n| {head} |")).nth(1).unwrap().lines().skip(2);
    let cells = table.map_while(|row| row.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(String::from).collect()
}

pub(super) fn shell(site: &Site, line: &str) -> Running {
    let built = Path::new(env!("CARGO_BIN_EXE_faircast")).parent().unwrap().display();
    let path = format!("{built}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-c", line]).env("PATH", path).current_dir(site.path("")).stdin(Stdio::null());
    Running::spawn(command)
}

fn in_a_namespace(test: fn()) {
    need_root!();
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        test();
    };
    std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn stop(node: Running) {
    node.signal(Signal::SIGTERM);
    node.end_with(0);
}

fn masked(text: &str) -> String {
    let word = |word: &str| match word.contains(|c: char| c.is_ascii_digit()) {
        true => "#".to_string(),
        false => word.to_string(),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_first_steps_lead_to_a_message_and_the_status_of_the_page() {
    in_a_namespace(|| {
        let site = Site::with("");
        for name in ["a.toml", "b.toml"] {
            site.put(name, block("toml", name));
        }
        let steps = blocks("sh").remove(0);
        let steps: Vec<&str> = steps.lines().collect();
        let [first, second, sub, publish] = steps[..] else { panic!("four steps: {steps:?}") };
        let nodes = [first, second].map(|line| shell(&site, line));
        nodes.iter().for_each(|node| node.until_said("daemons reach it at"));
        let watch = site.start("sub chat --json --connect tcp:127.0.0.1:4813");
        let count = |event: &Value| event["members"].as_array().map(Vec::len);
        watch.until("view", |event| count(event) == Some(2));
        let sub = shell(&site, sub);
        watch.until("group", |event| count(event) == Some(2));
        shell(&site, publish).succeed();
        sub.until_said("hello");
        watch.interrupt();
        let mut status = String::new();
        until("one member of the group", || {
            status = site.succeed("node status");
            status.contains("chat: members: 1, here: 1")
        });
        assert_eq!(masked(&status), masked(&block("text", "a: view")), "{status}");
        let (_, metrics) = live::get("127.0.0.1:9480", "GET", "/metrics");
        let names = metrics.lines().filter_map(|line| line.strip_prefix("faircast_node_"));
        let names = names.map(|rest| rest.split(['{', ' ']).next().unwrap().to_string());
        assert_eq!(first_column("figures"), names.collect());
        sub.interrupt();
        nodes.into_iter().for_each(stop);
    });
}

#[test]
fn twenty_sites_make_one_view() {
    in_a_namespace(|| {
        let site = Site::with("");
        let steps = block("sh", "faircast node init");
        let (init, change) = steps.trim_end().split_once('\n').unwrap();
        shell(&site, init).succeed();
        assert_eq!(site.read("overlay/site2.toml"), block("toml", "A daemon of the overlay"));
        shell(&site, change).succeed();
        let read = |number: usize| site.read(&format!("overlay/site{number}.toml"));
        let peers = "peers = [\"hq.example.org:4804\", \"backup.example.org:4804\"]";
        assert!((3..=20).all(|number| read(number).contains(peers)));
        // Site N of the loopback network is host 127.0.0.N.
        let mut nodes = Vec::new();
        for number in 1..=20 {
            let host = format!("127.0.0.{number}:");
            let text = read(number).replace("hq.example.org", "127.0.0.1");
            let text = text.replace("backup.example.org", "127.0.0.2").replace("0.0.0.0:", &host);
            let text = text.replace("127.0.0.1:4803", &format!("{host}4803"));
            let text = text.replace("127.0.0.1:9480", &format!("{host}9480"));
            let socket = site.at(&format!("{number}.sock"));
            let text = text.replace("/run/faircast/node.sock", &socket);
            let path = format!("overlay/site{number}.toml");
            site.put(&path, text);
            nodes.push(site.start(&format!("node --config {path}")));
        }
        nodes.iter().for_each(|node| node.until_said("daemons reach it at"));
        let sub = site.start("sub chat --json --connect tcp:127.0.0.20:4803");
        sub.until("view", |event| event["members"].as_array().map(Vec::len) == Some(20));
        sub.until("group", |_| true);
        shell(&site, "echo all | faircast pub chat --service safe").succeed();
        sub.until("message", |event| event["text"] == "all");
        stop(nodes.remove(0));
        sub.until("view", |event| event["members"].as_array().map(Vec::len) == Some(19));
        shell(&site, "echo rest | faircast pub chat --connect tcp:127.0.0.3:4803").succeed();
        sub.until("message", |event| event["text"] == "rest");
        nodes.into_iter().for_each(stop);
    });
}

#[test]
fn clients_of_other_hosts_connect_by_tls() {
    in_a_namespace(|| {
        let site = Site::with("");
        let steps = |first| block("sh", first).replace("hq.example.org", "127.0.0.1");
        let (tokens, certificates) = (steps("node init tls"), steps("openssl req"));
        let [init, start, sub, publish] = tokens.lines().collect::<Vec<_>>()[..] else {
            panic!("four steps: {tokens}")
        };
        let (issue, sub_too) = certificates.trim_end().rsplit_once('\n').unwrap();
        shell(&site, init).succeed();
        shell(&site, &format!("exec 2> issued; set -eo pipefail; {issue}")).succeed();
        let text = site.read("tls/site1.toml");
        let has = |line: &str| text.lines().any(|it| it == line);
        assert!(block("toml", "tls:0.0.0.0:4804").lines().all(has), "{text}");
        let ca = "client_ca = \"clients.pem\"";
        assert!(page().contains(&format!("`{ca}`")));
        std::fs::rename(site.path("clients.pem"), site.path("tls/clients.pem")).unwrap();
        site.put("tls/site1.toml", text.replace("/run/faircast/", &site.at("")) + ca);
        let node = shell(&site, start);
        node.until_said("tls:0.0.0.0:4804");
        let watch = site.start("sub chat --json --connect tcp:127.0.0.1:4803");
        let members = |count| {
            let count_of = move |event: &Value| event["members"].as_array().map(Vec::len);
            watch.until("group", |event| count_of(event) == Some(count));
        };
        let subs = [sub, sub_too].map(|line| shell(&site, line));
        members(3);
        shell(&site, publish).succeed();
        for sub in subs {
            sub.until_said("hello");
            sub.interrupt();
        }
        let (without, _) = publish.split_once(" --token-file").unwrap();
        shell(&site, without).complain(1, "the token is missing or wrong");
        stop(node);
        // If all addresses need a token, the daemon adds one without for /healthz.
        let (key, at) = ("tls/site1-key.pem", "tls/site1.toml");
        let alone = |line: &str| match line.starts_with("clients = ") {
            true => "clients = [\"tls:0.0.0.0:4804\"]\n".to_string(),
            false => format!("{line}\n"),
        };
        let text = site.read(at);
        site.put(at, text.lines().map(alone).collect::<String>());
        let node = shell(&site, start);
        node.until_said("clients at tls:0.0.0.0:4804");
        let (_, health) = live::get("127.0.0.1:9480", "GET", "/healthz");
        assert_eq!(health, "ok\n");
        stop(node);
        site.put(at, text);
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(site.path(key), open).unwrap();
        let refused = site.start(&format!("node --config {at}")).refuse();
        let want = format!("{at}:20: certificate_key: tls/site1-key.pem: ");
        assert!(refused.contains(&want), "{refused}");
    });
}

#[test]
fn a_subscriber_that_is_too_slow_learns_what_it_lost_and_goes_on() {
    let site = Site::with("");
    let address = format!("unix:{}", site.at("node.sock"));
    let status = super::site::free_tcp();
    let text = format!(
        "name = \"a\"\nclients = [\"{address}\"]\nstatus = \"{status}\"\nclient_bytes = 100000\n"
    );
    site.put("node.toml", text);
    let node = site.start("node --config node.toml");
    node.until_said("daemons reach it at");
    let sub = site.start(&format!("sub chat --connect '{address}'"));
    let groups = || site.json(&format!("node status {status} --json"))["groups"].clone();
    until("a member of the group", || groups()[0]["members"] == 1);
    sub.signal(Signal::SIGSTOP);
    let publish = |text: &str| {
        let mut command = site.command(&format!("pub chat --connect '{address}'"));
        command.stdin(Stdio::piped());
        let mut running = Running::spawn(command);
        running.input().write_all(text.as_bytes()).unwrap();
        running.succeed();
    };
    publish(&"a line of the flood, which nobody reads\n".repeat(50_000));
    let counters = || site.json(&format!("node status {status} --json"))["counters"].clone();
    until("a cut", || counters()["cuts"] == 1);
    sub.signal(Signal::SIGCONT);
    sub.until_complained("this client was too slow: events");
    publish("later\n");
    sub.until_said("later");
    sub.interrupt();
    stop(node);
}

#[test]
fn the_page_has_every_key_of_a_configuration_and_every_service() {
    let site = Site::of("node.toml", "pears = 1\n");
    let error = site.start("node --config node.toml").refuse();
    let known = error.split("expected one of ").nth(1).unwrap();
    let known: BTreeSet<String> = known.split('`').skip(1).step_by(2).map(String::from).collect();
    assert_eq!(first_column("key"), known);
    let error = refuse("pub chat --service fast");
    let known = error.split("expected one of ").nth(1).unwrap().split([',', ';', ' ']);
    let services = first_column("service");
    assert!(services.len() == 6 && services.is_subset(&known.map(String::from).collect()));
}

fn configured() -> Site {
    let site = Site::with("");
    site.succeed("node init overlay --sites 1");
    let text = site.read("overlay/site1.toml");
    let text = text.replace(":4804", ":0").replace(":4803", ":0").replace(":9480", ":0");
    site.put("node.toml", text);
    std::fs::rename(site.path("overlay/overlay.key"), site.path("overlay.key")).unwrap();
    site
}

#[test]
fn the_unit_is_valid_and_its_command_serves_the_group_of_its_user() {
    let (site, unit) = (configured(), block("ini", "faircast-node.service"));
    let value = |key: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("the unit has no {key}")).to_string()
    };
    let built = env!("CARGO_BIN_EXE_faircast");
    let file = site.put("faircast-node.service", unit.replace("/usr/local/bin/faircast", built));
    match Command::new("systemd-analyze").arg("verify").arg(&file).output() {
        Err(_) => eprintln!("skipped: there is no systemd-analyze"),
        Ok(checked) => {
            let complaints = String::from_utf8_lossy(&checked.stderr);
            assert!(checked.status.success() && complaints.is_empty(), "{complaints}");
        }
    }
    let here = |text: &str| {
        let text = text.replace("/usr/local/bin", &site.at("bin"));
        text.replace("/etc/faircast", &site.at("etc"))
    };
    let (run, bin) = (site.path(&value("RuntimeDirectory")), site.path("bin"));
    std::os::unix::fs::symlink(built, site.path("program")).unwrap();
    [run, bin].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let text = site.read("node.toml").replace("/run/", &site.at(""));
    site.put("node.toml", text);
    let steps = block("sh no-run", "useradd");
    let owner = format!("-o {}", nix::unistd::geteuid());
    for line in steps.lines().filter(|line| line.starts_with("install")) {
        let line = line.replace("755 faircast", "755 program").replace("-o faircast", &owner);
        shell(&site, &here(&line)).succeed();
    }
    let command = here(&format!("umask {}; exec {}", value("UMask"), value("ExecStart")));
    let node = shell(&site, &command);
    node.until_said("daemons reach it at");
    let socket = site.path("faircast/node.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o770, "{mode:o}");
    stop(node);
    assert!(!socket.exists());
    site.put("etc/node.toml", "name = 1\n");
    let status = value("RestartPreventExitStatus").parse().unwrap();
    shell(&site, &command).end_with(status);
}

#[test]
fn the_steps_of_the_container_file_make_a_root_in_which_the_daemon_serves() {
    need_root!();
    eprintln!("the steps of the container file run in a changed root, without podman or docker");
    let site = configured();
    let inside = |path: &str| site.path(&format!("root{path}"));
    for folder in ["/etc/faircast", "/run/faircast"] {
        std::fs::create_dir_all(inside(folder)).unwrap();
    }
    let (mut user, mut entry) = (String::new(), Vec::new());
    for line in block("dockerfile", "faircast-node").lines().skip(1) {
        match line.split_once(' ').unwrap() {
            ("FROM", base) => assert_eq!(base, "scratch"),
            ("COPY", paths) => {
                let (from, to) = paths.split_once(' ').unwrap();
                assert!(from.ends_with("/release/faircast"), "{from}");
                std::fs::copy(env!("CARGO_BIN_EXE_faircast"), inside(to)).unwrap();
            }
            ("USER", number) => user = number.to_string(),
            ("EXPOSE", port) => {
                let port = port.strip_suffix("/udp").unwrap();
                assert!(site.read("overlay/site1.toml").contains(&format!("0.0.0.0:{port}")));
            }
            ("ENTRYPOINT", words) => entry = serde_json::from_str::<Vec<String>>(words).unwrap(),
            _ => panic!("unknown step {line}"),
        }
    }
    // Libraries of the tested program, which is not built for musl.
    let libraries = Command::new("ldd").arg(env!("CARGO_BIN_EXE_faircast")).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        std::fs::create_dir_all(inside(library).parent().unwrap()).unwrap();
        std::fs::copy(library, inside(library)).unwrap();
    }
    for name in ["node.toml", "overlay.key"] {
        std::fs::rename(site.path(name), inside(&format!("/etc/faircast/{name}"))).unwrap();
    }
    let steps = block("sh no-run", "podman build");
    let owned = steps.lines().find(|line| line.starts_with("chown")).unwrap();
    let owned = owned.replace(" /", &format!(" {}/", site.at("root")));
    shell(&site, &owned).succeed();
    let start = format!("exec chroot --userspec={user}:{user} root {}", entry.join(" "));
    let node = shell(&site, &start);
    node.until_said("daemons reach it at");
    let address = format!("unix:{}", site.at("root/run/faircast/node.sock"));
    let hello = format!("echo hello | faircast pub chat --connect '{address}'");
    let said = shell(&site, &hello).end_with(0).err;
    assert!(said.contains("no members in chat"), "{said}");
    stop(node);
}
