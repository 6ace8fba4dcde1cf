//! What is measured: the limit, ours, and the peers with the settings that were found best for a
//! fast local network.

use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Case, copies, limit};
use crate::host::{INTERFACE, LIBPGM, NORM, Network, ZEROMQ, installed, make_key, strings, text};

/// What a transport is to the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the machine can do at most.
    Limit,
    Ours,
    /// A peer that controls congestion.
    Controlled,
    /// A peer that only sees to it that receivers are not overrun.
    Flow,
    /// A peer that sends at a fixed rate.
    Fixed,
    /// Copies over TCP.
    Copies,
}

/// A transport with its settings.
pub(super) struct Transport {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    program: Program,
    /// Over the limited uplink to many receivers, not over the fast network to a few.
    pub(super) uplink: bool,
}

/// Which programs, with which settings.
#[derive(Clone, Copy, Debug)]
enum Program {
    Limit {
        forced: bool,
        files: bool,
    },
    Faircast {
        sealed: bool,
    },
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
    Transport {
        id: "limit",
        title: "bare multicast, a window of acknowledgements, GSO and GRO",
        kind: Kind::Limit,
        program: Program::Limit { forced: false, files: false },
        uplink: false,
    },
    Transport {
        id: "limit-forced",
        title: "the same with socket buffers as large as those of faircast send",
        kind: Kind::Limit,
        program: Program::Limit { forced: true, files: false },
        uplink: false,
    },
    Transport {
        id: "limit-files",
        title: "the same as limit, from a file into files",
        kind: Kind::Limit,
        program: Program::Limit { forced: false, files: true },
        uplink: false,
    },
    Transport {
        id: "faircast",
        title: "faircast send",
        kind: Kind::Ours,
        program: Program::Faircast { sealed: false },
        uplink: false,
    },
    Transport {
        id: "faircast-key",
        title: "faircast send --key",
        kind: Kind::Ours,
        program: Program::Faircast { sealed: true },
        uplink: false,
    },
    Transport {
        id: "norm-cc",
        title: "NORM with NORM-CC, begun at 100 Mbit/s",
        kind: Kind::Controlled,
        program: Program::Norm { rate: 0 },
        uplink: false,
    },
    Transport {
        id: "uftp-tfmcc",
        title: "UFTP with TFMCC",
        kind: Kind::Controlled,
        program: Program::Uftp(&["-C", "tfmcc"]),
        uplink: false,
    },
    Transport {
        id: "udpcast",
        title: "udpcast, full duplex",
        kind: Kind::Flow,
        program: Program::Udpcast,
        uplink: false,
    },
    Transport {
        id: "norm-1000",
        title: "NORM at 1000 Mbit/s",
        kind: Kind::Fixed,
        program: Program::Norm { rate: 1000 },
        uplink: false,
    },
    Transport {
        id: "uftp-600",
        title: "UFTP at 600 Mbit/s",
        kind: Kind::Fixed,
        program: Program::Uftp(&["-R", "600000"]),
        uplink: false,
    },
    Transport {
        id: "uftp-800",
        title: "UFTP at 800 Mbit/s",
        kind: Kind::Fixed,
        program: Program::Uftp(&["-R", "800000"]),
        uplink: false,
    },
    Transport {
        id: "openpgm-640",
        title: "OpenPGM at 80 MB/s",
        kind: Kind::Fixed,
        program: Program::OpenPgm { rate: 80_000_000 },
        uplink: false,
    },
    Transport {
        id: "zeromq-800",
        title: "ZeroMQ epgm at 800 Mbit/s",
        kind: Kind::Fixed,
        program: Program::ZeroMq { rate: 800_000 },
        uplink: false,
    },
    Transport {
        id: "uplink-faircast",
        title: "faircast send over the uplink",
        kind: Kind::Ours,
        program: Program::Faircast { sealed: false },
        uplink: true,
    },
    Transport {
        id: "uplink-tcp",
        title: "a copy over TCP for each receiver, over the uplink",
        kind: Kind::Copies,
        program: Program::Copies,
        uplink: true,
    },
];

