//! `send` and `recv` over every registered scheme, and between ends with different schemes.

use faircast::SCHEMES;
use faircast_proto::options::OptionKind;

use super::hosts::{Hosts, link};
use super::site::{Site, noise};
use super::*;

#[test]
fn a_file_gets_to_four_hosts_over_every_scheme_though_each_loses_one_packet_in_20() {
    need_root!();
    for scheme in SCHEMES {
        let receivers = ["a", "b", "c", "d"];
        let hosts = Hosts::new(&[&["sender"], &receivers[..]].concat(), |to| {
            link(20, 2, if to.is_some() { 0.05 } else { 0.0 }, 50)
        });
        hosts.site.put("file", noise(700_000));
        let running = receivers
            .map(|name| hosts.start(name, &format!("recv --into {name} --once --name {name}")));
        let send = format!("send file --wait-for 4 --scheme {}", scheme.name);
        hosts.start("sender", &send).end_with(0);
        for (receiver, name) in running.into_iter().zip(receivers) {
            let received = hosts.site.assert_received(name, receiver);
            assert_eq!(received.event("complete")["scheme"], scheme.name, "nobody told it");
        }
        let lost = hosts.field.counts().lost_packets;
        assert!(lost >= 50, "{}: {lost} packets were lost", scheme.name);
    }
}

#[test]
fn a_receiver_that_insists_on_another_scheme_says_what_to_do_and_so_does_the_sender() {
    for (sends, insists) in SCHEMES.iter().zip(SCHEMES.iter().skip(1)) {
        let (sends, insists) = (sends.name, insists.name);
        let site = Site::with_file(100_000);
        let one = site.start("recv --into one --once --name one");
        let two = site.start(&format!("recv --into two --once --name two --scheme {insists}"));
        let sender = site.start(&format!("send file --wait-for 2 --scheme {sends}")).end_with(1);
        let failed = sender.event("failed");
        assert_eq!(failed["name"], "two");
        let reason = failed["reason"].as_str().unwrap();
        assert!(reason.contains(sends) && reason.contains(insists), "{reason}");
        one.end_with(0);
        site.assert_same("one/file", "file");
        let failed = two.end_with(1).event("failed");
        assert_eq!(failed["sender_speaks"], sends);
        assert_eq!(failed["receiver_speaks"], insists);
        let reason = failed["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("name {sends} or no scheme here")), "{reason}");
        assert!(!site.path("two/file").exists());
    }
}

#[test]
fn settings_of_a_scheme_that_are_wrong_are_refused_in_one_line() {
    let site = Site::with(&format!("--group {}", site::group()));
    site.put("file", "x");
    for scheme in SCHEMES {
        let known = scheme.own_options.iter().find_map(|spec| match spec.kind {
            OptionKind::Choice(words) => Some((spec.name, words[0])),
            OptionKind::Bool => Some((spec.name, "true or false")),
            OptionKind::Integer { .. } => Some((spec.name, "a whole number from")),
            OptionKind::Float { .. } => Some((spec.name, "a number from")),
            OptionKind::Duration { .. } | OptionKind::Rate { .. } | OptionKind::File { .. } => None,
        });
        let Some((key, allowed)) = known else { continue };
        let insists = format!("--scheme {}", scheme.name);
        for (verb, more) in
            [("send file", &*insists), ("recv --into in", ""), ("recv --into in", &insists)]
        {
            let words = format!("{verb} --option {key}=nonsense {more}");
            let ended = site.start(&words).end_within(20).with(2);
            assert_eq!(ended.err.lines().count(), 1, "{words}: {}", ended.err);
            for word in [key, "\"nonsense\"", allowed] {
                assert!(ended.err.contains(word), "{words}: {}", ended.err);
            }
        }
    }
}
