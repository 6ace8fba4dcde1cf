//! The transports that are measured: the limit, ours, and the peers with the settings found best for a
//! fast local network.

use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Case, copies, limit};
use crate::host::{
    INTERFACE, LIBPGM, NORM, Network, Unprepared, ZEROMQ, installed, make_key, strings, text, words,
};

/// What a transport is to the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// What the machine can do at most.
    Limit,
    Ours,
    /// A peer that controls congestion.
    Controlled,
    /// A peer that only sees to it that receivers are not overrun.
    Flow,
    /// A peer that sends at a fixed rate.
    Fixed,
    Copies,
}

pub(super) struct Transport {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) class: Class,
    program: Program,
    pub(super) over: Over,
}

/// Networks, by what limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing but the machine, to a few receivers.
    Fast,
    /// The same to many.
    Group,
    /// The sender's uplink, to many.
    Uplink,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Limit {
        forced: bool,
        files: bool,
    },
    Faircast {
        sealed: bool,
    },
    /// Over the tree of repair heads, whatever scheme others of ours use.
    Tram,
    /// Mbit/s; 0 for NORM-CC.
    Norm {
        rate: u32,
    },
    /// Arguments of `uftp` that decide the rate.
    Uftp(&'static [&'static str]),
    Udpcast,
    /// Bytes a second.
    OpenPgm {
        rate: u32,
    },
    /// kbit/s.
    ZeroMq {
        rate: u32,
    },
    Copies,
}

/// All that is measured, in this order within each round.
pub(super) const TRANSPORTS: &[Transport] = &[
    fast(
        "limit",
        "bare multicast, a window of acknowledgements, GSO and GRO",
        Class::Limit,
        Program::Limit { forced: false, files: false },
    ),
    fast(
        "limit-forced",
        "the same with socket buffers as large as those of faircast send",
        Class::Limit,
        Program::Limit { forced: true, files: false },
    ),
    fast(
        "limit-files",
        "the same as limit, from a file into files",
        Class::Limit,
        Program::Limit { forced: false, files: true },
    ),
    fast("tcp", "a copy over TCP for each receiver", Class::Copies, Program::Copies),
    fast("faircast", "faircast send", Class::Ours, Program::Faircast { sealed: false }),
    fast("faircast-key", "faircast send --key", Class::Ours, Program::Faircast { sealed: true }),
    fast(
        "norm-cc",
        "NORM with NORM-CC, begun at 100 Mbit/s",
        Class::Controlled,
        Program::Norm { rate: 0 },
    ),
    fast("uftp-tfmcc", "UFTP with TFMCC", Class::Controlled, Program::Uftp(&["-C", "tfmcc"])),
    fast("udpcast", "udpcast, full duplex", Class::Flow, Program::Udpcast),
    fast("norm-1000", "NORM at 1000 Mbit/s", Class::Fixed, Program::Norm { rate: 1000 }),
    fast("uftp-600", "UFTP at 600 Mbit/s", Class::Fixed, Program::Uftp(&["-R", "600000"])),
    fast("uftp-800", "UFTP at 800 Mbit/s", Class::Fixed, Program::Uftp(&["-R", "800000"])),
    fast("openpgm-640", "OpenPGM at 80 MB/s", Class::Fixed, Program::OpenPgm { rate: 80_000_000 }),
    fast(
        "zeromq-800",
        "ZeroMQ epgm at 800 Mbit/s",
        Class::Fixed,
        Program::ZeroMq { rate: 800_000 },
    ),
    Transport {
        over: Over::Group,
        ..fast(
            "group-faircast",
            "faircast send to 20 receivers",
            Class::Ours,
            Program::Faircast { sealed: false },
        )
    },
    Transport {
        over: Over::Group,
        ..fast(
            "group-tram",
            "faircast send --scheme tram to 20 receivers",
            Class::Ours,
            Program::Tram,
        )
    },
    over_uplink(
        "uplink-faircast",
        "faircast send over the uplink",
        Class::Ours,
        Program::Faircast { sealed: false },
    ),
    over_uplink(
        "uplink-tcp",
        "a copy over TCP for each receiver, over the uplink",
        Class::Copies,
        Program::Copies,
    ),
];

/// A transport over the fast network to a few receivers.
const fn fast(id: &'static str, title: &'static str, class: Class, program: Program) -> Transport {
    Transport { id, title, class, program, over: Over::Fast }
}

/// One over the limited uplink to many.
const fn over_uplink(
    id: &'static str,
    title: &'static str,
    class: Class,
    program: Program,
) -> Transport {
    Transport { over: Over::Uplink, ..fast(id, title, class, program) }
}

