//! How byte-level tokenizers cut a text before they merge: the names that GGUF files give (`tokenizer.ggml.pre`), and the
//! patterns of the `tokenizer.json` files that they stand for.

use tokenizers::SplitDelimiterBehavior::{self, Contiguous, Isolated};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};

/// A way of cutting a text.
#[derive(Debug)]
pub struct PreTokenizer {
    /// Its names in GGUF files.
    pub names: &'static [&'static str],
    /// Whether characters are composed first (NFC).
    composed: bool,
    /// One cut after another.
    cuts: &'static [CutRule],
    /// Whether a piece that is a token stays whole, whatever merges would make of it.
    pub whole_words: bool,
    /// Whether texts begin with the token that begins texts where the file does not say.
    pub begins: bool,
}

/// One way of cutting.
#[derive(Debug)]
enum CutRule {
    /// What the pattern matches becomes a piece, and so does what lies between.
    Pattern(&'static str),
    /// GPT-2's pattern, which the library has built in.
    Gpt2,
    /// Each digit becomes a piece.
    Digits,
    /// Punctuation is cut off, as runs or mark by mark.
    Punctuation(SplitDelimiterBehavior),
}

/// Words with an apostrophe and letters, up to three digits, marks, line breaks, spaces: GPT-4's pattern.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words are cut where lower case turns to upper case; single digits.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with apostrophes and up to three digits.
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-2's pattern without the last alternative, as it is used after other cuts.
const GPT2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// Chinese, Japanese and Korean characters of DeepSeek's first models.
const CJK: &str = "[一-龥\u{0800}-一가-\u{d7ff}]+";

/// A row of the table without anything special.
const fn row(names: &'static [&'static str], cuts: &'static [CutRule]) -> PreTokenizer {
    PreTokenizer { names, composed: false, cuts, whole_words: false, begins: false }
}

// Names that cut alike share a row.
/// All ways by name.
const PRE_TOKENIZERS: &[PreTokenizer] = &[
    row(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "jais",
            "exaone4",
        ],
        &[CutRule::Gpt2],
    ),
    // GPT-NeoX and what took its tokenizer over.
    PreTokenizer { composed: true, ..row(&["olmo", "mpt", "trillion"], &[CutRule::Gpt2]) },
    PreTokenizer {
        whole_words: true,
        begins: true,
        ..row(
            &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
            &[CutRule::Pattern(LLAMA3)],
        )
    },
    row(&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "superbpe"], &[CutRule::Pattern(LLAMA3)]),
    PreTokenizer {
        composed: true,
        ..row(&["qwen2", "deepseek-r1-qwen", "megrez", "kormo"], &[CutRule::Pattern(QWEN2)])
    },
    row(&["stablelm2"], &[CutRule::Pattern(QWEN2)]),
    PreTokenizer { whole_words: true, begins: true, ..row(&["tekken"], &[CutRule::Pattern(TEKKEN)]) },
    row(&["gpt-4o", "llama4", "kimi-k2"], &[CutRule::Pattern(GPT_4O)]),
    row(
        &["starcoder", "refact", "codeshell", "smollm", "exaone", "minerva-7b"],
        &[CutRule::Digits, CutRule::Gpt2],
    ),
    PreTokenizer { composed: true, ..row(&["command-r"], &[CutRule::Digits, CutRule::Gpt2]) },
    row(&["falcon"], &[CutRule::Punctuation(Contiguous), CutRule::Gpt2, CutRule::Pattern("[0-9][0-9][0-9]")]),
    row(
        &["deepseek-llm"],
        &[
            CutRule::Pattern(r"[\r\n]"),
            CutRule::Pattern(r"\s?[\p{Lu}\p{Ll}\p{Lt}]+"),
            CutRule::Pattern(r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+"),
            CutRule::Pattern(r"\s+$"),
            CutRule::Pattern(CJK),
            CutRule::Pattern(r"\p{N}+"),
        ],
    ),
    row(
        &["deepseek-coder"],
        &[
            CutRule::Pattern(r"[\r\n]"),
            CutRule::Pattern(r"\s?\p{L}+"),
            CutRule::Pattern(r"\s?\p{P}+"),
            CutRule::Pattern(CJK),
            CutRule::Pattern(r"\p{N}"),
        ],
    ),
    row(
        &["deepseek-v3", "hunyuan", "hunyuan-dense"],
        &[
            CutRule::Pattern(r"\p{N}{1,3}"),
            CutRule::Pattern("[一-龥\u{3040}-ゟ゠-ヿ]+"),
            CutRule::Pattern(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
            ),
        ],
    ),
    // What llama.cpp does for files that were made before names were.
    row(
        &["default"],
        &[
            CutRule::Pattern(r"[\p{P}\$\+<=>\^~\|]+"),
            CutRule::Pattern(GPT2_WORDS),
            CutRule::Pattern(r"\p{N}+"),
            CutRule::Pattern("[0-9][0-9][0-9]"),
        ],
    ),
];

impl PreTokenizer {
    /// The way of this name.
    pub fn find(name: &str) -> Option<&'static PreTokenizer> {
        PRE_TOKENIZERS.iter().find(|way| way.names.contains(&name))
    }

    /// All names, for messages.
    pub fn names() -> String {
        PRE_TOKENIZERS.iter().flat_map(|way| way.names).copied().collect::<Vec<_>>().join(", ")
    }

    /// What composes characters, if anything does.
    pub fn normalizer(&self) -> Option<NFC> {
        self.composed.then_some(NFC)
    }

    /// The cuts, and the bytes of each piece written as characters.
    pub fn build(&self) -> tokenizers::Result<PreTokenizerWrapper> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for cut in self.cuts {
            steps.push(match cut {
                CutRule::Pattern(pattern) => {
                    Split::new(SplitPattern::Regex((*pattern).into()), Isolated, false)?.into()
                }
                // Cuts and writes bytes in one: the cuts behind it see them written, which changes no digit.
                CutRule::Gpt2 => ByteLevel::new(false, true, true).into(),
                CutRule::Digits => Digits::new(true).into(),
                CutRule::Punctuation(behaviour) => Punctuation::new(*behaviour).into(),
            });
        }
        // Bytes are written as characters one time, whichever cuts there are.
        if !self.cuts.iter().any(|cut| matches!(cut, CutRule::Gpt2)) {
            steps.push(ByteLevel::new(false, true, false).into());
        }
        Ok(Sequence::new(steps).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_listed_once_and_every_pattern_is_valid() {
        let names: Vec<&str> = PRE_TOKENIZERS.iter().flat_map(|way| way.names).copied().collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        for way in PRE_TOKENIZERS {
            way.build().unwrap_or_else(|e| panic!("{:?}: {e}", way.names));
        }
    }
}
