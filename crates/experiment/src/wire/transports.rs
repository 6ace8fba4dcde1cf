//! The transports that are measured: the limit, ours, and peers. `transports.toml` has their command lines.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;

use super::verdicts::Goal;
use super::{Case, copies, limit};
use crate::command;
use crate::host::{
    INTERFACE, LIBPGM, NORM, Network, Unprepared, ZEROMQ, installed, make_key, text,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Transport {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) class: Class,
    program: String,
    #[serde(default)]
    pub(super) over: Over,
    /// Words that decide the rate of a peer.
    #[serde(default)]
    rate: String,
    #[serde(default)]
    sealed: bool,
    /// Whether the limit has the socket buffers of `faircast send`, and whether it has files.
    #[serde(default)]
    forced: bool,
    #[serde(default)]
    files: bool,
}

/// Networks, by what limits them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Over {
    /// Nothing but the machine, to a few receivers.
    #[default]
    Fast,
    /// The same to many.
    Group,
    /// The sender's uplink, to many.
    Uplink,
}

/// Command lines of both ends, and what they need.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    send: String,
    receive: String,
    /// A program of the peer, and Debian's package that has it.
    installed: Option<[String; 2]>,
    /// A program of ours on the library of the peer.
    compile: Option<String>,
    /// Whether receivers do not end when they have all, but make a file.
    #[serde(default)]
    done: bool,
    /// Whether the sender does not end by itself.
    #[serde(default)]
    stays: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tables {
    program: BTreeMap<String, Program>,
    #[serde(rename = "transport")]
    pub(super) transports: Vec<Transport>,
    #[serde(rename = "goal")]
    pub(super) goals: Vec<Goal>,
}

pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    toml::from_str(include_str!("transports.toml")).expect("a test reads the tables")
});

pub(super) struct Place<'a> {
    pub(super) network: &'a Network,
    /// Programs that were compiled, and keys.
    pub(super) tools: &'a Path,
    pub(super) file: &'a Path,
    pub(super) bytes: u64,
    /// Where copies go: a folder for each receiver, by its number.
    pub(super) folder: &'a Path,
    pub(super) ours: &'a [String],
}

pub(super) struct Part {
    pub(super) words: Vec<String>,
    /// The file that says that it is done, where it does not end then.
    pub(super) done: Option<PathBuf>,
}

/// The group of every run, and the second one of UFTP and udpcast.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_2: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 4);

const PORT: u16 = 7500;

impl Place<'_> {
    pub(super) fn copy(&self, host: u32) -> PathBuf {
        let name = self.file.file_name().expect("what is sent is a file");
        self.folder.join(host.to_string()).join(name)
    }

    fn receivers(&self) -> u32 {
        self.network.receivers().count() as u32
    }

    fn address(&self, host: u32) -> Ipv4Addr {
        self.network.address(host).parse().expect("hosts have addresses")
    }
}

impl Transport {
    fn program(&self) -> &'static Program {
        &TABLES.program[&self.program]
    }

    /// Makes ready what the transport needs, in the folder of tools. The error says why it cannot
    /// be measured here.
    pub(super) fn prepare(&self, tools: &Path) -> Result<(), Unprepared> {
        let failed = |error: &dyn std::fmt::Display| Unprepared::Failed(error.to_string());
        let Program { installed: peer, compile, .. } = self.program();
        if let Some([program, package]) = peer {
            installed(program, package)?;
        }
        if let Some(name) = compile {
            let written = [NORM, LIBPGM, ZEROMQ].into_iter().find(|written| written.name == name);
            written.expect("a test looks for it").compile(tools)?;
        }
        if self.sealed && !tools.join(KEY).exists() {
            make_key(&tools.join(KEY)).map_err(|error| failed(&error))?;
        }
        // UFTP calls it with `-I`, the session, and the file that has come.
        let script = tools.join("uftp-done");
        std::fs::write(&script, "#!/bin/sh\n: > \"$3.done\"\n")
            .and_then(|()| std::fs::set_permissions(&script, Permissions::from_mode(0o755)))
            .map_err(|error| failed(&error))
    }

    pub(super) fn makes_files(&self) -> bool {
        self.class != Class::Limit
    }

    pub(super) fn writes_files(&self) -> bool {
        self.makes_files() || self.files
    }

    pub(super) fn sender_stays(&self) -> bool {
        self.program().stays
    }

    pub(super) fn sender(&self, place: &Place<'_>) -> Part {
        let words = self.words(&self.program().send, place, 1, place.file.into());
        Part { words, done: None }
    }

    pub(super) fn receiver(&self, place: &Place<'_>, host: u32) -> Part {
        let copy = place.copy(host);
        let mut done = copy.clone().into_os_string();
        done.push(".done");
        let done = self.program().done.then(|| done.into());
        Part { words: self.words(&self.program().receive, place, host, copy), done }
    }

    /// Words of a command line on a host, which sends `file` or receives into it.
    fn words(&self, line: &str, place: &Place<'_>, host: u32, file: PathBuf) -> Vec<String> {
        let number = |host: u32| format!("0x{host:08x}");
        let one = |name: &str| match name {
            "own" => text(place.network.own()),
            "case" => {
                let case = self.case(place, host, file.clone());
                serde_json::to_string(&case).expect("plain values serialise")
            }
            "file" | "copy" => text(&file),
            "folder" => text(file.parent().expect("a copy lies in a folder")),
            "tools" => text(place.tools),
            "group" => GROUP.to_string(),
            "group2" => GROUP_2.to_string(),
            "port" => PORT.to_string(),
            "interface" => INTERFACE.to_string(),
            "here" => place.network.address(host),
            "host" => host.to_string(),
            "number" => number(host),
            "hosts" => place.network.receivers().map(number).collect::<Vec<_>>().join(","),
            "receivers" => place.receivers().to_string(),
            "bytes" => place.bytes.to_string(),
            name => unreachable!("transports.toml: {{{name}}}"),
        };
        command::words(&line.replace("{rate}", &self.rate), |name| match name {
            "ours" => place.ours.to_vec(),
            "key" if self.sealed => vec!["--key".into(), text(&place.tools.join(KEY))],
            "key" => Vec::new(),
            name => vec![one(name)],
        })
    }

    /// Role of this program as an end of a measurement.
    fn case(&self, place: &Place<'_>, host: u32, file: PathBuf) -> Case {
        let (sender, receivers) = (place.address(1), place.receivers());
        if self.class == Class::Copies {
            let end = copies::End { sender, port: PORT, file, receivers };
            return if host == 1 { Case::CopySend(end) } else { Case::CopyReceive(end) };
        }
        let end = limit::End {
            here: place.address(host),
            sender,
            group: GROUP,
            port: PORT,
            bytes: place.bytes,
            receivers,
            forced: self.forced,
            file: self.files.then_some(file),
        };
        if host == 1 { Case::LimitSend(end) } else { Case::LimitReceive(end) }
    }
}

const KEY: &str = "key";
