//! Parity: Reed-Solomon over the symbols of a block, always with 64 parity symbols. The code works
//! in GF(2^16) with a fast Fourier transform (Leopard), exactly on every processor.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::layout::{BLOCK_SYMBOLS, BlockId, PARITY_SYMBOLS};

/// Most blocks whose parity is kept: requests for a block recur within one or two round trips.
const BLOCKS_KEPT: usize = 32;

const BYTES_KEPT: usize = 16 << 20;

#[derive(Default)]
pub(super) struct ParitySource {
    encoder: Option<ReedSolomonEncoder>,
    /// Parity of the latest blocks, newest last. An empty vector stands for zeros.
    kept: VecDeque<(BlockId, Vec<u8>)>,
    spare: Vec<u8>,
}

impl ParitySource {
    /// Appends parity symbol `parity` (0 to 63) to `out`, or returns the zero bytes in its place.
    /// `read` appends the padded source symbols, or returns false for zeros.
    pub(super) fn write<E>(
        &mut self,
        block_id: BlockId,
        parity: u32,
        (symbols, symbol_bytes): (u32, u32),
        out: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<u32, E> {
        let known = self.kept.iter().position(|(kept, _)| *kept == block_id);
        let place = match known {
            Some(place) => place,
            None => {
                let block = self.compute(symbols, symbol_bytes, read)?;
                let most = (BYTES_KEPT / (symbol_bytes * PARITY_SYMBOLS) as usize).max(1);
                while self.kept.len() >= BLOCKS_KEPT.min(most) {
                    let (_, oldest) = self.kept.pop_front().expect("it is not empty");
                    self.spare = oldest;
                }
                self.kept.push_back((block_id, block));
                self.kept.len() - 1
            }
        };
        let block = &self.kept[place].1;
        if block.is_empty() {
            return Ok(symbol_bytes);
        }
        let at = (parity * symbol_bytes) as usize;
        out.extend_from_slice(&block[at..at + symbol_bytes as usize]);
        Ok(0)
    }

    fn compute<E>(
        &mut self,
        symbols: u32,
        symbol_bytes: u32,
        read: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<Vec<u8>, E> {
        let mut block = core::mem::take(&mut self.spare);
        block.clear();
        if !read(&mut block)? {
            return Ok(Vec::new());
        }
        let (k, m, bytes) = (symbols as usize, PARITY_SYMBOLS as usize, symbol_bytes as usize);
        let new = || ReedSolomonEncoder::new(k, m, bytes).expect(SOUND);
        let encoder = self.encoder.get_or_insert_with(new);
        encoder.reset(k, m, bytes).expect(SOUND);
        for symbol in block.chunks_exact(bytes) {
            encoder.add_original_shard(symbol).expect(SOUND);
        }
        let parity = encoder.encode().expect(SOUND);
        block.clear();
        parity.recovery_iter().for_each(|symbol| block.extend_from_slice(symbol));
        Ok(block)
    }
}

#[derive(Default)]
pub(super) struct Restorer {
    decoder: Option<ReedSolomonDecoder>,
}

impl Restorer {
    /// Passes the source symbols that are not in `present` to `take`, in ascending order. Each
    /// needs a parity symbol; a parity symbol without bytes is zeros.
    pub(super) fn restore(
        &mut self,
        (symbols, symbol_bytes): (u32, u32),
        present: u64,
        source: &[u8],
        parity: &[(u8, Vec<u8>)],
        mut take: impl FnMut(u32, &[u8]),
    ) {
        let (k, m, bytes) = (symbols as usize, PARITY_SYMBOLS as usize, symbol_bytes as usize);
        let new = || ReedSolomonDecoder::new(k, m, bytes).expect(SOUND);
        let decoder = self.decoder.get_or_insert_with(new);
        decoder.reset(k, m, bytes).expect(SOUND);
        for (i, symbol) in source.chunks_exact(bytes).enumerate() {
            if present >> i & 1 == 1 {
                decoder.add_original_shard(i, symbol).expect(SOUND);
            }
        }
        let some_zeros = parity.iter().any(|(_, symbol)| symbol.is_empty());
        let zeros = alloc::vec![0; if some_zeros { bytes } else { 0 }];
        for (number, symbol) in parity {
            let symbol = if symbol.is_empty() { &zeros } else { symbol };
            decoder.add_recovery_shard(usize::from(*number), symbol).expect(SOUND);
        }
        let restored = decoder.decode().expect(SOUND);
        for i in (0..symbols).filter(|i| present >> i & 1 == 0) {
            let symbol = restored.restored_original(i as usize);
            take(i, symbol.expect("what was not given is restored"));
        }
    }
}

const SOUND: &str = "a block has 1 to 64 symbols of one even length, each given once";

// One byte numbers source and parity symbols.
const _: () = assert!(BLOCK_SYMBOLS + PARITY_SYMBOLS <= 256);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::convert::Infallible;
    use faircast_base::{NodeId, Purpose, Rng};
    use proptest::prelude::*;

    fn block(k: u32, bytes: u32, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed, NodeId(0), Purpose::Fault);
        (0..k * bytes).map(|_| rng.below(256) as u8).collect()
    }