/// Where a run takes place.
pub(super) struct Place<'a> {
    pub(super) network: &'a Network,
    /// Programs that were compiled, and keys.
    pub(super) tools: &'a Path,
    /// What is sent.
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

/// The group of every run; UFTP's and udpcast's second one is the next.
const GROUP: &str = "239.1.2.3";

/// The UDP port of every run.
const PORT: u16 = 7500;

/// What UFTP and libpgm ask the kernel for is 4 MiB too; the kernel gives at most its limit.
const SOCKET_BUFFER: &str = "4194304";

impl Place<'_> {
    /// Where a receiver's copy is to be.
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
        strings(&[&text(self.network.own()), "bench", "wire", "--wire-case", &case])
    }

    fn tool(&self, name: &str) -> String {
        text(&self.tools.join(name))
    }
}

impl Transport {
    /// Makes ready what the transport needs, in the folder of tools. The error says why it cannot
    /// be measured here.
    pub(super) fn prepare(&self, tools: &Path) -> Result<(), String> {
        match self.program {
            Program::Limit { .. } | Program::Copies => Ok(()),
            Program::Faircast { sealed: true } if !tools.join(KEY).exists() => {
                make_key(&tools.join(KEY)).map_err(|error| error.to_string())
            }
            Program::Faircast { .. } => Ok(()),
            Program::Norm { .. } => NORM.compile(tools),
            Program::Uftp(_) => {
                installed("uftpd", "uftp")?;
                let script = tools.join(UFTP_DONE);
                // It is called with `-I`, the session, and the file that has come.
                std::fs::write(&script, "#!/bin/sh\n: > \"$3.done\"\n")
                    .and_then(|()| std::fs::set_permissions(&script, Permissions::from_mode(0o755)))
                    .map_err(|error| error.to_string())
            }
            Program::Udpcast => installed("udp-sender", "udpcast"),
            Program::OpenPgm { .. } => LIBPGM.compile(tools),
            Program::ZeroMq { .. } => ZEROMQ.compile(tools),
        }
    }

    /// Whether the copies are files that can be compared.
    pub(super) fn makes_files(&self) -> bool {
        self.kind != Kind::Limit
    }

    /// Whether receivers write what comes to files.
    pub(super) fn writes_files(&self) -> bool {
        !matches!(self.program, Program::Limit { files: false, .. })
    }

    /// Whether the sender stays until it is told to go.
    pub(super) fn sender_stays(&self) -> bool {
        matches!(self.program, Program::OpenPgm { .. } | Program::ZeroMq { .. })
    }

    /// The sender's program.
    pub(super) fn sender(&self, place: &Place<'_>) -> Part {
        let file = text(place.file);
        let (this, here) = (text(place.network.own()), place.network.address(1));
        let receivers = place.network.receivers().count().to_string();
        let group = format!("{GROUP}:{PORT}");
        let port = PORT.to_string();
        let words = match self.program {
            Program::Limit { forced, files } => {
                let file = files.then(|| place.file.to_path_buf());
                place.own(&Case::LimitSend(limit_end(place, 1, forced, file)))
            }
            Program::Copies => place.own(&Case::CopySend(copy_end(place, place.file.into()))),
            Program::Faircast { sealed } => {
                let mut words = strings(&[
                    &this,
                    "send",
                    &file,
                    "--group",
                    &group,
                    "--interface",
                    INTERFACE,
                    "--wait-for",
                    &receivers,
                    "--json",
                ]);
                words.extend_from_slice(place.ours);
                words.extend(key(place, sealed));
                words
            }
            Program::Norm { rate } => strings(&[
                &place.tool("norm"),
                "send",
                INTERFACE,
                GROUP,
                &port,
                &rate.to_string(),
                &file,
                &receivers,
            ]),
            Program::Uftp(rate) => {
                let hosts: Vec<String> =
                    place.network.receivers().map(|host| format!("0x{host:08x}")).collect();
                let mut words = strings(&[
                    "uftp",
                    "-B",
                    SOCKET_BUFFER,
                    "-b",
                    "1400",
                    "-M",
                    GROUP,
                    "-P",
                    "239.1.2.4",
                    "-I",
                    INTERFACE,
                    "-r",
                    "0.1",
                    "-H",
                    &hosts.join(","),
                ]);
                words.extend(strings(rate));
                words.push(file);
                words
            }
            Program::Udpcast => strings(&[
                "udp-sender",
                "--file",
                &file,
                "--interface",
                INTERFACE,
                "--full-duplex",
                "--nokbd",
                "--no-progress",
                "--min-receivers",
                &receivers,
                "--mcast-data-address",
                GROUP,
                "--mcast-rdv-address",
                "239.1.2.4",
            ]),
            Program::OpenPgm { rate } => strings(&[
                &place.tool("libpgm"),
                "send",
                &here,
                GROUP,
                &port,
                &rate.to_string(),
                "0",
                &file,
                "1428",
                "0",
            ]),
            Program::ZeroMq { rate } => strings(&[
                &place.tool("zeromq"),
                "send",
                &here,
                GROUP,
                &port,
                &rate.to_string(),
                &file,
                "65536",
                "500",
            ]),
        };
        Part { words, done: None }
    }

