//! The tokens of a model as forms are enforced on them, and their bytes in a file.

use tapml_graph::{Error, Result};

/// What a token adds to a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenBytes {
    /// These bytes.
    Text(Vec<u8>),
    /// Nothing: a special token, which is written like this.
    Special(String),
    /// It is not known what, or the tokenizer has no such token.
    Unknown,
}

/// What forms are enforced on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// What each token adds to a text, by its id.
    pub tokens: Vec<TokenBytes>,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
}

/// Most tokens of a file.
const MAX_TOKENS: usize = 1 << 24;
/// What a token is, in the low bits of the number before its bytes.
const TEXT: u32 = 0;
const SPECIAL: u32 = 1;
const UNKNOWN: u32 = 2;

impl Vocabulary {
    /// As a file: how many ends, the ends, how many tokens, and for each its length times four plus its sort, then its bytes.
    /// Numbers are in LEB128.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_number(self.ends.len() as u32, &mut bytes);
        self.ends.iter().for_each(|end| write_number(*end, &mut bytes));
        write_number(self.tokens.len() as u32, &mut bytes);
        for token in &self.tokens {
            let (sort, content) = match token {
                TokenBytes::Text(content) => (TEXT, content.as_slice()),
                TokenBytes::Special(written) => (SPECIAL, written.as_bytes()),
                TokenBytes::Unknown => (UNKNOWN, &[][..]),
            };
            write_number((content.len() as u32) << 2 | sort, &mut bytes);
            bytes.extend(content);
        }
        bytes
    }

    /// Reads the file.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Vocabulary> {
        read(&mut bytes).filter(|_| bytes.is_empty()).ok_or_else(|| {
            Error::invalid("expected the vocabulary that `tapml compile` writes, found damaged bytes")
                .with_hint("compile the model again")
        })
    }
}

fn read(bytes: &mut &[u8]) -> Option<Vocabulary> {
    let count = read_count(bytes)?;
    let ends = (0..count).map(|_| read_number(bytes)).collect::<Option<_>>()?;
    let count = read_count(bytes)?;
    let tokens = (0..count).map(|_| read_token(bytes)).collect::<Option<_>>()?;
    Some(Vocabulary { tokens, ends })
}

fn read_token(bytes: &mut &[u8]) -> Option<TokenBytes> {
    let head = read_number(bytes)?;
    let (content, rest) = bytes.split_at_checked((head >> 2) as usize)?;
    *bytes = rest;
    match head & 3 {
        TEXT => Some(TokenBytes::Text(content.to_vec())),
        SPECIAL => Some(TokenBytes::Special(String::from_utf8(content.to_vec()).ok()?)),
        UNKNOWN if content.is_empty() => Some(TokenBytes::Unknown),
        _ => None,
    }
}

/// How many there are; each takes a byte at least.
fn read_count(bytes: &mut &[u8]) -> Option<usize> {
    let count = read_number(bytes)? as usize;
    (count <= bytes.len().min(MAX_TOKENS)).then_some(count)
}

fn write_number(mut number: u32, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(number).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vocabulary {
        let text = |bytes: &[u8]| TokenBytes::Text(bytes.to_vec());
        let tokens = vec![
            TokenBytes::Special("<|end|>".into()),
            TokenBytes::Unknown,
            text(b"\xe4\xbd"),
            text(&[b'a'; 300]),
            text(b""),
        ];
        Vocabulary { tokens, ends: vec![0, 200_000] }
    }

    #[test]
    fn a_file_holds_what_was_written() {
        let bytes = example().to_bytes();
        assert_eq!(Vocabulary::from_bytes(&bytes).unwrap(), example());
        for end in 0..bytes.len() {
            let error = Vocabulary::from_bytes(&bytes[..end]).unwrap_err().to_string();
            assert!(error.contains("damaged bytes"), "{error}");
        }
        assert!(Vocabulary::from_bytes(&[bytes, vec![0]].concat()).is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40)) {
            if let Ok(found) = Vocabulary::from_bytes(&bytes) {
                assert_eq!(Vocabulary::from_bytes(&found.to_bytes()).unwrap(), found);
            }
        }
    }
}
