//! The body of llama-server's own `/completion`.

use super::grammar;
use super::prompts::Prompt;
use super::sampling::{Common, MAX_CHOICES, MAX_LOGPROBS, NAMES};
use crate::fields::{Fields, Parsed, Unsupported};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use std::fmt;

/// Fields of its own.
const OWN: &[&str] = &[
    "prompt",
    "n_predict",
    "max_tokens",
    "n_probs",
    "return_tokens",
    "response_fields",
    "post_sampling_probs",
    "repeat_penalty",
    "samplers",
    "top_n_sigma",
    "adaptive_target",
    "t_max_predict_ms",
];

const SAMPLER: &str = "use temperature, top_k, top_p and min_p";

/// What cannot be served, and must not be ignored.
const UNSUPPORTED: &[Unsupported] = &[
    Unsupported { name: "n", neutral: &["1"], advice: "ask again for another answer" },
    Unsupported { name: "post_sampling_probs", neutral: &["false"], advice: "use `n_probs` alone" },
    Unsupported { name: "repeat_penalty", neutral: &["1", "1.0"], advice: "use `repetition_penalty`" },
    Unsupported { name: "samplers", neutral: &[], advice: SAMPLER },
    Unsupported { name: "top_n_sigma", neutral: &["-1", "-1.0"], advice: SAMPLER },
    Unsupported { name: "adaptive_target", neutral: &["-1", "-1.0"], advice: SAMPLER },
    Unsupported { name: "t_max_predict_ms", neutral: &["0", "-1"], advice: "use `n_predict`" },
];

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeRequest {
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// Whether the answer is a list, as the prompts are one.
    pub list: bool,
    /// At most this many new tokens; as many as the context holds if it is not given.
    pub max_tokens: Option<usize>,
    /// How many of the likeliest tokens are told for each token.
    pub probs: Option<usize>,
    /// Whether a whole answer tells its tokens.
    pub return_tokens: bool,
    /// The fields of an answer that are wanted; all if empty. A slash leads to a field within a field.
    pub fields: Vec<String>,
    /// Texts whose tokens are biased, beside those in `common`.
    pub text_biases: Vec<(String, f32)>,
    /// What others have too. Options of sampling that are not given are llama-server's.
    pub common: Common,
}

impl NativeRequest {
    /// Reads a body.
    pub fn parse(body: &[u8]) -> Parsed<NativeRequest> {
        let fields = Fields::parse(body, &[OWN, NAMES, grammar::NAMES])?;
        fields.refuse(UNSUPPORTED)?;
        let (common, text_biases) = Common::read_native(&fields)?;
        let NativePrompts { prompts, list } = fields.expect_field("prompt")?;
        let whole = |name| fields.integer(name, -1..=i64::from(u32::MAX));
        let most = whole("n_predict")?.or(whole("max_tokens")?);
        let probs = fields.integer("n_probs", 0..=MAX_LOGPROBS as i64)?.filter(|count| *count > 0);
        Ok(NativeRequest {
            prompts,
            list,
            // −1 is no bound.
            max_tokens: most.and_then(|most| usize::try_from(most).ok()),
            probs: probs.and_then(|count| usize::try_from(count).ok()),
            return_tokens: fields.flag("return_tokens")?,
            fields: fields.optional("response_fields")?.unwrap_or_default(),
            text_biases,
            common,
        })
    }
}

/// A prompt as it is written: a text, token ids mixed with texts, an object with a text, or a list of such prompts.
struct NativePrompts {
    prompts: Vec<Prompt>,
    list: bool,
}

struct NativePromptsVisitor;

/// The text of an object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptObject {
    prompt_string: String,
}

/// An element of a list.
enum NativeElement {
    Id(u32),
    Text(String),
    Prompt(Prompt),
}

impl<'a> Visitor<'a> for NativePromptsVisitor {
    type Value = NativePrompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text, token ids and texts, `prompt_string` in an object, or 1 to {MAX_CHOICES} of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NativePrompts, E> {
        Ok(NativePrompts { prompts: vec![Prompt::Text(text.into())], list: false })
    }

    fn visit_map<A: MapAccess<'a>>(self, map: A) -> Result<NativePrompts, A::Error> {
        let PromptObject { prompt_string } = PromptObject::deserialize(MapAccessDeserializer::new(map))?;
        Ok(NativePrompts { prompts: vec![Prompt::Text(prompt_string)], list: false })
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<NativePrompts, A::Error> {
        // Each text is a prompt, unless ids stand beside it.
        let (mut parts, mut ids, mut prompts) = (Vec::new(), false, Vec::new());
        while let Some(element) = items.next_element()? {
            match element {
                NativeElement::Id(id) if prompts.is_empty() => {
                    ids = true;
                    push_id(&mut parts, id);
                }
                NativeElement::Text(text) if prompts.is_empty() => parts.push(Prompt::Text(text)),
                NativeElement::Text(text) => prompts.push(Prompt::Text(text)),
                NativeElement::Prompt(prompt) if !ids => {
                    prompts.append(&mut parts);
                    prompts.push(prompt);
                }
                _ => return Err(A::Error::invalid_type(Unexpected::Other("a list of two kinds"), &self)),
            }
        }
        if ids || (parts.is_empty() && prompts.is_empty()) {
            return Ok(NativePrompts { prompts: vec![Prompt::Parts(parts)], list: false });
        }
        prompts.append(&mut parts);
        if prompts.len() > MAX_CHOICES {
            return Err(A::Error::invalid_length(prompts.len(), &self));
        }
        Ok(NativePrompts { list: prompts.len() > 1, prompts })
    }
}

fn push_id(parts: &mut Vec<Prompt>, id: u32) {
    match parts.last_mut() {
        Some(Prompt::Ids(ids)) => ids.push(id),
        _ => parts.push(Prompt::Ids(vec![id])),
    }
}

impl<'a> Deserialize<'a> for NativePrompts {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<NativePrompts, D::Error> {
        deserializer.deserialize_any(NativePromptsVisitor)
    }
}

struct NativeElementVisitor;

impl<'a> Visitor<'a> for NativeElementVisitor {
    type Value = NativeElement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a token id, a list of them, or `prompt_string` in an object")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<NativeElement, E> {
        let id = u32::try_from(id).map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &"a token id"))?;
        Ok(NativeElement::Id(id))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NativeElement, E> {
        Ok(NativeElement::Text(text.into()))
    }

    fn visit_map<A: MapAccess<'a>>(self, map: A) -> Result<NativeElement, A::Error> {
        let PromptObject { prompt_string } = PromptObject::deserialize(MapAccessDeserializer::new(map))?;
        Ok(NativeElement::Prompt(Prompt::Text(prompt_string)))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, items: A) -> Result<NativeElement, A::Error> {
        let NativePrompts { mut prompts, list } =
            NativePrompts::deserialize(SeqAccessDeserializer::new(items))?;
        match prompts.pop() {
            Some(prompt) if !list => Ok(NativeElement::Prompt(prompt)),
            _ => Err(A::Error::invalid_type(Unexpected::Other("lists in a list"), &self)),
        }
    }
}

impl<'a> Deserialize<'a> for NativeElement {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<NativeElement, D::Error> {
        deserializer.deserialize_any(NativeElementVisitor)
    }
}
