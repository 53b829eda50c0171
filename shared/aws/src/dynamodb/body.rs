//! Bodies: compressed, inline when small, else in chunks.

use std::io;

use forebay_core::delivery::Digest;
use zstd::bulk::{Compressor, Decompressor};

use super::items::StoredBody;

/// Largest compressed body that stays in its delivery's row, in bytes: nearly every delivery, so that it costs no call of
/// its own. A larger body is cheaper outside, where it is not written at the price of a transaction.
pub(crate) const INLINE_BYTES_MAX: usize = 3_072;
/// The same for what an event's own row holds: with the rest of the row it stays within two write units. It is less, because
/// such a row is written again with every change of its state, and a chunk once.
pub(crate) const EVENT_INLINE_BYTES_MAX: usize = 1_300;
/// Bytes of one chunk: an item holds 400 KB with its names
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>).
pub(crate) const CHUNK_BYTES: usize = 390_000;
/// zstd's level: above it the recorded deliveries shrink by less than a percent a level.
const LEVEL: i32 = 6;

/// What a compressor knows beforehand. Deliveries repeat the same names and addresses; with an example of them a body takes
/// two fifths less, and the ledger is billed by the byte.
///
/// A dictionary is never changed or removed: rows refer to it by number. A better one gets a number of its own.
fn dictionary(number: u64) -> Option<&'static [u8]> {
    match number {
        1 => Some(include_bytes!("body/dictionary-1.json")),
        _ => None,
    }
}

/// The dictionary of new rows.
const DICTIONARY: u64 = 1;

/// A body ready to be written.
pub(crate) struct Packed {
    /// How the delivery's row refers to it.
    pub(crate) stored: StoredBody,
    /// The compressed bytes, where they are to be written in chunks.
    pub(crate) outside: Vec<u8>,
}

/// Compresses `body` and decides where it is kept: in its row up to `inline_bytes_max`, compressed.
///
/// # Errors
/// Only without memory.
pub(crate) fn pack(body: &[u8], inline_bytes_max: usize) -> io::Result<Packed> {
    let known = dictionary(DICTIONARY).unwrap_or_default();
    let compressed = Compressor::with_dictionary(LEVEL, known)?.compress(body)?;
    if compressed.len() <= inline_bytes_max {
        let stored = StoredBody::Inline {
            bytes: compressed,
            dictionary: DICTIONARY,
        };
        return Ok(Packed {
            stored,
            outside: Vec::new(),
        });
    }
    let stored = StoredBody::Chunks {
        digest: Digest::of(&compressed),
        count: compressed.len().div_ceil(CHUNK_BYTES),
        bytes: compressed.len(),
        dictionary: DICTIONARY,
    };
    Ok(Packed {
        stored,
        outside: compressed,
    })
}

/// The exact bytes behind `compressed`, if they are `size` bytes with this digest.
pub(crate) fn unpack(compressed: &[u8], number: u64, size: u64, digest: &Digest) -> Option<Vec<u8>> {
    let mut decompressor = Decompressor::with_dictionary(dictionary(number)?).ok()?;
    let body = decompressor.decompress(compressed, usize::try_from(size).ok()?).ok()?;
    (Digest::of(&body) == *digest).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_that_rows_refer_to_has_not_changed() {
        let digest = "3df30dfbe5f81e93ff8c454cdfad622617d639942bc182e4a50034eac2c71555";
        assert_eq!(Digest::of(dictionary(1).unwrap()).to_string(), digest);
    }

    #[test]
    fn a_body_comes_back_exactly_or_not_at_all() {
        let incompressible: Vec<u8> = (0..1_000_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for body in [b"".as_slice(), b"{}", b"\xff\x00", &incompressible] {
            let Packed { stored, outside } = pack(body, INLINE_BYTES_MAX).unwrap();
            let (compressed, dictionary) = match stored {
                StoredBody::Inline { bytes, dictionary } => (bytes, dictionary),
                StoredBody::Chunks { dictionary, .. } => (outside, dictionary),
                StoredBody::Redacted { .. } => panic!("a new body is there"),
            };
            let size = body.len() as u64;
            let digest = Digest::of(body);
            assert_eq!(unpack(&compressed, dictionary, size, &digest).as_deref(), Some(body));
            assert_eq!(unpack(&compressed, dictionary, size, &Digest::of(b"other")), None);
            assert_eq!(unpack(&compressed, dictionary + 1, size, &digest), None);
        }
    }
}
