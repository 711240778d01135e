//! The form of answers that call functions, so that calls that are demanded are made, and their arguments fulfil their schemas.
//! A model writes calls as its template shows it; what is made here is what [`crate::tool_calls`] reads.

use crate::error::ApiError;
use crate::fields::Parsed;
use crate::tool_calls::{
    DEEPSEEK, DEEPSEEK_CALL, DEEPSEEK_SEPARATOR, GRANITE, HERMES, MARKS, MISTRAL, MISTRAL_ARGUMENTS, PYTHON,
};
use serde_json::Value;
use tapml_constraint::Grammar;

/// A function that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolFunction {
    /// Its name.
    pub name: String,
    /// The schema of its arguments; without one it takes none.
    pub parameters: Option<Value>,
    /// Whether its arguments must fulfil the schema wherever it is called.
    pub strict: bool,
}

/// Which calls an answer may or must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolChoice {
    /// The functions that may be called.
    pub functions: Vec<ToolFunction>,
    /// Whether one must be called.
    pub required: bool,
    /// Whether several may be called.
    pub parallel: bool,
}

/// How a family of models writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallStyle {
    Hermes,
    /// `[TOOL_CALLS]name[ARGS]{…}`.
    MistralNamed,
    Mistral,
    Granite,
    DeepSeek,
    Llama,
    /// An object alone.
    Plain,
}

impl CallStyle {
    /// The style that a template shows.
    fn of_template(template: &str) -> CallStyle {
        let styles = [
            (HERMES.0, CallStyle::Hermes),
            (MISTRAL_ARGUMENTS, CallStyle::MistralNamed),
            (MISTRAL, CallStyle::Mistral),
            (GRANITE, CallStyle::Granite),
            (DEEPSEEK_CALL, CallStyle::DeepSeek),
            (PYTHON, CallStyle::Llama),
        ];
        let found = styles.into_iter().find(|(mark, _)| template.contains(mark));
        found.map_or(CallStyle::Plain, |(_, style)| style)
    }

    /// What an answer that calls functions begins its calls with.
    fn mark(self) -> Option<&'static str> {
        match self {
            CallStyle::Hermes => Some(HERMES.0),
            CallStyle::MistralNamed | CallStyle::Mistral => Some(MISTRAL),
            CallStyle::Granite => Some(GRANITE),
            CallStyle::DeepSeek => Some(DEEPSEEK),
            CallStyle::Llama | CallStyle::Plain => None,
        }
    }

    fn frame(self) -> CallFrame {
        let (before, between, behind) = match self {
            CallStyle::Hermes => ("", format!("\n{}", HERMES.0), ""),
            CallStyle::MistralNamed => ("", MISTRAL.into(), ""),
            CallStyle::Mistral | CallStyle::Granite => ("[", ", ".into(), "]"),
            CallStyle::DeepSeek => ("", "\n".into(), DEEPSEEK_END),
            CallStyle::Llama => ("", "; ".into(), ""),
            CallStyle::Plain => ("", "\n".into(), ""),
        };
        CallFrame { before, between, behind }
    }

    /// What goes before and behind the arguments of a call.
    fn call(self, name: &str) -> (String, String) {
        let object = |key: &str| (format!("{{\"name\": {}, \"{key}\": ", Value::from(name)), "}".to_string());
        match self {
            CallStyle::Hermes => {
                let (before, behind) = object("arguments");
                (format!("\n{before}"), format!("{behind}\n{}", HERMES.1))
            }
            CallStyle::MistralNamed => (format!("{name}{MISTRAL_ARGUMENTS}"), String::new()),
            CallStyle::DeepSeek => (
                format!("{DEEPSEEK_CALL}function{DEEPSEEK_SEPARATOR}{name}\n```json\n"),
                format!("\n```{DEEPSEEK_CALL_END}"),
            ),
            CallStyle::Llama => object("parameters"),
            CallStyle::Mistral | CallStyle::Granite | CallStyle::Plain => object("arguments"),
        }
    }
}

/// What stands around the calls of an answer.
struct CallFrame {
    /// Behind the mark.
    before: &'static str,
    /// Between two calls.
    between: String,
    /// At the end.
    behind: &'static str,
}

const DEEPSEEK_CALL_END: &str = "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>";
const DEEPSEEK_END: &str = "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>";

/// The form of an answer that may call functions, whose text is to have the form `text`. `None` if nothing is demanded.
///
/// # Errors
/// If a call cannot be told from a text of this form by its beginning.
pub fn answer_grammar(template: &str, choice: &ToolChoice, text: Option<Grammar>) -> Parsed<Option<Grammar>> {
    let is_strict = choice.functions.iter().any(|function| function.strict);
    if choice.functions.is_empty() || !(choice.required || is_strict || text.is_some()) {
        return Ok(text);
    }
    let style = CallStyle::of_template(template);
    let calls = calls(style, choice);
    Ok(Some(match text {
        _ if choice.required => calls.whole(),
        Some(_) if style.mark().is_none() => {
            let text = "this model writes calls as an object alone, so that a form of the text cannot be told from a call; \
                        give `tool_choice` or leave the form out";
            return Err(ApiError::unsupported_field("response_format", text));
        }
        Some(text) => Grammar::Choice(vec![calls.whole(), text]),
        None => match style.mark() {
            // A text that begins with an object is looked at as a call.
            None => Grammar::Choice(vec![calls.whole(), Grammar::Regex(r"(?s:\s*([^\s{].*)?)".into())]),
            Some(mark) => {
                let marks: Vec<String> = MARKS.iter().map(|mark| mark.to_string()).collect();
                let without = marks.iter().filter(|other| *other != mark).cloned().collect();
                let until = Grammar::Until { end: mark.into(), without };
                Grammar::Choice(vec![
                    Grammar::Sequence(vec![until, calls.behind_mark]),
                    Grammar::Without(marks),
                ])
            }
        },
    }))
}

