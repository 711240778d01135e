//! Fields that completions and chats share.

use super::grammar;
use crate::error::ApiError;
use crate::fields::{Fields, Parsed, Unsupported};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use tapml_constraint::Grammar;
use tapml_engine::Sampling;

/// Names of the fields that this file reads or refuses.
pub const NAMES: &[&str] = &[
    "model",
    "n",
    "stream",
    "stream_options",
    "stop",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "best_of",
    "guided_decoding_backend",
    "logits_processors",
    "use_beam_search",
    "mirostat",
    "dry_multiplier",
    "xtc_probability",
    "typical_p",
    "dynatemp_range",
    "lora",
    "prompt_logprobs",
    "bad_words",
    "cache_salt",
];

/// Most answers to one prompt, and most answers of one request.
pub const MAX_CHOICES: usize = 128;
/// Most stop texts.
const MAX_STOPS: usize = 32;
/// Longest stop text, bytes.
const MAX_STOP: usize = 1024;
/// Most tokens with a bias of their own.
const MAX_BIASES: usize = 4096;
/// Most of the likeliest tokens that are told for each token.
pub const MAX_LOGPROBS: usize = 20;

const SAMPLER: &str = "use temperature, top_k, top_p and min_p";

/// What cannot be served, and must not be ignored: the answer would differ from what was asked for.
const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "logits_processors", neutral: &["[]"], advice: SAMPLER },
    Unsupported { name: "use_beam_search", neutral: &["false"], advice: SAMPLER },
    Unsupported { name: "mirostat", neutral: &["0"], advice: SAMPLER },
    Unsupported { name: "dry_multiplier", neutral: &["0", "0.0"], advice: SAMPLER },
    Unsupported { name: "xtc_probability", neutral: &["0", "0.0"], advice: SAMPLER },
    Unsupported { name: "typical_p", neutral: &["1", "1.0"], advice: SAMPLER },
    Unsupported { name: "dynatemp_range", neutral: &["0", "0.0"], advice: SAMPLER },
    Unsupported { name: "lora", neutral: &["[]"], advice: "serve the merged checkpoint" },
    Unsupported {
        name: "prompt_logprobs",
        neutral: &[],
        advice: "use `echo` and `logprobs` of /v1/completions",
    },
    Unsupported { name: "bad_words", neutral: &["[]"], advice: "use `logit_bias`" },
];

/// How a stream is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether its last chunk tells the tokens.
    pub include_usage: bool,
}

/// What both kinds of requests say.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// The model's name, if it is given.
    pub model: Option<String>,
    /// Answers to each prompt.
    pub n: usize,
    /// Set if the answer is to come piece by piece.
    pub stream: Option<StreamOptions>,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// Tokens that end it, beside the model's own.
    pub stop_ids: Vec<u32>,
    /// Whether the model's own end is no end.
    pub ignore_eos: bool,
    /// See [`tapml_engine::RequestOptions::min_tokens`].
    pub min_tokens: usize,
    /// See [`tapml_engine::RequestOptions::cache_salt`].
    pub cache_salt: Option<String>,
    /// How tokens are chosen. Each of several answers has a seed of its own.
    pub sampling: Sampling,
    /// The form that the answer must have, with the field that says so.
    pub grammar: Option<(&'static str, Grammar)>,
}

impl Common {
    /// Reads the fields of [`NAMES`].
    pub fn read(fields: &Fields<'_>) -> Parsed<Common> {
        let biases: Option<Biases> = fields.optional("logit_bias")?;
        Common::read_with(fields, biases.map_or(Vec::new(), |Biases(biases)| biases))
    }

