//! Decodes tokens as they come, giving out only whole characters.

use tapml_graph::Result;

/// Marks at the end of a text that are held back, because more tokens may turn them into characters. Some decoders show
/// every byte of a run of bytes as a mark while its last character is incomplete, so that this is more than the 3 bytes
/// of one character. Of a longer run the beginning is given out.
const MOST_OPEN: usize = 64;

/// Tokens without text that are kept, because a decoder may make a text of them with the next one. Of a longer run, such as of special
/// tokens, the first are forgotten: all of it would be decoded again with every token.
const MOST_SILENT: usize = 16;

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
        } else if text.is_empty() && self.ids.len() - self.before > MOST_SILENT {
            self.ids.remove(self.before);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids below 256 are bytes, others have no text. Counts the ids that it is given.
    struct Bytes(std::sync::atomic::AtomicUsize);

    impl Decode for Bytes {
        fn decode(&self, ids: &[u32]) -> Result<String> {
            self.0.fetch_add(ids.len(), std::sync::atomic::Ordering::Relaxed);
            let bytes: Vec<u8> = ids.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }

    #[test]
    fn tokens_without_text_are_not_decoded_again_and_again() {
        let bytes = Bytes(0.into());
        let mut stream = TextStream::new(&bytes);
        let ids = "né".bytes().map(u32::from).chain([1000; 5000]).chain("é!".bytes().map(u32::from));
        let pieces: String = ids.map(|id| stream.push(id).unwrap()).collect();
        assert_eq!(pieces + &stream.finish().unwrap(), "néé!");
        let decoded = bytes.0.into_inner();
        assert!(decoded < 5000 * 2 * (MOST_SILENT + 4), "{decoded} ids were decoded for 5006");
    }
}
