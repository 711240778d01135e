//! Chat templates of released models give what Jinja2 with Transformers' settings gives. `tools/chat_templates.py` fetches them
//! and renders the expected texts into the folder that `TAPML_CHAT_TEMPLATES` names.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::path::PathBuf;
use tapml_engine::{Chat, ChatTemplate, SpecialTokens};

/// Texts that differ, as template and conversation. Jinja2 escapes for HTML what is added to a text that was marked as safe, so
/// that descriptions of tools get `&#34;`.
const EXCEPTIONS: [&str; 2] =
    ["meetkai-functionary-medium-v3.1.jinja: called", "meetkai-functionary-medium-v3.1.jinja: tools"];

/// What one template is given.
fn chat(given: &Value) -> Chat {
    Chat {
        messages: given["messages"].as_array().unwrap().clone(),
        tools: given["tools"].as_array().cloned(),
        options: given["options"].as_object().cloned().unwrap_or_default(),
        add_generation_prompt: true,
        ..Chat::default()
    }
}

#[test]
fn templates_of_released_models_give_what_jinja2_gives() {
    let Some(folder) = std::env::var_os("TAPML_CHAT_TEMPLATES").map(PathBuf::from) else {
        tapml_testing::skip("chat-templates", "TAPML_CHAT_TEMPLATES names no folder of them");
        return;
    };
    let file: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let token = |name: &str| file["special"][name].as_str().map(str::to_string);
    let special = SpecialTokens {
        bos: token("bos_token"),
        eos: token("eos_token"),
        pad: token("pad_token"),
        unk: token("unk_token"),
        ..SpecialTokens::default()
    };
    // What was expected on the day on which the file was made, and what is today.
    let day = |(form, then): (&String, &Value)| {
        let source = format!("{{{{ strftime_now({}) }}}}", Value::from(form.as_str()));
        let chat = Chat { messages: vec![json!({ "role": "user", "content": "" })], ..Chat::default() };
        let now = ChatTemplate::new(&source, &special).unwrap().render(&chat).unwrap();
        (then.as_str().unwrap().to_string(), now)
    };
    let days: Vec<(String, String)> = file["dates"].as_object().unwrap().iter().map(day).collect();
    let (mut equal, mut differing) = (0, Vec::new());
    for (name, texts) in file["expected"].as_object().unwrap() {
        let source = std::fs::read_to_string(folder.join("templates").join(name)).unwrap();
        let template = ChatTemplate::new(&source, &special);
        for (conversation, expected) in texts.as_object().unwrap() {
            // What Jinja2 refuses has no text.
            let Some(expected) = expected.as_str() else { continue };
            let expected =
                days.iter().fold(expected.to_string(), |text, (then, now)| text.replace(then, now));
            let chat = chat(&file["conversations"][conversation]);
            let found = template
                .as_ref()
                .map_err(ToString::to_string)
                .and_then(|template| template.render(&chat).map_err(|e| e.to_string()));
            let name = format!("{name}: {conversation}");
            match found {
                Ok(text) if text == expected => equal += 1,
                Ok(text) => differing.push((name, first_difference(&text, &expected))),
                Err(error) => differing.push((name, error)),
            }
        }
    }
    let mut names: Vec<&str> = differing.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, EXCEPTIONS, "{equal} texts are equal, these differ: {differing:#?}");
    assert!(equal >= 320, "only {equal} texts were compared");
}

/// Where two texts part.
fn first_difference(found: &str, expected: &str) -> String {
    let at = found.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count();
    let part = |text: &str| text.chars().skip(at.saturating_sub(20)).take(60).collect::<String>();
    format!("found {:?}, expected {:?}", part(found), part(expected))
}