pub(super) struct Place<'a> {
    pub(super) network: &'a Network,
    /// Programs that were compiled, and keys.
    pub(super) tools: &'a Path,
    pub(super) file: &'a Path,
    pub(super) bytes: u64,
    /// Where copies go: a folder for each receiver, by its number.
    pub(super) folder: &'a Path,
    /// Scheme and settings of our senders.
    pub(super) ours: &'a [String],
}

/// A program of a run, for the sender or a receiver.
pub(super) struct Part {
    pub(super) words: Vec<String>,
    /// The file that says that it is done, where it does not end then.
    pub(super) done: Option<PathBuf>,
}

/// The group of every run, and the second one of UFTP and udpcast.
const GROUP: &str = "239.1.2.3";
const GROUP_2: &str = "239.1.2.4";

const PORT: u16 = 7500;

/// What UFTP and libpgm ask the kernel for is 4 MiB too; the kernel gives at most its limit.
const SOCKET_BUFFER: &str = "4194304";

impl Place<'_> {
    pub(super) fn copy(&self, host: u32) -> PathBuf {
        let name = self.file.file_name().expect("what is sent is a file");
        self.folder.join(host.to_string()).join(name)
    }

    /// The file that says that a receiver has all.
    fn done(&self, host: u32) -> PathBuf {
        let mut name = self.copy(host).into_os_string();
        name.push(".done");
        name.into()
    }

    /// This program, doing one end of a measurement.
    fn own(&self, case: &Case) -> Vec<String> {
        let case = serde_json::to_string(case).expect("plain values serialise");
        strings(&[&self.this(), "bench", "wire", "--wire-case", &case])
    }

    fn this(&self) -> String {
        text(self.network.own())
    }

    fn tool(&self, name: &str) -> String {
        text(&self.tools.join(name))
    }
}

impl Transport {
    /// Makes ready what the transport needs, in the folder of tools. The error says why it cannot
    /// be measured here.
    pub(super) fn prepare(&self, tools: &Path) -> Result<(), Unprepared> {
        let failed = |error: &dyn std::fmt::Display| Unprepared::Failed(error.to_string());
        match self.program {
            Program::Limit { .. } | Program::Copies => Ok(()),
            Program::Faircast { sealed: true } if !tools.join(KEY).exists() => {
                make_key(&tools.join(KEY)).map_err(|error| failed(&error))
            }
            Program::Faircast { .. } | Program::Tram => Ok(()),
            Program::Norm { .. } => NORM.compile(tools),
            Program::Uftp(_) => {
                installed("uftpd", "uftp")?;
                let script = tools.join(UFTP_DONE);
                // It is called with `-I`, the session, and the file that has come.
                std::fs::write(&script, "#!/bin/sh\n: > \"$3.done\"\n")
                    .and_then(|()| std::fs::set_permissions(&script, Permissions::from_mode(0o755)))
                    .map_err(|error| failed(&error))
            }
            Program::Udpcast => installed("udp-sender", "udpcast"),
            Program::OpenPgm { .. } => LIBPGM.compile(tools),
            Program::ZeroMq { .. } => ZEROMQ.compile(tools),
        }
    }

    pub(super) fn makes_files(&self) -> bool {
        self.class != Class::Limit
    }

    pub(super) fn writes_files(&self) -> bool {
        !matches!(self.program, Program::Limit { files: false, .. })
    }

    pub(super) fn sender_stays(&self) -> bool {
        matches!(self.program, Program::OpenPgm { .. } | Program::ZeroMq { .. })
    }

    /// The words by which our programs know the key, where they have one.
    fn key(&self, place: &Place<'_>) -> Vec<String> {
        match self.program {
            Program::Faircast { sealed: true } => vec!["--key".into(), place.tool(KEY)],
            _ => Vec::new(),
        }
    }

