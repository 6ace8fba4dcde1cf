//! Capture of the packets on a host's interface, dissected by tshark.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use crate::hosts::{Hosts, Program};
use crate::{GROUP, PORT, until};

pub(crate) struct Capture {
    program: Program,
    file: PathBuf,
    address: Ipv4Addr,
    enter: Box<dyn FnOnce() + Send>,
}

impl Capture {
    pub(crate) fn start(hosts: &Hosts, host: u8) -> Self {
        let file = hosts.file(&format!("capture-{host}.pcap"));
        let path = file.to_string_lossy().into_owned();
        let words =
            ["dumpcap", "-q", "-i", "e0", "-s", "0", "-B", "16", "-P", "-w", &path, "-f", "udp"];
        let mut program = hosts.start(host, &words);
        let begins = || {
            program.assert_alive();
            program.said().contains("File:").then_some(())
        };
        until(begins, || "dumpcap does not begin".to_string());
        let (address, enter) = (hosts.address(host), Box::new(hosts.gate(host)));
        Self { program, file, address, enter }
    }

    /// Ends the capture, checks it with tshark, and returns packets by PGM type and option.
    pub(crate) fn check(self) -> Seen {
        let Self { program, file, address, enter } = self;
        // Once the mark is recorded, all earlier packets of the host are recorded too.
        let mark = std::thread::spawn(move || {
            enter();
            let socket = UdpSocket::bind((address, 0)).unwrap();
            socket.send_to(MARK, (Ipv4Addr::from(GROUP), DISCARD_PORT)).unwrap();
        });
        mark.join().unwrap();
        let is_mark = |bytes: &[u8]| bytes == MARK;
        let has_mark = || std::fs::read(&file).unwrap().windows(MARK.len()).any(is_mark);
        until(|| has_mark().then_some(()), || format!("dumpcap: {}", program.said()));
        program.interrupt();
        let tshark = |filter: &str, how: &[&str]| {
            let mut command = Command::new("tshark");
            command.arg("-r").arg(&file).args(["-d", &format!("udp.port=={PORT},pgm")]);
            command.args(["-o", "pgm.check_checksum:TRUE", "-n", "-Y", filter]);
            let output = command.args(how).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "tshark: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let ours = format!("ip.src == {address} && udp.port == {PORT}");
        // tshark knows no SPM requests: it names them PGM and dissects no further.
        let request = "udp.payload[4:1] == 0c";
        let unread = format!("!pgm && !({request})");
        for wrong in ["_ws.malformed", "_ws.expert", "pgm.hdr.cksum.status != 1", &unread] {
            let found = tshark(&format!("{ours} && ({wrong})"), &[]);
            let first: Vec<&str> = found.lines().take(3).collect();
            assert!(first.is_empty(), "{wrong}: {first:?} of {} lines", found.lines().count());
        }
        let mut seen = Seen::default();
        seen.read_details(&tshark(&format!("{ours} && pgm"), &["-O", "pgm"]));
        for line in
            tshark(&format!("{ours} && {request}"), &["-T", "fields", "-e", "udp.payload"]).lines()
        {
            seen.add_request(&bytes(line));
        }
        seen
    }
}

/// Payload and port of the mark, the last recorded packet; the port is none of the test's.
const MARK: &[u8] = b"the end of the recording";
const DISCARD_PORT: u16 = 9;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) types: BTreeMap<u8, usize>,
    pub(crate) options: BTreeMap<(u8, u8), usize>,
}

impl Seen {
    pub(crate) fn of(&self, kind: u8) -> usize {
        self.types.get(&kind).copied().unwrap_or(0)
    }

    fn read_details(&mut self, text: &str) {
        let mut kind = None;
        for line in text.lines() {
            if line.starts_with("Pragmatic General Multicast") {
                kind = None;
            } else if line.starts_with("    Type: ") {
                kind = Some(number(line));
                *self.types.entry(number(line)).or_default() += 1;
            } else if let Some(kind) = kind
                // Known options have a line for their type; unknown options have only this line.
                && (line.contains(" = Type: ") || line.contains("Option: Unknown"))
            {
                *self.options.entry((kind, number(line))).or_default() += 1;
            }
        }
    }

    fn add_request(&mut self, packet: &[u8]) {
        let words = packet.chunks(2).map(|pair| {
            u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
        });
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "checksum of {packet:02x?}");
        *self.types.entry(packet[4]).or_default() += 1;
        let (has_options, length, first) = (packet[5] & 1 == 1, packet.get(16), packet.get(20));
        if has_options {
            assert_eq!(length, Some(&0), "the first option is the length: {packet:02x?}");
            *self.options.entry((packet[4], first.unwrap() & 0x7f)).or_default() += 1;
        }
    }

    pub(crate) fn with(&self, kind: u8, option: u8) -> usize {
        self.options.get(&(kind, option)).copied().unwrap_or(0)
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.trim().as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn number(line: &str) -> u8 {
    let digits = line.split_once("(0x").and_then(|(_, rest)| rest.get(..2));
    let number = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    number.unwrap_or_else(|| panic!("tshark says {line:?}, where a number should be"))
}
