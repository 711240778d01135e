//! Decodes tokens as they come, giving out only whole characters.

use tapml_graph::Result;

/// Marks at the end of a text that are held back, because more tokens may turn them into characters. Some decoders show
/// every byte of a run of bytes as a mark while its last character is incomplete, so that this is more than the 3 bytes
/// of one character. Of a longer run the beginning is given out.
const MOST_OPEN: usize = 64;

/// Turns ids into text.
pub(crate) trait Decode {
    /// The text of ids, without special tokens.
    fn decode(&self, ids: &[u32]) -> Result<String>;
}

/// Turns ids into text piece by piece. The pieces joined are the text of all ids.
///
/// A token may hold a part of a character, and some decoders treat the first token of a text in their own way, so each
/// piece is decoded together with the piece before it.
#[derive(Clone)]
pub struct TextStream<'a> {
    decoder: &'a (dyn Decode + Sync),
    /// The ids of the piece before, then those that are not given out yet.
    ids: Vec<u32>,
    /// How many ids the piece before has.
    before: usize,
    /// Bytes of the pending text that are given out already.
    given: usize,
}

impl<'a> TextStream<'a> {
    pub(crate) fn new(decoder: &'a (dyn Decode + Sync)) -> TextStream<'a> {
        TextStream { decoder, ids: Vec::new(), before: 0, given: 0 }
    }

    /// Adds a token; gives the text that is complete now, which may be empty.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.pending()?;
        let settled = settled_bytes(&text);
        let piece = text.get(self.given..settled).unwrap_or_default().to_string();
        self.given = self.given.max(settled);
        if settled == text.len() && !text.is_empty() {
            self.ids.drain(..self.before);
            (self.before, self.given) = (self.ids.len(), 0);
        }
        Ok(piece)
    }

    /// Gives what is left; an incomplete character becomes U+FFFD.
    pub fn finish(self) -> Result<String> {
        Ok(self.pending()?.get(self.given..).unwrap_or_default().to_string())
    }

    /// The text of the pending ids behind the piece before them.
    fn pending(&self) -> Result<String> {
        let known = self.decoder.decode(&self.ids[..self.before])?;
        let all = self.decoder.decode(&self.ids)?;
        let same = known.chars().zip(all.chars()).take_while(|(a, b)| a == b);
        let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
        Ok(all[same..].to_string())
    }
}

/// Bytes of the text before the marks at its end that more tokens may turn into characters.
fn settled_bytes(text: &str) -> usize {
    const MARK: char = char::REPLACEMENT_CHARACTER;
    let marks = text.chars().rev().take_while(|&c| c == MARK).count();
    text.len() - marks.min(MOST_OPEN) * MARK.len_utf8()
}
