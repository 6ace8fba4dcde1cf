//! Packets of a file transfer by tshark: our options, null NAKs, SPM requests, SPMs both ways.

use std::time::Duration as WallDuration;

use crate::capture::{Capture, Seen};
use crate::hop::Weather;
use crate::hosts::Hosts;
use crate::{GROUP, PORT, content, ours, programs};

const SPM: u8 = 0x00;
const ODATA: u8 = 0x04;
const NNAK: u8 = 0x09;
const NCF: u8 = 0x0a;
const SPMR: u8 = 0x0c;
const OBJECT: u8 = 0x20;
const WANT: u8 = 0x21;
const CONFIRM: u8 = 0x22;
const MEMBER: u8 = 0x23;

#[test]
fn an_object_and_its_repairs_are_pgm_to_others() {
    if programs().is_none() {
        return;
    }
    let hosts = Hosts::new(3);
    let sent = content(3_000_000);
    let captures = [Capture::start(&hosts, 1), Capture::start(&hosts, 2)];
    let receivers: Vec<_> = [(2, 31), (3, 47)]
        .into_iter()
        .map(|(host, lose_received)| {
            let weather = Weather { lose_received, ..Weather::default() };
            ours::object_receiver(&hosts, host, 1, weather)
        })
        .collect();
    [2, 3].iter().for_each(|host| hosts.until_member(*host));
    let source = ours::object_source(&hosts, 1, &sent, Weather::default());
    for receiver in &receivers {
        assert!(receiver.wait_for(sent.len()).concat() == sent);
        assert!(receiver.log.lock().unwrap().lost > 30);
    }
    std::thread::sleep(WallDuration::from_secs(1));
    drop((source, receivers));
    let [source, receiver]: [Seen; 2] = captures.map(Capture::check);
    assert!(source.of(ODATA) > 2100 && source.with(SPM, OBJECT) > 0, "{source:?}");
    assert!(source.with(NCF, CONFIRM) > 0, "requests are confirmed: {source:?}");
    assert!(source.with(SPM, MEMBER) > 0, "members are answered: {source:?}");
    assert!(receiver.with(NNAK, WANT) > 0, "{receiver:?}");
    assert!(receiver.with(SPMR, MEMBER) > 0, "{receiver:?}");
}

#[test]
fn a_transfer_of_files_is_pgm_to_others() {
    if programs().is_none() {
        return;
    }
    let hosts = Hosts::new(3);
    let faircast = env!("CARGO_BIN_EXE_faircast");
    let sent = content(1_000_000);
    let file = hosts.file("content");
    std::fs::write(&file, &sent).unwrap();
    let group = format!("{}:{PORT}", std::net::Ipv4Addr::from(GROUP));
    let mut receivers = Vec::new();
    for host in [2, 3] {
        let into = hosts.file(&format!("into-{host}"));
        std::fs::create_dir(&into).unwrap();
        let own = [faircast, "recv", "--into", &into.to_string_lossy(), "--once"];
        let words = [&own[..], &["--group", &group, "--interface", "e0"]].concat();
        receivers.push((hosts.start(host, &words), into));
    }
    let captures = [Capture::start(&hosts, 1), Capture::start(&hosts, 2)];
    let path = file.to_string_lossy();
    let words =
        [faircast, "send", &path, "--group", &group, "--interface", "e0", "--wait-for", "2"];
    let mut sender = hosts.start(1, &words);
    for (receiver, into) in &mut receivers {
        receiver.wait_for_success();
        assert!(std::fs::read(into.join("content")).unwrap() == sent, "{}", into.display());
    }
    sender.wait_for_success();
    let [source, receiver]: [Seen; 2] = captures.map(Capture::check);
    assert!(source.of(ODATA) > 600 && source.with(SPM, OBJECT) > 0, "{source:?}");
    assert!(source.with(SPM, MEMBER) > 0, "members are answered: {source:?}");
    assert!(receiver.with(SPMR, MEMBER) > 0, "{receiver:?}");
}
