//! Benchmarks of sealing and opening a datagram with 1400 bytes of payload.

use divan::Bencher;
use faircast_seal::{GroupKey, Seal};

fn main() {
    divan::main();
}

fn ends() -> (Seal, Seal) {
    let key = GroupKey::from_bytes([1; 32]);
    let made = "the system gives random bytes";
    (Seal::source(key.clone()).expect(made), Seal::receiver(key).expect(made))
}

#[divan::bench]
fn seal_1400(bencher: Bencher<'_, '_>) {
    let (mut source, _) = ends();
    let session = source.session().expect("a source has one");
    let plain = vec![7; 1400];
    let mut out = Vec::with_capacity(2000);
    bencher.bench_local(|| {
        out.clear();
        source.seal(session, &plain, &mut out);
        out.len()
    });
}

#[divan::bench]
fn open_1400(bencher: Bencher<'_, '_>) {
    let (mut source, mut receiver) = ends();
    let session = source.session().expect("a source has one");
    let plain = vec![7; 1400];
    bencher
        .with_inputs(|| {
            let mut out = Vec::new();
            source.seal(session, &plain, &mut out);
            out
        })
        .bench_local_values(|mut datagram| {
            let opened = receiver.open(&mut datagram).map(|opened| opened.plain.len());
            assert_eq!(opened, Ok(1400));
            datagram
        });
}

#[divan::bench(sample_count = 40, sample_size = 100)]
fn refuse_unknown_party(bencher: Bencher<'_, '_>) {
    refuse(bencher);
}

#[divan::bench(sample_count = 1000, sample_size = 1000)]
fn refuse_flood(bencher: Bencher<'_, '_>) {
    refuse(bencher);
}

fn refuse(bencher: Bencher<'_, '_>) {
    let (mut source, mut receiver) = ends();
    let session = source.session().expect("a source has one");
    let mut datagram = Vec::new();
    source.seal(session, &[7; 1400], &mut datagram);
    receiver.open(&mut datagram.clone()).expect("it is good");
    let mut party = 0u64;
    bencher.bench_local(|| {
        party += 1;
        datagram[24..32].copy_from_slice(&party.to_be_bytes());
        receiver.open(&mut datagram).is_err()
    });
}