/// Calls, with the mark before them apart.
struct Calls {
    mark: &'static str,
    behind_mark: Grammar,
}

impl Calls {
    fn whole(self) -> Grammar {
        Grammar::Sequence(vec![Grammar::Text(self.mark.into()), self.behind_mark])
    }
}

/// One call, or several.
fn calls(style: CallStyle, choice: &ToolChoice) -> Calls {
    let call = |function: &ToolFunction| {
        let (before, behind) = style.call(&function.name);
        let arguments = match &function.parameters {
            Some(schema) => Grammar::Json(schema.clone()),
            None => Grammar::Text("{}".into()),
        };
        Grammar::Sequence(vec![Grammar::Text(before), arguments, Grammar::Text(behind)])
    };
    let one = Grammar::Choice(choice.functions.iter().map(call).collect());
    let CallFrame { before, between, behind } = style.frame();
    let mut parts = vec![Grammar::Text(before.into()), one.clone()];
    if choice.parallel {
        let next = Grammar::Sequence(vec![Grammar::Text(between), one]);
        parts.push(Grammar::Repeat(Box::new(next), 0));
    }
    parts.push(Grammar::Text(behind.into()));
    Calls { mark: style.mark().unwrap_or_default(), behind_mark: Grammar::Sequence(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_calls::{ToolScanner, ToolSet};
    use serde_json::json;
    use std::ops::ControlFlow;
    use tapml_constraint::GrammarCompiler;
    use tapml_engine::Tokenizer;

    /// A text that is chosen at random among what a grammar allows, `None` if it becomes long.
    fn random_text(tokenizer: &Tokenizer, grammar: &Grammar, seed: u64) -> Option<String> {
        let vocabulary = tokenizer.vocabulary(tokenizer.vocab(), &[1]);
        let compiled = GrammarCompiler::new(vocabulary).unwrap().compile(grammar).unwrap();
        let (mut random, mut mask, mut ids) = (fastrand::Rng::with_seed(seed), compiled.mask(), Vec::new());
        for _ in 0..300 {
            let mut words = vec![0; tokenizer.vocab().div_ceil(32)];
            mask.fill(&mut words).unwrap();
            let allowed: Vec<u32> = (0..tokenizer.vocab() as u32)
                .filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1)
                .collect();
            let id = if allowed.contains(&1) { 1 } else { *random.choice(&allowed).unwrap() };
            ids.extend((id != 1).then_some(id));
            if mask.accept(id).unwrap() == ControlFlow::Break(()) {
                return Some(tokenizer.decode(&ids).unwrap());
            }
        }
        None
    }

    #[test]
    fn calls_of_every_style_are_read_as_they_are_written() {
        let tokenizer = Tokenizer::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/llama")).unwrap();
        let parameters = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"], "additionalProperties": false });
        let functions = [("f", Some(parameters)), ("f_more", None)];
        let functions =
            functions.map(|(name, parameters)| ToolFunction { name: name.into(), parameters, strict: false });
        let templates = [
            "<tool_call>",
            "[TOOL_CALLS][ARGS]",
            "[TOOL_CALLS]",
            "<|tool_call|>",
            DEEPSEEK_CALL,
            "<|python_tag|>",
            "",
        ];
        for (template, parallel) in
            templates.into_iter().flat_map(|template| [(template, false), (template, true)])
        {
            let choice = ToolChoice { functions: functions.clone().into(), required: true, parallel };
            let grammar = answer_grammar(template, &choice, None).unwrap().unwrap();
            let texts: Vec<String> =
                (0..10).filter_map(|seed| random_text(&tokenizer, &grammar, seed)).collect();
            assert!(texts.len() > 3, "{template}: {texts:?}");
            for text in texts {
                let names = ["f", "f_more"].map(String::from).into();
                let mut scanner = ToolScanner::new(ToolSet { names, parallel });
                let said = scanner.push(&text);
                let (rest, calls) = scanner.finish();
                assert_eq!((said.as_str(), rest.as_str()), ("", ""), "{template}: {text}");
                assert!(!calls.is_empty() && (parallel || calls.len() == 1), "{template}: {text}");
                for call in calls {
                    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                    assert!((call.name == "f") == arguments["a"].is_boolean(), "{template}: {text}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_demanded_of_free_answers() {
        let function = |strict| ToolFunction { name: "f".into(), parameters: None, strict };
        let choice =
            |strict| ToolChoice { functions: vec![function(strict)], required: false, parallel: true };
        assert_eq!(answer_grammar("", &choice(false), None).unwrap(), None);
        assert_eq!(answer_grammar("", &ToolChoice::default(), None).unwrap(), None);
        assert!(answer_grammar("", &choice(true), None).unwrap().is_some());
        let text = || Some(Grammar::Text("a".into()));
        assert_eq!(answer_grammar("", &ToolChoice::default(), text()).unwrap(), text());
        assert!(answer_grammar("", &choice(false), text()).is_err());
        assert!(answer_grammar("<tool_call>", &choice(false), text()).unwrap().is_some());
    }
}
