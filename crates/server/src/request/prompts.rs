//! Texts and token ids as OpenAI's API writes them: one or several in one field.

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use std::fmt;

/// What a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
    /// Texts and token ids, one after the other. Special tokens stand before a text that is the first part.
    Parts(Vec<Prompt>),
}

/// A text, ids, or at most so many texts or lists of ids; at least one.
pub struct Prompts<const MOST: usize>(pub Vec<Prompt>);

struct PromptsVisitor<const MOST: usize>;

/// An element of the outer list.
enum PromptElement {
    Id(u32),
    Prompt(Prompt),
}

impl<'a, const MOST: usize> Visitor<'a> for PromptsVisitor<MOST> {
    type Value = Prompts<MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text, token ids, or 1 to {MOST} texts or lists of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts<MOST>, E> {
        Ok(Prompts(vec![Prompt::Text(text.into())]))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Prompts<MOST>, A::Error> {
        let mut ids = Vec::new();
        let mut prompts = Vec::new();
        while let Some(element) = items.next_element()? {
            match element {
                PromptElement::Id(id) if prompts.is_empty() => ids.push(id),
                PromptElement::Prompt(prompt) if ids.is_empty() && prompts.len() < MOST => {
                    prompts.push(prompt)
                }
                _ => return Err(A::Error::invalid_type(Unexpected::Other("another list"), &self)),
            }
        }
        if prompts.is_empty() {
            // An empty list is a prompt without tokens, which is refused as such.
            prompts.push(Prompt::Ids(ids));
        }
        Ok(Prompts(prompts))
    }
}

impl<'a, const MOST: usize> Deserialize<'a> for Prompts<MOST> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Prompts<MOST>, D::Error> {
        deserializer.deserialize_any(PromptsVisitor::<MOST>)
    }
}

struct ElementVisitor;

impl<'a> Visitor<'a> for ElementVisitor {
    type Value = PromptElement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a token id or a list of token ids")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<PromptElement, E> {
        let id = u32::try_from(id).map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &"a token id"))?;
        Ok(PromptElement::Id(id))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PromptElement, E> {
        Ok(PromptElement::Prompt(Prompt::Text(text.into())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, items: A) -> Result<PromptElement, A::Error> {
        let ids = Vec::deserialize(SeqAccessDeserializer::new(items))?;
        Ok(PromptElement::Prompt(Prompt::Ids(ids)))
    }
}

impl<'a> Deserialize<'a> for PromptElement {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<PromptElement, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}