    pub(super) fn sender(&self, place: &Place<'_>) -> Part {
        let (file, here) = (text(place.file), place.network.address(1));
        let receivers = place.network.receivers().count();
        let words = match self.program {
            Program::Limit { forced, files } => {
                let file = files.then(|| place.file.to_path_buf());
                place.own(&Case::LimitSend(limit_end(place, 1, forced, file)))
            }
            Program::Copies => place.own(&Case::CopySend(copy_end(place, place.file.into()))),
            Program::Faircast { .. } | Program::Tram => {
                let options = format!(
                    "--group {GROUP}:{PORT} --interface {INTERFACE} --wait-for {receivers} --json"
                );
                let scheme = match self.program {
                    Program::Tram => strings(&["--scheme", "tram"]),
                    _ => place.ours.to_vec(),
                };
                let first = words(&[&place.this(), "send", &file], &options);
                [first, scheme, self.key(place)].concat()
            }
            Program::Norm { rate } => [
                words(&[&place.tool("norm")], &format!("send {INTERFACE} {GROUP} {PORT} {rate}")),
                words(&[&file], &receivers.to_string()),
            ]
            .concat(),
            Program::Uftp(rate) => {
                let hosts = place.network.receivers().map(|host| format!("0x{host:08x}"));
                let hosts = hosts.collect::<Vec<_>>().join(",");
                let options = format!(
                    "-B {SOCKET_BUFFER} -b 1400 -M {GROUP} -P {GROUP_2} -I {INTERFACE} -r 0.1 \
                     -H {hosts}"
                );
                [words(&["uftp"], &options), strings(rate), vec![file]].concat()
            }
            Program::Udpcast => words(
                &["udp-sender", "--file", &file],
                &format!(
                    "--interface {INTERFACE} --full-duplex --nokbd --no-progress --min-receivers \
                     {receivers} --mcast-data-address {GROUP} --mcast-rdv-address {GROUP_2}"
                ),
            ),
            Program::OpenPgm { rate } => [
                words(&[&place.tool("libpgm")], &format!("send {here} {GROUP} {PORT} {rate} 0")),
                words(&[&file], "1428 0"),
            ]
            .concat(),
            Program::ZeroMq { rate } => [
                words(&[&place.tool("zeromq")], &format!("send {here} {GROUP} {PORT} {rate}")),
                words(&[&file], "65536 500"),
            ]
            .concat(),
        };
        Part { words, done: None }
    }

    pub(super) fn receiver(&self, place: &Place<'_>, host: u32) -> Part {
        let (copy, bytes) = (place.copy(host), place.bytes);
        let folder = text(copy.parent().expect("a copy lies in a folder"));
        let here = place.network.address(host);
        let copy = text(&copy);
        let done = Some(place.done(host));
        let (words, done) = match self.program {
            Program::Limit { forced, files } => {
                let file = files.then(|| place.copy(host));
                (place.own(&Case::LimitReceive(limit_end(place, host, forced, file))), None)
            }
            Program::Copies => (place.own(&Case::CopyReceive(copy_end(place, copy.into()))), None),
            Program::Faircast { .. } | Program::Tram => {
                let options = format!(
                    "--name host-{host} --group {GROUP}:{PORT} --interface {INTERFACE} --once"
                );
                let words = words(&[&place.this(), "recv", "--into", &folder], &options);
                ([words, self.key(place)].concat(), None)
            }
            Program::Norm { .. } => {
                let options = format!("recv {INTERFACE} {GROUP} {PORT} {host}");
                let files = strings(&[&copy, &folder]);
                ([words(&[&place.tool("norm")], &options), files].concat(), done)
            }
            Program::Uftp(_) => {
                let options =
                    format!("-d -B {SOCKET_BUFFER} -I {INTERFACE} -M {GROUP} -U 0x{host:08x}");
                let files = strings(&["-D", &folder, "-s", &place.tool(UFTP_DONE)]);
                ([words(&["uftpd"], &options), files].concat(), done)
            }
            Program::Udpcast => {
                let options = format!(
                    "--interface {INTERFACE} --nokbd --no-progress --mcast-rdv-address {GROUP_2}"
                );
                (words(&["udp-receiver", "--file", &copy], &options), None)
            }
            Program::OpenPgm { rate } => {
                let options = format!("recv {here} {GROUP} {PORT} {rate} 0");
                let copy = words(&[&copy], &format!("{bytes} 0"));
                ([words(&[&place.tool("libpgm")], &options), copy].concat(), done)
            }
            Program::ZeroMq { rate } => {
                let options = format!("recv {here} {GROUP} {PORT} {rate}");
                let copy = words(&[&copy], &format!("{bytes} 0"));
                ([words(&[&place.tool("zeromq")], &options), copy].concat(), done)
            }
        };
        Part { words, done }
    }
}

/// The key's file, and the script that UFTP calls for a file that has come, among the tools.
const KEY: &str = "key";
const UFTP_DONE: &str = "uftp-done";

fn limit_end(place: &Place<'_>, host: u32, forced: bool, file: Option<PathBuf>) -> limit::End {
    limit::End {
        here: address(place, host),
        sender: address(place, 1),
        group: GROUP.parse().expect("the group is an address"),
        port: PORT,
        bytes: place.bytes,
        receivers: place.network.receivers().count() as u32,
        forced,
        file,
    }
}

fn copy_end(place: &Place<'_>, file: PathBuf) -> copies::End {
    let receivers = place.network.receivers().count() as u32;
    copies::End { sender: address(place, 1), port: PORT, file, receivers }
}

fn address(place: &Place<'_>, host: u32) -> Ipv4Addr {
    place.network.address(host).parse().expect("hosts have addresses")
}
