//! `faircast send`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use faircast::{Fec, SlowPolicy};
use faircast_base::{Bitrate, Bytes, Duration};
use faircast_proto::catalog::DEFAULT_SCHEME;

use super::files::FileOptions;
use super::live::{
    KeyOptions, ViaOptions, WatchOptions, bytes, duration, group, rate, receivers, silence,
};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").args(["group", "to", "via"]).multiple(true)))]
#[command(after_help = "\
Examples:
  faircast send disk.img --group 239.192.7.1:7500
  faircast send photos music --group 239.192.7.1:7500 --interface eth0 --wait-for 12
  faircast send release --group '[ff15::7:1]:7500' --key group.key --receivers names.txt
  faircast send disk.img --to 10.0.0.2:7500,10.0.0.3:7500     where there is no multicast
  faircast send disk.img --via 10.0.0.1:7600 --meeting images   through relays, to other sites
  faircast send disk.img --group 239.192.7.1:7500 --interface eth0 --interface eth1 --to 10.9.0.7:7500
  faircast send /dev/sdb --name win11 --group 239.192.7.1:7500
  partclone.ext4 -c -s /dev/sda1 | zstd | faircast send - --name sda1 --group 239.192.7.1:7500
  faircast send project --exclude '*.o' --exclude target/ --dry-run

The transfer starts once the receivers of --wait-for or --receivers are present. Later receivers are
served too. Content that a receiver has from an earlier run is not sent again. Ctrl-C ends the
transfer and informs the receivers; a second Ctrl-C ends the program at once.

Exit status: 0 all awaited receivers have everything; 1 a receiver failed, or an entry was left out
without --exclude (a link that leads outside, a device); 2 the arguments are wrong.")]
pub(crate) struct SendArgs {
    /// Files and folders to send under their last names; or one block device; or - for standard
    /// input
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Multicast group and port, IPv4 or IPv6; a zone names the interface: '[ff12::7%eth0]:7500'
    #[arg(long, value_name = "GROUP:PORT", value_parser = group, required_unless_present_any = ["to", "via", "dry_run"])]
    pub(crate) group: Option<SocketAddr>,
    /// Receivers to send to one by one, where there is no multicast; may be used beside --group
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1.., conflicts_with = "via")]
    pub(crate) to: Vec<String>,
    /// Interface for the group, by name or address; repeat to use several [default: by the routes
    /// of the system]
    #[arg(long, value_name = "IF", requires = "group")]
    pub(crate) interface: Vec<String>,
    /// Number of receivers to wait for [default: 1; with --to, all that are listed]
    #[arg(long, value_name = "N", value_parser = receivers)]
    pub(crate) wait_for: Option<u32>,
    /// Highest sending rate, such as 100Mbit/s or 100M [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate_max: Option<Bitrate>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) repair: RepairOptions,
    #[command(flatten)]
    pub(crate) files: FileOptions,
    #[command(flatten)]
    pub(crate) via: ViaOptions,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,
    /// File for a trace of all packets; `faircast report FILE` makes a page of the trace
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Receivers")]
pub(crate) struct WaitOptions {
    /// File with the names of the receivers to wait for, one a line; all of them must finish.
    /// Others are served too
    #[arg(long, value_name = "FILE", conflicts_with = "wait_for")]
    pub(crate) receivers: Option<PathBuf>,
    /// Start after this time with the receivers that are present, or with the first one that comes
    /// later
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) start_after: Option<Duration>,
    /// Longest wait for receivers before the transfer fails [default: no limit; with --start-after,
    /// --start-after plus --give-up]
    #[arg(long, value_name = "TIME", value_parser = silence)]
    pub(crate) wait_max: Option<Duration>,
    /// Longest silence before a receiver counts as lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = silence)]
    pub(crate) give_up: Duration,
    /// Longest time without progress before a receiver is dropped. That receiver and the sender
    /// then end with status 1; the others go on
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = silence)]
    pub(crate) stall_max: Duration,
    /// Policy for slow receivers: `wait`, or `drop-below RATE`: receivers that would hold the group
    /// below this rate are served after the others
    #[arg(long, value_name = "POLICY", default_value = "wait", value_parser = slow)]
    pub(crate) slow: SlowPolicy,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Rate and repair")]
pub(crate) struct RepairOptions {
    /// Congestion control; `faircast schemes` lists all schemes
    #[arg(long, value_name = "NAME", default_value = DEFAULT_SCHEME)]
    pub(crate) scheme: String,
    /// Setting of the scheme; may be repeated; `faircast schemes NAME` lists all settings
    #[arg(long = "option", alias = "options", value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,
    /// Lowest sending rate, fair or not, for paths where loss is no sign of congestion
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate_min: Option<Bitrate>,
    /// Parity packets for repair: `auto`, `off`, or the share of content that is sent as parity in
    /// advance, such as 10% or 0.1 [default: auto]
    #[arg(long, value_name = "PARITY", value_parser = fec)]
    pub(crate) fec: Option<Fec>,
    /// Most routers that packets pass; 1 keeps packets in this network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Size of the largest IP packet that every link of the path carries
    #[arg(long, value_name = "BYTES", default_value = "1500", value_parser = bytes)]
    pub(crate) mtu: Bytes,
}

fn slow(text: &str) -> Result<SlowPolicy, String> {
    if text == "wait" {
        return Ok(SlowPolicy::Wait);
    }
    match text.strip_prefix("drop-below").map(|rest| rest.trim_start_matches(['=', ':', ' '])) {
        Some(text) if !text.is_empty() => rate(text).map(SlowPolicy::DropBelow),
        _ => Err("expected wait, or drop-below and a rate: 'drop-below 1 Mbit/s'".to_string()),
    }
}

