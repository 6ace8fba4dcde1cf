//! Nanoseconds per packet of the PGM codec: `cargo bench -p faircast-proto --bench pgm`.

use std::hint::black_box;
use std::time::Instant;

use faircast_base::Seq;
use faircast_proto::wire::pgm::{Body, Data, Encoder, Header, OptionType, Packet, Tsi, checksum};

fn main() {
    let mut bytes = Vec::new();
    let zeros = write_data(&mut bytes, 1400);
    let mut full = bytes.clone();
    full.resize(bytes.len() + 1400, 0);
    measure("decode ODATA, payload of zeros", || {
        Packet::decode(black_box(&bytes), zeros).map(|packet| {
            let option = packet.options.find(OptionType::PGMCC_DATA).map(|o| o.value[0]);
            (packet.body, option)
        })
    });
    measure("decode ODATA, 1400 bytes", || Packet::decode(black_box(&full), 0).is_ok());
    measure("checksum of 1444 bytes", || checksum(black_box(&full)));
    measure("checksum of 44 bytes", || checksum(black_box(&bytes)));
    let mut out = Vec::new();
    measure("encode ODATA, payload of zeros", || {
        out.clear();
        write_data(black_box(&mut out), 1400)
    });
}

fn write_data(out: &mut Vec<u8>, len: u32) -> u32 {
    let body = Body::Odata(Data { sequence: Seq::new(13), trail: Seq::new(10) });
    let mut encoder = Encoder::new(out, &Header::downstream(Tsi::default(), 7500), &body);
    encoder.raw_option(OptionType::PGMCC_DATA, 0, &[1, 2, 3, 4, 0, 1, 0, 0, 10, 0, 0, 1]);
    encoder.payload(|_| len);
    encoder.finish()
}

/// Prints the best of several rounds: what disturbs a measurement only ever adds to it.
fn measure<T>(name: &str, mut work: impl FnMut() -> T) {
    const CALLS: u32 = 200_000;
    let mut best = f64::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(work());
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(CALLS) * 1e9);
    }
    println!("{name:<40} {best:>8.1} ns");
}
