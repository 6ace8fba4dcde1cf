//! What went over a host's interface, as tshark reads it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::PORT;
use crate::hosts::{Hosts, Program};

/// A capture that goes on.
pub(crate) struct Capture {
    program: Program,
    file: PathBuf,
    address: Ipv4Addr,
}

impl Capture {
    /// Begins to record what passes a host's interface.
    pub(crate) fn start(hosts: &Hosts, host: u8) -> Self {
        let file = hosts.file(&format!("capture-{host}.pcap"));
        let path = file.to_string_lossy().into_owned();
        let words =
            ["dumpcap", "-q", "-i", "e0", "-s", "0", "-B", "16", "-P", "-w", &path, "-f", "udp"];
        let mut program = hosts.start(host, &words);
        let start = Instant::now();
        while !program.said().contains("File:") {
            program.assert_alive();
            assert!(start.elapsed() < Duration::from_secs(20), "dumpcap: {}", program.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { program, file, address: hosts.address(host) }
    }

    /// Ends it, and has tshark read what this host itself has sent: nothing malformed, nothing
    /// worth a complaint, every checksum right. Returns how many packets there were by type, as
    /// PGM numbers them, and by the types of options that they carry.
    pub(crate) fn check(self) -> Seen {
        std::thread::sleep(Duration::from_millis(200));
        let Self { program, file, address } = self;
        program.interrupt();
        let tshark = |filter: &str, fields: &[&str]| {
            let mut command = Command::new("tshark");
            command.arg("-r").arg(&file).args(["-d", &format!("udp.port=={PORT},pgm")]);
            command.args(["-o", "pgm.check_checksum:TRUE", "-n", "-Y", filter]);
            if !fields.is_empty() {
                command.args(["-T", "fields"]);
                for field in fields {
                    command.args(["-e", field]);
                }
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "tshark: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let ours = format!("ip.src == {address} && udp.port == {PORT}");
        for wrong in ["_ws.malformed", "_ws.expert", "pgm.hdr.cksum.status != 1", "!pgm"] {
            let found = tshark(&format!("{ours} && ({wrong})"), &[]);
            let first: Vec<&str> = found.lines().take(3).collect();
            assert!(first.is_empty(), "{wrong}: {first:?} of {} lines", found.lines().count());
        }
        let mut seen = Seen::default();
        let table = tshark(&ours, &["pgm.hdr.type", "pgm.genopts.type"]);
        for line in table.lines() {
            let (kind, options) = line.split_once('\t').unwrap_or((line, ""));
            *seen.types.entry(number(kind)).or_default() += 1;
            for option in options.split(',').filter(|option| !option.is_empty()) {
                *seen.options.entry((number(kind), number(option))).or_default() += 1;
            }
        }
        seen
    }
}

/// Packets of a host, as another program understands them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How many of each type.
    pub(crate) types: BTreeMap<u8, usize>,
    /// How many with each option, by type of packet and of option.
    pub(crate) options: BTreeMap<(u8, u8), usize>,
}

impl Seen {
    pub(crate) fn of(&self, kind: u8) -> usize {
        self.types.get(&kind).copied().unwrap_or(0)
    }

    pub(crate) fn with(&self, kind: u8, option: u8) -> usize {
        self.options.get(&(kind, option)).copied().unwrap_or(0)
    }
}

/// `0x04` or `4`; options are shown with the bit that marks the last one.
fn number(text: &str) -> u8 {
    let text = text.trim();
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.unwrap_or_else(|_| panic!("tshark says {text:?} where a number should be")) & 0x7f
}
