//! Small rules about text that several boundaries share.

use sha2::{Digest as _, Sha256};

/// Longest identifier that goes into a key as it is, in bytes. A DynamoDB partition key holds 2,048 bytes
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html>); this leaves room for prefixes.
const KEY_PART_BYTES_MAX: usize = 900;

/// Cuts `text` to at most `bytes_max` bytes without splitting a character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

/// `text` as part of a key: itself, or `sha256:` and its digest where it is too long for one.
pub(crate) fn key_part(text: &str) -> String {
    if text.len() <= KEY_PART_BYTES_MAX {
        return text.to_owned();
    }
    format!("sha256:{}", hex::encode(Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut("aé🚀", 2), "a");
        assert_eq!(cut("aé🚀", 3), "aé");
        assert_eq!(cut("aé🚀", 6), "aé");
        assert_eq!(cut("aé🚀", 7), "aé🚀");
        assert_eq!(cut("aé🚀", 700), "aé🚀");
    }

    #[test]
    fn an_over_long_identifier_falls_back_to_its_digest() {
        let long = "x".repeat(KEY_PART_BYTES_MAX + 1);
        assert!(key_part(&long).starts_with("sha256:"), "S2-06");
        assert_eq!(key_part(&long).len(), 7 + 64);
        assert_ne!(key_part(&long), key_part(&format!("{long}y")));
        assert_eq!(key_part("short"), "short");
    }
}