    fn parity(source: &mut ParitySource, k: u32, bytes: u32, block: &[u8], number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let read = |out: &mut Vec<u8>| {
            out.extend_from_slice(block);
            Ok::<_, Infallible>(true)
        };
        assert_eq!(source.write(u64::from(k), number, (k, bytes), &mut out, read), Ok(0));
        out
    }

    proptest! {
        #[test]
        fn any_k_symbols_give_the_block(k in 1..=64u32, seed in any::<u64>(), half in 1..40u32) {
            let bytes = 2 * half;
            let block = block(k, bytes, seed);
            let mut rng = Rng::new(seed, NodeId(1), Purpose::Fault);
            let mut source = ParitySource::default();
            let mut numbers: Vec<u32> = (0..k + PARITY_SYMBOLS).collect();
            for i in 0..k as usize {
                let other = i + rng.below((numbers.len() - i) as u64) as usize;
                numbers.swap(i, other);
            }
            let (mut present, mut got, mut held) = (0, vec![0xee; block.len()], Vec::new());
            for &number in &numbers[..k as usize] {
                if number < k {
                    present |= 1 << number;
                    let at = (number * bytes) as usize;
                    let place = at..at + bytes as usize;
                    got[place.clone()].copy_from_slice(&block[place]);
                } else {
                    let number = number - k;
                    held.push((number as u8, parity(&mut source, k, bytes, &block, number)));
                }
            }
            let mut whole = got.clone();
            Restorer::default().restore((k, bytes), present, &got, &held, |i, symbol| {
                let at = (i * bytes) as usize;
                whole[at..at + bytes as usize].copy_from_slice(symbol);
            });
            prop_assert_eq!(whole, block);
        }
    }

    /// Vectors for other implementations, which must compute the same bytes on every processor.
    #[test]
    fn parity_is_what_it_has_always_been() {
        let source = &mut ParitySource::default();
        let first = parity(source, 64, 2, &(0..128).collect::<Vec<u8>>(), 0);
        let last = parity(source, 64, 2, &[], 63);
        let short = parity(source, 3, 4, &(1..13).collect::<Vec<u8>>(), 1);
        let plain = parity(source, 1, 2, &[7, 9], 5);
        assert_eq!((first, last), (vec![66, 24], vec![60, 102]));
        assert_eq!((short, plain), (vec![9, 76, 9, 14], vec![7, 9]));
    }

    #[test]
    fn parity_of_zeros_costs_nothing() {
        let mut source = ParitySource::default();
        let mut out = Vec::new();
        let zeros = source.write(1, 3, (64, 100), &mut out, |_| Ok::<_, Infallible>(false));
        assert_eq!((zeros, out.len()), (Ok(100), 0));
        let all = vec![0u8; 6400];
        assert_eq!(parity(&mut ParitySource::default(), 64, 100, &all, 3), vec![0; 100]);
    }

    #[test]
    fn only_the_latest_blocks_are_kept() {
        let mut source = ParitySource::default();
        for block_id in 0..1000 {
            let _ = source.write(block_id, 0, (1, 2), &mut Vec::new(), |out| {
                out.extend_from_slice(&[1, 2]);
                Ok::<_, Infallible>(true)
            });
        }
        assert_eq!(source.kept.len(), BLOCKS_KEPT);
        assert_eq!(source.kept.back().unwrap().0, 999);
    }
}
