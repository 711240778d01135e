//! The vocabulary of RWKV's World models: a list of byte strings, of which the longest that fits is taken each time.
//! Format and method: `rwkv_tokenizer.py` of the authors' package `rwkv` on PyPI.

use super::world_line;
use crate::special::SpecialTokens;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tapml_graph::{Context, Error, Result};

/// The largest vocabulary that is read, in bytes; the published one has about a million.
const MAX_FILE: u64 = 16 << 20;

/// A vocabulary. Its tokens are sorted, so that those with a common beginning stand together and the tree of all
/// beginnings is walked by narrowing a range.
#[derive(Debug)]
pub struct World {
    tokens: Vec<(Box<[u8]>, u32)>,
    /// For each first byte, the range of the tokens that begin with it.
    first: Vec<(usize, usize)>,
    /// Place of each id among the tokens.
    by_id: HashMap<u32, usize>,
    /// Texts that are no tokens of the list and stand for the end of a text.
    ends: Vec<String>,
}

impl World {
    /// The id that ends a text.
    pub const END: u32 = world_line::END;

    /// The vocabulary file of a model folder, if there is one: `rwkv_vocab_v20230424.txt`, or another that is named in
    /// this way; of several the last in order of names, which end in a date.
    pub fn find(dir: &Path) -> Result<Option<PathBuf>> {
        let names = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            names => names.map_err(|e| Error::io("list", dir, &e))?.flatten(),
        };
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let named = |name: &String| name.contains("_vocab_") && name.ends_with(".txt");
        let last = names.filter(named).max_by_key(|name| (name.starts_with("rwkv_"), name.clone()));
        Ok(last.map(|name| dir.join(name)))
    }

    /// Reads a vocabulary; `special` names the texts that are special tokens, which end a text unless the list has them
    /// as tokens. Fails on a line that is none, and unless every byte is a token, so that every text has ids.
    pub fn open(path: &Path, special: &SpecialTokens) -> Result<World> {
        let text = tapml_files::read_text(path, MAX_FILE, "a vocabulary")?;
        let world = World::parse(&text).context(|| path.display().to_string());
        let world = world.map_err(|e| e.with_hint("take the file that came with the weights"))?;
        Ok(world.with_ends(special))
    }

    /// Every line is a token; ids and texts are unique.
    fn parse(text: &str) -> Result<World> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let tokens = lines.map(|(index, line)| world_line::parse(index + 1, line));
        let mut tokens = tokens.collect::<Result<Vec<_>>>()?;
        tokens.sort();
        let mut by_id = HashMap::with_capacity(tokens.len());
        for (place, (bytes, id)) in tokens.iter().enumerate() {
            let twin = place.checked_sub(1).is_some_and(|before| tokens[before].0 == *bytes);
            if twin || by_id.insert(*id, place).is_some() {
                let text = world_line::brief(&String::from_utf8_lossy(bytes));
                return Err(Error::invalid(format!("id {id}, or its token {text}, stands there twice")));
            }
        }
        let place = |byte: usize| tokens.partition_point(|(token, _)| usize::from(token[0]) < byte);
        let first: Vec<(usize, usize)> = (0..256).map(|byte| (place(byte), place(byte + 1))).collect();
        // A token of one byte stands before all others that begin with it.
        let single = |&(start, end): &(usize, usize)| start < end && tokens[start].0.len() == 1;
        if let Some(byte) = first.iter().position(|range| !single(range)) {
            let text = format!("no token is the single byte {byte}, so that some texts have no ids");
            return Err(Error::invalid(text));
        }
        Ok(World { tokens, first, by_id, ends: Vec::new() })
    }

    /// Texts that stand for the end of a text.
    fn with_ends(mut self, special: &SpecialTokens) -> World {
        let texts = [&special.eos, &special.bos, &special.pad, &special.unk];
        let texts = texts.into_iter().flatten().filter(|text| !text.is_empty());
        self.ends = texts.filter(|text| self.find_token(text.as_bytes()).is_none()).cloned().collect();
        self
    }

    /// The ids of a text: of all tokens that it begins with the longest, and so on behind that. Special tokens that are
    /// written out are cut out first.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let (mut ids, mut rest) = (Vec::new(), text);
        let next = |rest: &str| self.ends.iter().filter_map(|end| Some((rest.find(end)?, end.len()))).min();
        while let Some((at, length)) = next(rest) {
            ids.extend(self.cut(&rest.as_bytes()[..at]));
            ids.push(World::END);
            rest = &rest[at + length..];
        }
        ids.extend(self.cut(rest.as_bytes()));
        ids
    }

    /// Ids of bytes, the longest token each time.
    fn cut<'a>(&'a self, mut rest: &'a [u8]) -> impl Iterator<Item = u32> + 'a {
        std::iter::from_fn(move || {
            let (length, id) = self.longest(rest)?;
            rest = &rest[length..];
            Some(id)
        })
    }

    /// Length and id of the longest token that `text` begins with; `None` if it is empty.
    fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let (mut start, mut end) = self.first[usize::from(*text.first()?)];
        let mut best = (1, self.tokens[start].1);
        for (depth, &byte) in text.iter().enumerate().skip(1) {
            // All tokens of the range agree with the text so far; the one that ends here stands first.
            if self.tokens[start].0.len() == depth {
                start += 1;
            }
            let range = &self.tokens[start..end];
            let below = range.partition_point(|(token, _)| token[depth] < byte);
            let matching = range[below..].partition_point(|(token, _)| token[depth] == byte);
            (start, end) = (start + below, start + below + matching);
            if start == end {
                break;
            }
            if self.tokens[start].0.len() == depth + 1 {
                best = (depth + 1, self.tokens[start].1);
            }
        }
        Some(best)
    }

    /// See [`crate::Tokenizer::to_json`].
    pub fn to_json(&self) -> serde_json::Value {
        let text = |bytes: &[u8]| bytes.iter().map(|&byte| char::from(byte)).collect::<String>();
        let tokens: Vec<(u32, String)> = self.tokens.iter().map(|(bytes, id)| (*id, text(bytes))).collect();
        let model =
            serde_json::json!({"type": "World", "end": World::END, "tokens": tokens, "ends": self.ends});
        serde_json::json!({"version": "1.0", "model": model})
    }

    /// The text of ids, one after another; ids without a token have none. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().filter_map(|&id| self.bytes(id)).flatten().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The id of the token of exactly this text.
    pub fn id(&self, token: &str) -> Option<u32> {
        if self.ends.iter().any(|end| end == token) {
            Some(World::END)
        } else {
            self.find_token(token.as_bytes())
        }
    }

    /// The text of a token.
    pub fn token(&self, id: u32) -> Option<String> {
        match id {
            World::END => self.ends.first().cloned(),
            _ => self.bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        }
    }

    /// Number of tokens, the end of a text included.
    pub fn len(&self) -> usize {
        self.tokens.len() + 1
    }

    /// The bytes of a token; none for the end of a text.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.by_id.get(&id).map(|&place| &*self.tokens[place].0)
    }

    /// The id of exactly these bytes.
    fn find_token(&self, token: &[u8]) -> Option<u32> {
        let place = self.tokens.binary_search_by(|(own, _)| (**own).cmp(token));
        place.ok().map(|place| self.tokens[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every byte, and these lines.
    fn world(more: &str) -> Result<World> {
        let single = (0..256u32).map(|byte| format!("{} b'\\x{byte:02x}' 1\n", byte + 1));
        World::parse(&(single.collect::<String>() + more))
    }

    fn cut(world: &World, text: &[u8]) -> Vec<u32> {
        world.cut(text).collect()
    }

    #[test]
    fn the_longest_token_wins_even_behind_a_gap() {
        let world = world("300 'ab' 2\n301 'abcde' 5\n302 b'\\xe4\\xbd' 2\n303 '你' 3\n").unwrap();
        assert_eq!(world.encode("abcdeab"), [301, 300]);
        assert_eq!(world.encode("abcdx"), [300, 100, 101, 121]);
        assert_eq!(world.encode("你"), [303]);
        assert_eq!(cut(&world, b"\xe4\xbd\xa1"), [302, 0xa2]);
        assert_eq!(world.encode(""), [0u32; 0]);
        assert_eq!(world.decode(&[301, World::END, 9999, 303]), "abcde你");
        assert_eq!(
            (world.id("ab"), world.id("abc"), world.bytes(302)),
            (Some(300), None, Some(&b"\xe4\xbd"[..]))
        );
        assert_eq!(world.len(), 261);
    }

    #[test]
    fn special_tokens_end_a_text_unless_they_are_tokens() {
        let named = |text: &str| Some(text.to_string());
        let special =
            SpecialTokens { bos: named("<s>"), eos: named("\n\n"), pad: named(""), ..Default::default() };
        let world = world("300 '\\n\\n' 2\n").unwrap().with_ends(&special);
        assert_eq!((world.id("<s>"), world.id("\n\n"), world.id("")), (Some(World::END), Some(300), None));
        assert_eq!(world.encode("<s>a\n\n<s<s>"), [World::END, 98, 300, 61, 116, World::END]);
        assert_eq!(world.token(World::END).as_deref(), Some("<s>"));
    }

    #[test]
    fn tokens_and_ids_stand_there_once() {
        for twice in ["300 'ab' 2\n300 'cd' 2\n", "300 'ab' 2\n301 'ab' 2\n", "1 'ab' 2\n", "300 'a' 1\n"] {
            let error = world(twice).unwrap_err().to_string();
            assert!(error.contains("stands there twice"), "{error}");
        }
        let long = "a".repeat(4000);
        let error = world(&format!("300 '{long}' 4000\n301 '{long}' 4000\n")).unwrap_err().to_string();
        assert!(error.len() < 300, "{error}");
    }

    #[test]
    fn every_byte_must_be_a_token() {
        assert!(World::parse("").unwrap_err().to_string().contains("single byte 0"));
        assert!(World::parse("300 'ab' 2\n").unwrap_err().to_string().contains("single byte 0"));
        let all_but_last: String =
            (0..255u32).map(|byte| format!("{} b'\\x{byte:02x}' 1\n", byte + 1)).collect();
        let error = World::parse(&(all_but_last + "300 b'\\xff\\xff' 2\n")).unwrap_err().to_string();
        assert!(error.contains("single byte 255"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The walk through the sorted list finds what trying every token finds.
        #[test]
        fn the_longest_of_all_tokens_is_taken(
            words in prop::collection::btree_set("[ab]{2,5}", 0..12),
            text in "[abc]{0,24}",
        ) {
            let lines = words.iter().enumerate().map(|(i, word)| format!("{} '{word}' {}\n", 300 + i, word.len()));
            let world = world(&lines.collect::<String>()).unwrap();
            let (mut expected, mut rest) = (Vec::new(), text.as_str());
            while !rest.is_empty() {
                let fits = words.iter().enumerate().filter(|(_, word)| rest.starts_with(word.as_str()));
                let longest = fits.max_by_key(|(_, word)| word.len());
                let (id, length) = longest.map_or((u32::from(rest.as_bytes()[0]) + 1, 1), |(i, w)| (300 + i as u32, w.len()));
                expected.push(id);
                rest = &rest[length..];
            }
            prop_assert_eq!(world.encode(&text), expected);
        }

        #[test]
        fn any_lines_are_read_or_refused(lines in "([0-9]{1,3} b?['\"][ab'\"é\\\\xuU0-9]{0,6}['\"] [0-9]\r?\n){0,4}") {
            let _ = world(&lines);
            let _ = World::parse(&lines);
        }
    }
}
