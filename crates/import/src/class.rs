//! The class names of `architectures`. `model_type` alone decides what is built; a class that does not go with it may
//! compute something else.
//!
//! A checkpoint is never refused for its classes: `Checkpoint::notes` shows the sentence that is made here.

use crate::config::Config;
use serde_json::Value;

/// How the names of classes end that are served: text, text from images too, the layers without a head, and encoders whose
/// head is left out.
const ENDINGS: &[&str] =
    &["ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model", "ForMaskedLM", "ForPreTraining"];

/// How the names of classes end that give a class, a span or a number for a text.
const CLASSIFIERS: &[&str] = &[
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "RewardModel",
];

/// What to do about a checkpoint that lacks weights of a language model, if its class explains that. `missing` names such a
/// weight, and `headless` says that the layers are there without their head.
pub fn advice(config: &Config, missing: &str, headless: bool) -> Option<String> {
    let classes = config.root().get("architectures")?.as_array()?;
    let advice = |class: &str| -> Option<String> {
        if let Some(stem) = strip_any(class, CLASSIFIERS) {
            let (class, model) = (quote(class), quote(&format!("{stem}ForCausalLM")));
            return Some(format!(
                "config.json names {class}, a classifier without a language-model head; take a checkpoint of {model}"
            ));
        }
        let stem = class.strip_suffix("Model").filter(|stem| headless && !stem.ends_with("LMHead"))?;
        let (class, model) = (quote(class), quote(&format!("{stem}ForCausalLM")));
        Some(format!(
            "config.json names {class}, the layers without a language-model head; take a checkpoint of {model}, which holds \
             `{missing}`; where the embedding is the head it says `tie_word_embeddings: true`"
        ))
    };
    classes.iter().filter_map(Value::as_str).find_map(advice)
}

/// The text before the first of these endings that it has.
fn strip_any<'a>(text: &'a str, endings: &[&str]) -> Option<&'a str> {
    endings.iter().find_map(|ending| text.strip_suffix(ending))
}

/// A sentence on the classes of `architectures` that do not go with the `model_type`, if there are any.
///
/// `None` also if the key is absent, as in a configuration made from GGUF metadata.
pub fn unknown(config: &Config, model_type: &str) -> Option<String> {
    let fits = |class: &Value| class.as_str().is_some_and(|class| goes_with(class, model_type));
    let found = match config.root().get("architectures")? {
        Value::Array(classes) => classes.iter().filter(|class| !fits(class)).map(brief).collect(),
        other => vec![brief(other)],
    };
    let list = found.join(", ");
    let classifies =
        |class: &Value| class.as_str().is_some_and(|class| strip_any(class, CLASSIFIERS).is_some());
    let what = match config.root().get("architectures")?.as_array() {
        Some(classes) if classes.iter().filter(|class| !fits(class)).all(classifies) => {
            "which gives classes; its head is left out, and a language model runs in its place".to_string()
        }
        _ => format!("which is no known class of a `{model_type}` model; `model_type` decides here"),
    };
    let text = format!("{}: `architectures` names {list}, {what}", config.path().display());
    (!found.is_empty()).then_some(text)
}

/// Whether a class is that of a model type: its name begins with the type's, or the type's with it, such as
/// `RwkvForCausalLM` for `rwkv5`.
fn goes_with(class: &str, model_type: &str) -> bool {
    // Case and underscores are no difference: `gpt_neox` goes with `GPTNeoX`.
    let letters = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let stem = strip_any(class, ENDINGS).map(letters);
    stem.is_some_and(|stem| !stem.is_empty() && letters(model_type).starts_with(&stem))
}

/// A value for a message: cut short, because it comes from a file.
fn brief(value: &Value) -> String {
    quote(&value.as_str().map_or_else(|| value.to_string(), str::to_string))
}

/// The beginning of a text from a file, in quotation marks of code.
fn quote(text: &str) -> String {
    format!("`{}`", text.chars().take(60).collect::<String>().escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn note(architectures: Value, model_type: &str) -> Option<String> {
        let map = serde_json::json!({ "architectures": architectures });
        let config = Config::new(Path::new("m/config.json"), map.as_object().unwrap().clone());
        unknown(&config, model_type)
    }

    #[test]
    fn classes_of_the_model_type_need_no_note() {
        for (class, model_type) in [
            ("LlamaForCausalLM", "llama"),
            ("Qwen2MoeForCausalLM", "qwen2_moe"),
            ("GPT2LMHeadModel", "gpt2"),
            ("BertForMaskedLM", "bert"),
            ("Phi3VForCausalLM", "phi3_v"),
            ("RwkvForCausalLM", "rwkv5"),
            ("Gemma3ForCausalLM", "gemma3_text"),
            ("Mistral3ForConditionalGeneration", "mistral3"),
            ("ChatGLMModel", "chatglm"),
            ("BaiChuanForCausalLM", "baichuan"),
        ] {
            assert_eq!(note(serde_json::json!([class]), model_type), None, "{class}");
        }
        assert_eq!(note(serde_json::json!([]), "llama"), None);
    }

    #[test]
    fn a_class_without_a_language_models_head_is_explained() {
        let advice = |class: &str, headless: bool| {
            let map = serde_json::json!({ "architectures": [class] });
            let config = Config::new(Path::new("m/config.json"), map.as_object().unwrap().clone());
            super::advice(&config, "lm_head.weight", headless)
        };
        for class in ["LlamaForSequenceClassification", "LlamaForTokenClassification"] {
            for headless in [false, true] {
                let text = advice(class, headless).unwrap();
                assert!(text.contains("classifier") && text.contains("`LlamaForCausalLM`"), "{text}");
            }
        }
        let text = advice("LlamaModel", true).unwrap();
        assert!(text.contains("`LlamaForCausalLM`") && text.contains("`lm_head.weight`"), "{text}");
        assert_eq!(advice("LlamaModel", false), None, "a file may be missing");
        assert_eq!(advice("GPT2LMHeadModel", true), None);
        assert_eq!(advice("LlamaForCausalLM", true), None);
    }

    #[test]
    fn other_classes_are_named() {
        for class in [
            "AbacusForCausalLM",
            "LlamaForSequenceClassification",
            "ForCausalLM",
            "Llama",
            "Llama4ForCausalLM",
        ] {
            let note = note(serde_json::json!(["LlamaForCausalLM", class]), "llama").unwrap();
            assert!(
                note.starts_with("m/config.json: ") && note.contains(&format!("names `{class}`,")),
                "{note}"
            );
        }
        for value in [serde_json::json!("LlamaForCausalLM"), serde_json::json!([7]), serde_json::json!({})] {
            assert!(note(value, "llama").is_some());
        }
        assert!(note(serde_json::json!(["x".repeat(9000)]), "llama").unwrap().len() < 300);
    }
}
