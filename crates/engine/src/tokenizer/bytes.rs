//! What each token adds to a text, in bytes: a token may hold a part of a character.

use super::byte_steps::ByteSteps;
use super::{BoundedTokenizer, Tokenizer, TokenizerKind};
use std::collections::HashMap;
use tapml_constraint::{TokenBytes, Vocabulary};

impl Tokenizer {
    /// What each of the first `count` tokens adds to a text behind another token.
    pub fn token_bytes(&self, count: usize) -> Vec<TokenBytes> {
        let ids = 0..u32::try_from(count).unwrap_or(u32::MAX);
        match &self.inner {
            TokenizerKind::World(world) => ids
                .map(|id| match world.bytes(id) {
                    Some(bytes) => TokenBytes::Text(bytes.to_vec()),
                    None => world.token(id).map_or(TokenBytes::Unknown, TokenBytes::Special),
                })
                .collect(),
            TokenizerKind::Json(inner) => {
                let pieces = Pieces::new(self, inner);
                ids.map(|id| pieces.token_bytes(id)).collect()
            }
        }
    }

    /// What forms are enforced on: the first `count` tokens, and those that end a text.
    pub fn vocabulary(&self, count: usize, ends: &[u32]) -> Vocabulary {
        Vocabulary { tokens: self.token_bytes(count), ends: ends.to_vec() }
    }
}

/// Written forms of tokens, and how they become bytes.
struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    inner: &'a BoundedTokenizer,
    steps: ByteSteps,
    alphabet: HashMap<char, u8>,
    /// Tokens that stand beside the model's, and whether they are special.
    added: HashMap<u32, bool>,
    /// A token before the one that is looked at: at the beginning of a text decoders may drop a space.
    before: Option<(u32, String)>,
}

impl<'a> Pieces<'a> {
    fn new(tokenizer: &'a Tokenizer, inner: &'a BoundedTokenizer) -> Pieces<'a> {
        let before = ["a", "e", "0", "."].iter().find_map(|text| inner.token_to_id(text));
        let before = before.and_then(|id| Some((id, tokenizer.decode(&[id]).ok()?)));
        let steps = inner.get_decoder().map_or(ByteSteps::default(), |decoder| decoder.byte_steps());
        let added = inner.get_added_tokens_decoder().into_iter().map(|(id, token)| (id, token.special));
        Pieces { tokenizer, inner, steps, alphabet: byte_alphabet(), added: added.collect(), before }
    }

    fn token_bytes(&self, id: u32) -> TokenBytes {
        let Some(written) = self.inner.id_to_token(id) else { return TokenBytes::Unknown };
        let added = self.added.get(&id);
        if added == Some(&true) {
            return TokenBytes::Special(written);
        }
        if added.is_none()
            && self.steps.fallback
            && let Some(byte) = fallback_byte(&written)
        {
            return TokenBytes::Text(vec![byte]);
        }
        if added.is_none() && self.steps.level {
            let bytes: Option<Vec<u8>> = written.chars().map(|c| self.alphabet.get(&c).copied()).collect();
            return bytes.map_or(TokenBytes::Unknown, TokenBytes::Text);
        }
        match self.added_text(id) {
            Some(text) if !text.contains(char::REPLACEMENT_CHARACTER) => TokenBytes::Text(text.into_bytes()),
            _ => TokenBytes::Unknown,
        }
    }

    /// The text that a token adds behind another one.
    fn added_text(&self, id: u32) -> Option<String> {
        let (before, known) = self.before.as_ref()?;
        let both = self.tokenizer.decode(&[*before, id]).ok()?;
        both.strip_prefix(known.as_str()).map(str::to_string)
    }
}

/// The byte that `<0x41>` stands for.
fn fallback_byte(written: &str) -> Option<u8> {
    let digits = written.strip_prefix("<0x")?.strip_suffix('>')?;
    let legal = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    legal.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The characters that byte-level vocabularies write bytes with: visible characters stand for themselves, the other bytes
/// for those from U+0100 on in their order. `bytes_to_unicode` of GPT-2's `encoder.py`.
fn byte_alphabet() -> HashMap<char, u8> {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let hidden = (0..=u8::MAX).filter(|&byte| !visible(byte)).zip('\u{100}'..);
    let own = (0..=u8::MAX).filter(|&byte| visible(byte)).map(|byte| (char::from(byte), byte));
    own.chain(hidden.map(|(byte, c)| (c, byte))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_a_character_for_every_byte() {
        let alphabet = byte_alphabet();
        assert_eq!(alphabet.len(), 256);
        let found = ['Ġ', 'Ċ', 'a', 'é', 'Ń'].map(|c| alphabet[&c]);
        assert_eq!(found, [b' ', b'\n', b'a', 0xe9, 0xad]);
        assert_eq!(
            ["<0x41>", "<0x4>", "<0xG1>", "0x41", "<0x+1>"].map(fallback_byte),
            [Some(b'A'), None, None, None, None]
        );
    }
}