    /// Likewise as llama-server reads them: with its defaults, and with biases of texts, which are given apart.
    pub fn read_native(fields: &Fields<'_>) -> Parsed<(Common, Vec<(String, f32)>)> {
        let biases: Option<NativeBiases> = fields.optional("logit_bias")?;
        let NativeBiases { ids, texts } = biases.unwrap_or_default();
        let mut common = Common::read_with(fields, ids)?;
        let absent = |name| fields.raw(name).is_none();
        let sampling = &mut common.sampling;
        if absent("temperature") {
            sampling.temperature = 0.8;
        }
        if absent("top_k") {
            sampling.top_k = Some(40);
        }
        if absent("top_p") {
            sampling.top_p = Some(0.95);
        }
        if absent("min_p") {
            sampling.min_p = Some(0.05);
        }
        if matches!(fields.raw("seed"), Some("-1" | "4294967295")) {
            sampling.seed = random_seed()?;
        }
        Ok((common, texts))
    }

    fn read_with(fields: &Fields<'_>, biases: Vec<(u32, f32)>) -> Parsed<Common> {
        fields.refuse(UNSUPPORTED)?;
        let n = fields.integer("n", 1..=MAX_CHOICES as i64)?.unwrap_or(1);
        let n = usize::try_from(n).unwrap_or(1);
        match fields.integer("best_of", 1..=MAX_CHOICES as i64)? {
            Some(best) if usize::try_from(best) != Ok(n) => {
                let text = "`best_of` is not supported unless it equals `n`; ask for `n` answers and choose";
                return Err(ApiError::unsupported_field("best_of", text));
            }
            _ => {}
        }
        Ok(Common {
            model: fields.optional("model")?,
            n,
            stream: stream(fields)?,
            stops: stops(fields)?,
            stop_ids: fields.optional("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: fields.flag("ignore_eos")?,
            min_tokens: fields.count("min_tokens", 0)?.unwrap_or(0),
            cache_salt: fields.optional("cache_salt")?,
            sampling: Sampling { logit_bias: biases, ..sampling(fields)? },
            grammar: grammar::read(fields)?,
        })
    }
}

fn stream(fields: &Fields<'_>) -> Parsed<Option<StreamOptions>> {
    let options: Option<Map<String, Value>> = fields.optional("stream_options")?;
    let include_usage = match options.as_ref().and_then(|options| options.get("include_usage")) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(wanted)) => *wanted,
        Some(_) => {
            let text = "`stream_options.include_usage` must be true or false";
            return Err(ApiError::bad_field("stream_options.include_usage", text).with_code("invalid_type"));
        }
    };
    match (fields.flag("stream")?, options) {
        (true, _) => Ok(Some(StreamOptions { include_usage })),
        (false, None) => Ok(None),
        (false, Some(_)) => {
            let text = "`stream_options` is only allowed together with `stream`: true";
            Err(ApiError::bad_field("stream_options", text))
        }
    }
}

/// A text or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Several(Vec<String>),
}

fn stops(fields: &Fields<'_>) -> Parsed<Vec<String>> {
    let wrong = |found: &str| {
        let text =
            format!("`stop` must be a text or at most {MAX_STOPS} texts of 1 to {MAX_STOP} bytes, {found}");
        ApiError::bad_field("stop", text).with_code("invalid_value")
    };
    let stops = match fields.optional("stop").map_err(|_| wrong("found something else"))? {
        None => Vec::new(),
        Some(Stops::One(text)) => vec![text],
        Some(Stops::Several(texts)) => texts,
    };
    if stops.len() > MAX_STOPS {
        return Err(wrong(&format!("found {}", stops.len())));
    }
    if let Some(text) = stops.iter().find(|text| text.is_empty() || text.len() > MAX_STOP) {
        return Err(wrong(&format!("found one of {} bytes", text.len())));
    }
    Ok(stops)
}

