//! Fuzz targets of opening datagrams and parsing key files; the corpus test runs the same.

use faircast_seal::{GroupKey, Seal};

/// Runs a source and a receiver with one key, and changed and foreign datagrams in between. Each
/// end opens exactly the valid datagrams of the other, each once.
pub(crate) fn sealed(mut data: &[u8]) {
    let key = || GroupKey::from_bytes([7; 32]);
    let mut source = Seal::source(key()).expect("there is randomness");
    let mut receiver = Seal::receiver(key()).expect("there is randomness");
    let session = source.session().expect("a source has one");
    let mut last = Vec::new();
    while let Some((&[operation, argument], rest)) = data.split_first_chunk() {
        data = rest;
        let (from, to) = match operation & 1 {
            0 => (&mut source, &mut receiver),
            _ => (&mut receiver, &mut source),
        };
        let (bytes, rest) = data.split_at(usize::from(argument).min(data.len()));
        data = rest;
        match operation >> 1 & 3 {
            0 => {
                last.clear();
                from.seal(session, bytes, &mut last);
                let mut datagram = last.clone();
                let opened = to.open(&mut datagram).expect("what is good is opened");
                assert_eq!((opened.plain, opened.session), (bytes, session));
                assert!(to.open(&mut last.clone()).is_err(), "opened twice");
            }
            1 => {
                let mut changed = Vec::new();
                from.seal(session, b"what is sealed", &mut changed);
                let whole = changed.clone();
                let Some((&at, values)) = bytes.split_first() else { continue };
                for (byte, value) in changed.iter_mut().skip(at.into()).zip(values) {
                    *byte = *value;
                }
                let opened = to.open(&mut changed.clone()).is_ok();
                assert_eq!(opened, changed == whole, "a changed datagram was opened");
            }
            _ => assert!(to.open(&mut bytes.to_vec()).is_err(), "a forged datagram was opened"),
        }
    }
}

/// Parses a key file: refused with a reason, or equal after a round trip. True if it is a key.
pub(crate) fn key_file(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    match GroupKey::from_text(text) {
        Ok(key) => {
            let again = GroupKey::from_text(&key.to_text()).map(|key| key.id());
            assert_eq!(again, Ok(key.id()));
            true
        }
        Err(reason) => {
            assert!(!reason.is_empty() && reason.lines().count() == 1, "{reason}");
            false
        }
    }
}
