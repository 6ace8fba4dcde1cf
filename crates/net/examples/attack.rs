//! Sends forged packets into a session of this host, to see what becomes of it:
//!
//! ```text
//! faircast recv --group 239.192.7.1:7500 --interface lo --into in
//! faircast send FILE --group 239.192.7.1:7500 --interface lo --rate-max 100Mbit/s
//! cargo run -p faircast-net --example attack -- lead 239.192.7.1:7500 127.0.0.1
//! ```
//!
//! It hears the session for a moment, and then speaks in the name of its source, from the address of
//! the interface: on the host of the source that is the address of the source. Nothing of it passes
//! where a key is used.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use faircast_proto::wire::pgm::{Body, Encoder, OptionType, Packet, PgmOption, Spm, checksum};
use socket2::{Domain, Protocol, Socket, Type};

const USAGE: &str = "usage: attack KIND GROUP:PORT INTERFACE-ADDRESS
KIND is one of
  data      one packet of data from 100 000 ahead
  lead      one SPM whose lead is 100 000 ahead
  spm       one SPM whose own number is 100 000 000 ahead
  fin, rst  one SPM that says that this is the end
  scheme    one SPM of another scheme
  damage    6000 damaged packets a second, for ten seconds
  sessions  3000 packets a second of sessions that there are none of, for ten seconds";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, group, interface] = &args[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (Ok(group), Ok(interface)) = (group.parse(), interface.parse()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match attack(kind, group, interface) {
        Ok(Some(count)) => {
            println!("{count} forged packets were sent");
            ExitCode::SUCCESS
        }
        Ok(None) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("{group} on {interface}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how many packets were sent; `None` for an unknown kind.
fn attack(kind: &str, group: SocketAddrV4, interface: Ipv4Addr) -> std::io::Result<Option<u32>> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&group.into())?;
    socket.join_multicast_v4(group.ip(), &interface)?;
    let hears: UdpSocket = socket.into();
    hears.set_read_timeout(Some(Duration::from_secs(5)))?;
    let speaks = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    speaks.bind(&SocketAddrV4::new(interface, 0).into())?;
    speaks.set_multicast_if_v4(&interface)?;
    let send = |bytes: &[u8]| speaks.send_to(bytes, &group.into());
    let (mut spm, mut data) = (Vec::new(), Vec::new());
    while spm.is_empty() || data.is_empty() && matches!(kind, "data" | "damage") {
        let mut buffer = [0; 65_536];
        let len = hears.recv(&mut buffer)?;
        match Packet::decode(&buffer[..len], 0).map(|packet| packet.body) {
            Ok(Body::Spm(_)) => spm = buffer[..len].to_vec(),
            Ok(Body::Odata(_)) => data = buffer[..len].to_vec(),
            _ => {}
        }
    }
    let flood = |per_second: u32, forge: &dyn Fn(u32) -> Vec<u8>| -> std::io::Result<u32> {
        let begun = Instant::now();
        for i in 0..10 * per_second {
            send(&forge(i))?;
            let due = begun + Duration::from_secs(1) / per_second * i;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(10 * per_second)
    };
    let forged = match kind {
        "data" => with_word(&data, 16, 100_000),
        "lead" => forge_spm(&spm, |spm| spm.lead += 100_000, None),
        "spm" => forge_spm(&spm, |spm| spm.sequence += 100_000_000, None),
        "fin" => forge_spm(&spm, |_| {}, Some(PgmOption::Fin)),
        "rst" => forge_spm(&spm, |_| {}, Some(PgmOption::Reset { abandoned: false, code: 1 })),
        "scheme" => forge_spm(&spm, |_| {}, None),
        "damage" => {
            let damaged = |i: u32| {
                let real = if i.is_multiple_of(2) { &data } else { &spm };
                let place = 2 * (i as usize * 7919 % (real.len().min(64) / 2 - 2));
                with_word(real, place, i.wrapping_mul(2_654_435_761))
            };
            return flood(6000, &damaged).map(Some);
        }
        // The id of a session's source is in bytes 8 to 13.
        "sessions" => return flood(3000, &|i| with_word(&spm, 8, i + 1)).map(Some),
        _ => return Ok(None),
    };
    send(&forged)?;
    Ok(Some(1))
}

/// The packet with another number at a place, and its checksum.
fn with_word(packet: &[u8], place: usize, more: u32) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    if let Some(word) = bytes.get_mut(place..place + 4) {
        let old = word.iter().fold(0u32, |old, byte| old << 8 | u32::from(*byte));
        word.copy_from_slice(&old.wrapping_add(more).to_be_bytes());
    }
    bytes[6..8].fill(0);
    let sum = checksum(&bytes);
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A newer SPM of the session, changed; without an option of its own it names another scheme where
/// nothing else is changed.
fn forge_spm(real: &[u8], change: impl FnOnce(&mut Spm), option: Option<PgmOption<'_>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(packet) = Packet::decode(real, 0) else { return bytes };
    let Body::Spm(mut spm) = packet.body else { return bytes };
    let before = spm;
    change(&mut spm);
    let other = spm == before && option.is_none();
    spm.sequence += 1;
    let mut encoder = Encoder::new(&mut bytes, &packet.header, &Body::Spm(spm));
    for known in packet.options.iter() {
        if known.kind == OptionType::SCHEME && other {
            encoder.raw_option(OptionType::SCHEME, 0, b"\x01\x07another");
        } else {
            encoder.raw_option(known.kind, known.specific, known.value);
        }
    }
    if let Some(option) = &option {
        encoder.option(option);
    }
    encoder.finish();
    bytes
}