fn sampling(fields: &Fields<'_>) -> Parsed<Sampling> {
    let top_p = fields.number("top_p", 0.0..=1.0)?;
    // Both 0 and −1 mean all tokens, to different servers.
    let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?.and_then(|k| usize::try_from(k).ok());
    let top_k = top_k.filter(|k| *k > 0);
    let seed: Option<i64> = fields.optional("seed")?;
    let seed = match seed {
        Some(seed) => seed.cast_unsigned(),
        None => random_seed()?,
    };
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=100.0)?.unwrap_or(1.0),
        // The fewest tokens that reach a probability of 0 are the likeliest one.
        top_k: if top_p == Some(0.0) { Some(1) } else { top_k },
        top_p: top_p.filter(|p| *p > 0.0),
        min_p: fields.number("min_p", 0.0..=1.0)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0)?.filter(|p| *p != 1.0),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.filter(|p| *p != 0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.filter(|p| *p != 0.0),
        logit_bias: Vec::new(),
        seed,
    })
}

/// For requests that name none.
fn random_seed() -> Parsed<u64> {
    getrandom::u64().map_err(|e| ApiError::internal(format!("no random numbers: {e}")))
}

/// Tokens with what is added to their logits.
struct Biases(Vec<(u32, f32)>);

struct BiasVisitor;

impl<'a> Visitor<'a> for BiasVisitor {
    type Value = Biases;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of at most {MAX_BIASES} token ids with numbers from -100 to 100")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Biases, A::Error> {
        let mut biases = Vec::new();
        while let Some((id, bias)) = map.next_entry::<String, f32>()? {
            let id = id.parse().map_err(|_| A::Error::custom(format!("`{id}` is no token id")))?;
            if biases.len() == MAX_BIASES || !(-100.0..=100.0).contains(&bias) {
                return Err(A::Error::invalid_value(Unexpected::Map, &self));
            }
            biases.push((id, bias));
        }
        Ok(Biases(biases))
    }
}

impl<'a> Deserialize<'a> for Biases {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Biases, D::Error> {
        deserializer.deserialize_map(BiasVisitor)
    }
}

/// Biases as llama-server takes them: an object, or a list of pairs, of token ids and of texts. `false` excludes.
#[derive(Default)]
struct NativeBiases {
    ids: Vec<(u32, f32)>,
    texts: Vec<(String, f32)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BiasKey {
    Id(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BiasValue {
    Number(f32),
    Flag(bool),
}

impl NativeBiases {
    /// False if there are too many, or the value is none.
    fn push(&mut self, key: BiasKey, value: BiasValue) -> bool {
        let value = match value {
            BiasValue::Number(value) => value,
            BiasValue::Flag(false) => -100.0,
            BiasValue::Flag(true) => return false,
        };
        match key {
            BiasKey::Id(id) => self.ids.push((id, value)),
            BiasKey::Text(text) => match text.parse() {
                Ok(id) => self.ids.push((id, value)),
                Err(_) => self.texts.push((text, value)),
            },
        }
        (-100.0..=100.0).contains(&value) && self.ids.len() + self.texts.len() <= MAX_BIASES
    }
}

struct NativeBiasVisitor;

impl<'a> Visitor<'a> for NativeBiasVisitor {
    type Value = NativeBiases;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_BIASES} token ids or texts, each with a number from -100 to 100 or `false`")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<NativeBiases, A::Error> {
        let mut biases = NativeBiases::default();
        while let Some((key, value)) = map.next_entry::<String, BiasValue>()? {
            if !biases.push(BiasKey::Text(key), value) {
                return Err(A::Error::invalid_value(Unexpected::Map, &self));
            }
        }
        Ok(biases)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut pairs: A) -> Result<NativeBiases, A::Error> {
        let mut biases = NativeBiases::default();
        while let Some((key, value)) = pairs.next_element::<(BiasKey, BiasValue)>()? {
            if !biases.push(key, value) {
                return Err(A::Error::invalid_value(Unexpected::Seq, &self));
            }
        }
        Ok(biases)
    }
}

impl<'a> Deserialize<'a> for NativeBiases {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<NativeBiases, D::Error> {
        deserializer.deserialize_any(NativeBiasVisitor)
    }
}
