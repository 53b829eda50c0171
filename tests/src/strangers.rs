//! Bodies as strangers would send them.

use std::collections::BTreeMap;

/// `body` with every name and number replaced by another of its kind, the same one wherever it occurs.
///
/// The ledger compresses with one of our own recordings at hand, so that counting them as they are would flatter it.
#[must_use]
pub fn unfamiliar(body: &[u8]) -> Vec<u8> {
    let mut known: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut seed = 0x5eed_u64;
    let mut out = Vec::with_capacity(body.len());
    for word in body.chunk_by(|one, other| is_word(*one) == is_word(*other)) {
        let named = word.len() >= 4 && word.iter().any(u8::is_ascii_digit);
        let ours = [b"acme".as_slice(), b"octo", b"overflow", b"basket"]
            .iter()
            .any(|name| contains(word, name));
        if is_word(word[0]) && (named || ours) && !is_clock(word) {
            let other = known.entry(word.to_vec()).or_insert_with(|| replaced(word, &mut seed));
            out.extend_from_slice(other);
        } else {
            out.extend_from_slice(word);
        }
    }
    out
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Parts of a time, such as `2026` and `29T11`: other ones would make it no time.
fn is_clock(word: &[u8]) -> bool {
    word.starts_with(b"20") && word.len() == 4 || word.len() <= 5 && word.contains(&b'T')
}

fn contains(word: &[u8], part: &[u8]) -> bool {
    word.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

/// A word of the same shape. The first digit stays, so that a number stays one.
fn replaced(word: &[u8], seed: &mut u64) -> Vec<u8> {
    let mut other = Vec::with_capacity(word.len());
    for (position, byte) in word.iter().enumerate() {
        // The generator of Knuth's MMIX, as in The Art of Computer Programming, volume 2, 3.3.4.
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let drawn = u8::try_from(*seed >> 40 & 0x1f).unwrap_or_default();
        other.push(match byte {
            b'0'..=b'9' if position == 0 => *byte,
            b'0'..=b'9' => b'0' + drawn % 10,
            b'a'..=b'f' => b'a' + drawn % 6,
            b'g'..=b'z' => b'g' + drawn % 20,
            b'A'..=b'Z' => b'A' + drawn % 26,
            other => *other,
        });
    }
    other
}