pub(crate) fn fec(text: &str) -> Result<Fec, String> {
    let ratio = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    match (text, ratio) {
        ("auto", _) => Ok(Fec::Auto),
        ("off", _) => Ok(Fec::Off),
        (_, Ok(ratio)) if ratio > 0.0 && ratio <= 1.0 => Ok(Fec::Ratio(ratio)),
        _ => {
            Err("expected auto, off, or a share above 0 and at most 1, such as 10% or 0.1"
                .to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use faircast::Links;

    use super::*;
    use crate::args::{Args, Verb};

    fn parse(words: &[&str]) -> Result<SendArgs, String> {
        let words = ["faircast", "send"].iter().chain(words);
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.verb {
            Verb::Send(args) => Ok(*args),
            _ => panic!("another verb"),
        }
    }

    #[test]
    fn defaults_are_those_of_a_small_network() {
        let args = parse(&["a", "b", "--group", "239.1.2.3:7500"]).unwrap();
        assert_eq!(args.paths.len(), 2);
        assert_eq!((args.repair.ttl, args.wait_for, args.repair.mtu), (1, None, Bytes::new(1500)));
        assert_eq!((args.wait.slow, args.repair.fec), (SlowPolicy::Wait, None));
        assert_eq!(args.wait.give_up, Duration::from_secs(30));
        assert_eq!(args.files.links, Links::Keep);
    }

    #[test]
    fn what_would_be_sent_needs_nowhere_to_go() {
        let args = parse(&["a", "--dry-run", "--exclude", "x", "--exclude=!y", "--links=follow"]);
        let args = args.unwrap();
        assert_eq!((args.group, args.files.exclude), (None, vec!["x".into(), "!y".into()]));
        assert_eq!(args.files.links, Links::Follow);
        assert!(parse(&["a", "--dry-run", "--group", "239.1.2.3:1", "--links", "keep"]).is_ok());
    }

    #[test]
    fn receivers_may_be_listed_in_every_way() {
        for words in [&["--to", "a:1,b:2"][..], &["--to", "a:1", "b:2"], &["--to=a:1", "--to=b:2"]]
        {
            let words: Vec<_> = ["file"].iter().chain(words).copied().collect();
            assert_eq!(parse(&words).unwrap().to, ["a:1", "b:2"]);
            let beside = ["--group", "239.1.2.3:1", "--interface", "lo", "--interface", "eth1"];
            let args = parse(&[&words[..], &beside].concat()).unwrap();
            assert_eq!((args.to, args.interface.len()), (vec!["a:1".into(), "b:2".into()], 2));
        }
    }

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (words, want) in [
            (&["--group", "239.1.2.3:7500"][..], "<PATH>"),
            (&["a"], "--group"),
            (&["a", "--group", "239.1.2.3"], "such as 239.192.7.1:7500"),
            (&["a", "--group", "239.1.2.3:0"], "such as 239.192.7.1:7500"),
            (&["a", "--group", "host:7500"], "such as 239.192.7.1:7500"),
            (&["a", "--group", "10.0.0.1:7500"], "send --to"),
            (&["a", "--to", "10.0.0.1:7500", "--interface", "lo"], "--group"),
            (&["a", "--group", "239.1.2.3:1", "--wait-for", "x"], "from 1 to 65536"),
            (&["a", "--group", "239.1.2.3:1", "--wait-for", "0"], "from 1 to 65536"),
            (&["a", "--group", "239.1.2.3:1", "--give-up", "0s"], "1 s or more"),
            (&["a", "--group", "239.1.2.3:1", "--metrics", "9464"], "such as 127.0.0.1:9464"),
            (&["a", "--group", "239.1.2.3:1", "--mtu", "big"], "a size"),
            (&["a", "--group", "239.1.2.3:1", "--start-after", "5"], "no unit"),
            (
                &["a", "--group", "239.1.2.3:1", "--wait-for", "2", "--receivers", "f"],
                "cannot be used with",
            ),
            (&["a", "--group", "239.1.2.3:1", "--links", "all"], "keep, follow, skip"),
            (&["a", "--group", "239.1.2.3:1", "--slow", "drop"], "'drop-below 1 Mbit/s'"),
            (&["a", "--group", "239.1.2.3:1", "--fec", "2"], "above 0 and at most 1"),
            (&["a", "--group", "239.1.2.3:1", "--rate-max", "10"], "has no unit"),
            (&["a", "--group", "239.1.2.3:1", "--rate-max", "0 bit/s"], "above zero"),
            (&["a", "--group", "239.1.2.3:1", "--give-up", "soon"], "a duration"),
            (&["a", "--group", "239.1.2.3:1", "--ttl", "0"], "1..=255"),
            (&["a", "--group", "239.1.2.3:1", "--key-exposed"], "--key"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(want), "{error} instead of {want}");
        }
    }

    #[test]
    fn rates_and_shares_may_be_written_as_other_tools_have_them() {
        let with = |key: &str, value: &str| {
            parse(&["a", "--group", "239.1.2.3:1", key, value]).unwrap_or_else(|e| panic!("{e}"))
        };
        let mbit = |count: u64| Bitrate::from_bits_per_s(count * 1_000_000);
        for text in ["drop-below 1 Mbit/s", "drop-below 1M", "drop-below=1m"] {
            assert_eq!(with("--slow", text).wait.slow, SlowPolicy::DropBelow(mbit(1)), "{text}");
        }
        assert_eq!(with("--rate-max", "100M").rate_max, Some(mbit(100)));
        assert_eq!(with("--rate-min", "1G").repair.rate_min, Some(mbit(1000)));
        for text in ["10%", "0.1", "10 %"] {
            assert_eq!(with("--fec", text).repair.fec, Some(Fec::Ratio(0.1)), "{text}");
        }
    }
}
