//! Transfers at real sizes, each after a kill of one receiver, and many receivers that repair for
//! each other. Digests of other programs compare the copies. The tests take minutes and gigabytes,
//! so they run only on request (HACKING.md).

use super::images::{Loop, pipe_to_command_and_file};
use super::site::{Site, noise};
use super::trees::{facts, hub};
use super::*;

fn plain_and_with_a_key(what: &str, transfer: impl Fn(&Site)) {
    for sealed in [false, true] {
        let (site, started) = (Site::keyed(sealed), Instant::now());
        transfer(&site);
        let seconds = started.elapsed().as_secs_f64();
        println!("{what}, {}: intact after {seconds:.0} s", if sealed { "key" } else { "plain" });
    }
}

fn written(path: &Path) -> u64 {
    let said = Command::new("du").args(["-s", "-B1"]).arg(path).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    said.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Kills one of two receivers once `journal` has content, and starts it again.
fn with_a_kill(site: &Site, send: &str, recv: [&str; 2], journal: &str) -> Ended {
    let [steady, killed] = recv.map(|recv| site.start(recv));
    let sender = site.start(&format!("{send} --wait-for 2 --give-up 60s"));
    site.until_kept(journal);
    killed.kill();
    let again = site.start(recv[1]).end_within(FULL_LIMIT_S).with(0);
    let found = again.event("complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    steady.end_within(FULL_LIMIT_S).with(0);
    sender.end_within(FULL_LIMIT_S).with(0)
}

#[test]
#[ignore = "takes minutes"]
fn a_tree_with_blobs_a_sparse_image_and_20_000_files() {
    plain_and_with_a_key("tree", |site| {
        let tree = site.path("hub");
        hub(&tree, 2048);
        site.put("hub/blobs/2fed", noise(200_000_000));
        for file in 0..20_000_usize {
            site.put(&format!("hub/many/{:03}/{file}", file % 200), noise(file % 5000));
        }
        let recv =
            ["steady", "killed"].map(|name| format!("recv --into {name} --once --name {name}"));
        let send = "send hub --rate-max 400Mbit/s";
        let sent = with_a_kill(site, send, [&recv[0], &recv[1]], "killed/.faircast");
        let sent = sent.summary()["bytes_sent"].as_u64().unwrap();
        assert!(sent < 600_000_000, "{sent} bytes were sent for 250 MB and 2 GiB of holes");
        let want = facts(&tree);
        assert!(want.len() > 40_000, "a line of facts and a digest for each file");
        for name in ["steady", "killed"] {
            let copy = site.path(name).join("hub");
            assert!(facts(&copy) == want, "{name} differs");
            assert!(written(&copy.join("disk.img")) < 4 << 20, "its holes are holes");
        }
    });
}

#[test]
#[ignore = "takes minutes"]
fn a_block_device_of_1_gib() {
    const LEN: usize = 1 << 30;
    plain_and_with_a_key("device", |site| {
        site.put("source.img", noise(LEN));
        for name in ["steady.img", "killed.img"] {
            std::fs::File::create(site.path(name)).unwrap().set_len(LEN as u64).unwrap();
        }
        let device = |name| Loop::over(&site.path(name)).expect("losetup gives a device to root");
        let devices = ["source.img", "steady.img", "killed.img"].map(device);
        let [source, steady, killed] = &devices;
        let recv = |device: &Loop| format!("recv --to-device {} --object disk", device.0);
        let recv =
            [recv(steady) + " --name steady", recv(killed) + " --name killed --journal journal"];
        let send = format!("send {} --name disk", source.0);
        with_a_kill(site, &send, [&recv[0], &recv[1]], "journal");
        drop(devices);
        site.assert_same("steady.img", "source.img");
        site.assert_same("killed.img", "source.img");
    });
}

#[test]
#[ignore = "takes minutes"]
fn a_pipe_of_300_mb_at_both_ends() {
    plain_and_with_a_key("pipe", |site| pipe_to_command_and_file(site, &noise(300_000_000), "60s"));
}

#[test]
#[ignore = "takes minutes"]
fn fifty_receivers_with_3_percent_loss_get_200_mb_though_two_repair_heads_are_killed() {
    [0, 2].into_iter().for_each(heads::fifty_receivers);
}

#[test]
#[ignore = "takes minutes"]
fn twenty_seven_receivers_behind_three_levels_of_relays_get_100_mb_though_relays_are_killed() {
    relays::three_levels("worst-path", false, false);
    relays::three_levels("bounded-lag", false, false);
    relays::three_levels("worst-path", true, true);
}

#[test]
#[ignore = "takes minutes, and is about speed"]
fn a_hop_between_relays_shares_a_link_with_tcp() {
    let [hop, tcp] = relays::a_hop_beside_tcp(60);
    println!("of a link of 20 Mbit/s, in a minute: the hop {hop:.0} Mbit, TCP {tcp:.0} Mbit");
    assert!((0.5..2.0).contains(&(hop / tcp)), "{}", hop / tcp);
}

#[test]
#[ignore = "takes minutes, and is about speed"]
fn three_sites_with_ten_receivers_each_are_eight_times_as_fast_as_copies_over_tcp() {
    for multicast in [false, true] {
        let [relayed, tcp] = relays::three_sites(20, multicast);
        println!(
            "behind 20 Mbit/s, multicast {multicast}: {relayed:.2} Mbit/s to each by relays, \
             {tcp:.2} Mbit/s by TCP"
        );
        assert!(relayed / tcp >= 8.0, "{}", relayed / tcp);
    }
}

#[test]
#[ignore = "takes minutes, and is about speed"]
fn a_slow_site_is_not_waited_for_if_the_sender_says_so() {
    let [[waits, _], [leaves, slow]] = [true, false].map(relays::a_slow_site);
    println!(
        "a site behind 50 Mbit/s beside one behind 4: {waits:.0} s, or {leaves:.0} s with --slow \
         drop-below, and {slow:.0} s to the slow one"
    );
    assert!(leaves < waits / 3.0, "{leaves} s of {waits}");
}

const FULL_LIMIT_S: u64 = 600;
