//! Bodies: compressed, inline when small, else in chunks.

use forebay_core::delivery::Digest;

use super::items::StoredBody;

/// Largest compressed body that stays in its delivery's row, in bytes. A row of the mean recorded delivery then takes two
/// write units; a larger body is cheaper outside, where it is not written at the price of a transaction.
pub(crate) const INLINE_BYTES_MAX: usize = 3_072;
/// Bytes of one chunk: an item holds 400 KB with its names
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>).
pub(crate) const CHUNK_BYTES: usize = 390_000;
/// zstd's level: above it the recorded deliveries shrink by less than a percent a level.
const LEVEL: i32 = 6;

/// A body ready to be written.
pub(crate) struct Packed {
    /// How the delivery's row refers to it.
    pub(crate) stored: StoredBody,
    /// The compressed bytes, where they are to be written in chunks.
    pub(crate) outside: Vec<u8>,
}

/// Compresses `body` and decides where it is kept. `None` where the compressor gives up, which it does only without memory.
pub(crate) fn pack(body: &[u8]) -> Option<Packed> {
    let compressed = zstd::bulk::compress(body, LEVEL).ok()?;
    if compressed.len() <= INLINE_BYTES_MAX {
        return Some(Packed {
            stored: StoredBody::Inline(compressed),
            outside: Vec::new(),
        });
    }
    let stored = StoredBody::Chunks {
        digest: Digest::of(&compressed),
        count: compressed.len().div_ceil(CHUNK_BYTES),
        bytes: compressed.len(),
    };
    Some(Packed {
        stored,
        outside: compressed,
    })
}

/// The exact bytes behind `compressed`, if they are `size` bytes with this digest.
pub(crate) fn unpack(compressed: &[u8], size: u64, digest: &Digest) -> Option<Vec<u8>> {
    let body = zstd::bulk::decompress(compressed, usize::try_from(size).ok()?).ok()?;
    (Digest::of(&body) == *digest).then_some(body)
}
