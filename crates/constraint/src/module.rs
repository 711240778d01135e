//! What pages call: one vocabulary, and the form of one text at a time. Bytes go in and come out through buffers of the module, so
//! that the page never frees memory.

use crate::{FormFault, GrammarCompiler, GrammarMask, RequestedForm, Vocabulary, read_form};
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use tapml_graph::{Context, Error, Result};

/// Most bytes that a page may give at once.
const MAX_INPUT: usize = 256 << 20;

/// See the module.
#[derive(Default)]
pub struct FormModule {
    input: Vec<u8>,
    /// What the last failure was, as JSON: its `message` and its `hint`.
    failure: Vec<u8>,
    compiler: Option<GrammarCompiler>,
    words: Vec<u32>,
    mask: Option<GrammarMask>,
}

impl FormModule {
    /// Room for so many bytes that the next call takes; none for more than is allowed.
    pub fn input(&mut self, bytes: usize) -> &mut [u8] {
        self.input = vec![0; if bytes <= MAX_INPUT { bytes } else { 0 }];
        &mut self.input
    }

    /// Takes the file of a vocabulary ([`Vocabulary::to_bytes`]).
    ///
    /// # Errors
    /// If it is damaged, or no form can be enforced on it.
    pub fn open(&mut self) -> Result<()> {
        let vocabulary = Vocabulary::from_bytes(&std::mem::take(&mut self.input))?;
        self.words = vec![0; vocabulary.tokens.len().div_ceil(32)];
        self.compiler = Some(GrammarCompiler::new(vocabulary)?);
        Ok(())
    }

    /// Takes fields of a request, an object of JSON. Whether they ask for a form, which the text that begins is then held to.
    ///
    /// # Errors
    /// If fields are wrong, or the form cannot be enforced.
    pub fn begin(&mut self) -> Result<bool> {
        self.mask = None;
        let fields: Map<String, Value> = serde_json::from_slice(&std::mem::take(&mut self.input))
            .map_err(|e| Error::invalid(format!("the form of a request: {e}")))?;
        let form =
            read_form::<FormFault>(|name| Ok(fields.get(name).cloned())).map_err(|fault| fault.error)?;
        let Some(RequestedForm { field, grammar }) = form else { return Ok(false) };
        let compiler = self.compiler.as_ref().ok_or_else(|| Error::bug("no vocabulary is open"))?;
        self.mask = Some(compiler.compile(&grammar).context(|| format!("`{field}`"))?.mask());
        Ok(true)
    }

    /// The words of [`GrammarMask::fill`] for the next token.
    ///
    /// # Errors
    /// As the mask's.
    pub fn fill(&mut self) -> Result<&[u32]> {
        let mask = self.mask.as_mut().ok_or_else(|| Error::bug("no text has begun"))?;
        mask.fill(&mut self.words)?;
        Ok(&self.words)
    }

    /// Takes the token that was chosen. Whether the text is complete with it.
    ///
    /// # Errors
    /// As the mask's.
    pub fn accept(&mut self, id: u32) -> Result<bool> {
        let mask = self.mask.as_mut().ok_or_else(|| Error::bug("no text has begun"))?;
        Ok(mask.accept(id)? == ControlFlow::Break(()))
    }

    /// Keeps a failure, to be told.
    pub fn keep(&mut self, error: &Error) {
        let told = json!({ "message": error.to_string(), "hint": error.hint().unwrap_or_default() });
        self.failure = told.to_string().into_bytes();
    }

    /// The failure that was kept.
    pub fn failure(&self) -> &[u8] {
        &self.failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenBytes;

    /// A module with a token for every visible character of ASCII, and one that ends texts.
    fn module() -> FormModule {
        let tokens = (b' '..=b'~').map(|byte| TokenBytes::Text(vec![byte]));
        let tokens = std::iter::once(TokenBytes::Special("<end>".into())).chain(tokens).collect();
        let mut module = FormModule::default();
        give(&mut module, &Vocabulary { tokens, ends: vec![0] }.to_bytes());
        module.open().unwrap();
        module
    }

    fn give(module: &mut FormModule, bytes: &[u8]) {
        module.input(bytes.len()).copy_from_slice(bytes);
    }

    fn begin(module: &mut FormModule, fields: &Value) -> Result<bool> {
        give(module, fields.to_string().as_bytes());
        module.begin()
    }

    #[test]
    fn a_text_is_held_to_its_form_until_it_is_complete() {
        let mut module = module();
        assert!(!begin(&mut module, &json!({ "response_format": { "type": "text" } })).unwrap());
        assert!(module.fill().is_err());
        assert!(begin(&mut module, &json!({ "guided_choice": ["yes", "yet"] })).unwrap());
        for (at, expected) in ["y", "e", "st"].into_iter().enumerate() {
            let words = module.fill().unwrap().to_vec();
            let allowed: String = (b' '..=b'~')
                .filter(|byte| {
                    let id = usize::from(byte - b' ') + 1;
                    words[id / 32] >> (id % 32) & 1 == 1
                })
                .map(char::from)
                .collect();
            assert_eq!(allowed, expected);
            let id = u32::from(expected.as_bytes()[0] - b' ') + 1;
            assert_eq!(module.accept(id).unwrap(), at == 2);
        }
    }

    #[test]
    fn what_cannot_be_enforced_is_refused_with_its_field() {
        let mut module = module();
        for (fields, expected) in [
            (
                json!({ "guided_json": { "not": {} } }),
                "`guided_json`: the form of the answer cannot be enforced",
            ),
            (json!({ "regex": "(" }), "`regex`: the form"),
            (json!({ "response_format": { "type": "xml" } }), "`response_format.type` is `xml`"),
        ] {
            let error = begin(&mut module, &fields).unwrap_err();
            module.keep(&error);
            let told: Value = serde_json::from_slice(module.failure()).unwrap();
            assert!(told["message"].as_str().unwrap().starts_with(expected), "{told}");
            assert!(module.fill().is_err());
        }
        give(&mut module, b"[1");
        assert!(module.begin().is_err());
        assert!(module.input(MAX_INPUT + 1).is_empty());
        assert!(FormModule::default().begin().is_err());
    }
}