    /// A receiver's program.
    pub(super) fn receiver(&self, place: &Place<'_>, host: u32) -> Part {
        let copy = place.copy(host);
        let folder = text(copy.parent().expect("a copy lies in a folder"));
        let (this, here) = (text(place.network.own()), place.network.address(host));
        let group = format!("{GROUP}:{PORT}");
        let (port, bytes) = (PORT.to_string(), place.bytes.to_string());
        let copy = text(&copy);
        let done = Some(place.done(host));
        let (words, done) = match self.program {
            Program::Limit { forced, files } => {
                let file = files.then(|| place.copy(host));
                (place.own(&Case::LimitReceive(limit_end(place, host, forced, file))), None)
            }
            Program::Copies => (place.own(&Case::CopyReceive(copy_end(place, copy.into()))), None),
            Program::Faircast { sealed } => {
                let mut words = strings(&[
                    &this,
                    "recv",
                    "--name",
                    &format!("host-{host}"),
                    "--group",
                    &group,
                    "--interface",
                    INTERFACE,
                    "--into",
                    &folder,
                    "--once",
                ]);
                words.extend(key(place, sealed));
                (words, None)
            }
            Program::Norm { .. } => {
                let id = host.to_string();
                let words =
                    [&place.tool("norm"), "recv", INTERFACE, GROUP, &port, &id, &copy, &folder];
                (strings(&words), done)
            }
            Program::Uftp(_) => {
                let words = [
                    "uftpd",
                    "-d",
                    "-B",
                    SOCKET_BUFFER,
                    "-D",
                    &folder,
                    "-I",
                    INTERFACE,
                    "-M",
                    GROUP,
                    "-U",
                    &format!("0x{host:08x}"),
                    "-s",
                    &place.tool(UFTP_DONE),
                ];
                (strings(&words), done)
            }
            Program::Udpcast => {
                let words = [
                    "udp-receiver",
                    "--file",
                    &copy,
                    "--interface",
                    INTERFACE,
                    "--nokbd",
                    "--no-progress",
                    "--mcast-rdv-address",
                    "239.1.2.4",
                ];
                (strings(&words), None)
            }
            Program::OpenPgm { rate } => {
                let (tool, rate) = (place.tool("libpgm"), rate.to_string());
                let words = [&tool, "recv", &here, GROUP, &port, &rate, "0", &copy, &bytes, "0"];
                (strings(&words), done)
            }
            Program::ZeroMq { rate } => {
                let (tool, rate) = (place.tool("zeromq"), rate.to_string());
                let words = [&tool, "recv", &here, GROUP, &port, &rate, &copy, &bytes, "0"];
                (strings(&words), done)
            }
        };
        Part { words, done }
    }
}

/// The key's file, and the script that UFTP calls for a file that has come, among the tools.
const KEY: &str = "key";
const UFTP_DONE: &str = "uftp-done";

fn key(place: &Place<'_>, sealed: bool) -> Vec<String> {
    match sealed {
        true => vec!["--key".into(), place.tool(KEY)],
        false => Vec::new(),
    }
}

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
