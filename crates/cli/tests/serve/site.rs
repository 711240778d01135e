//! Answers of a form: a site under Dawn writes what the server writes, of the same request.

use super::common::draft;
use super::common::site::{Files, Oddities, compile, expect_same, generate_on_cpu, run_node};
use super::process::ServeProcess;
use serde_json::{Value, json as value};

#[test]
fn a_site_holds_its_answers_to_the_form_that_the_server_gives_them() {
    let folder = tempfile::tempdir().unwrap();
    let (site, _) = compile(folder.path(), &draft(), &["--no-suite", "--positions", "128"]);
    let files = Files::serve(&site, Oddities::default());
    let properties = value!({"old": {"type": "boolean"}});
    let schema = value!({"type": "object", "properties": properties, "required": ["old"], "additionalProperties": false});
    let format = value!({"type": "json_schema", "json_schema": {"name": "man", "schema": schema}});
    let wish =
        value!({"prompt": "The old man", "max_tokens": 40, "response_format": format, "temperature": 0});
    let with = |more: &[(&str, Value)]| {
        let mut changed = wish.clone();
        more.iter().for_each(|(field, value)| changed[*field] = value.clone());
        value!({ "write": changed })
    };
    let refused = value!({"type": "json_schema", "json_schema": {"schema": {"not": {}}}});
    let steps = value!([
        {"load": files.url},
        with(&[]),
        {"write": {"prompt": "The old man", "max_tokens": 4}},
        {"lose": true},
        with(&[("response_format", refused)]),
        with(&[]),
        with(&[("response_format", Value::Null), ("guided_regex", value!("(yes|no), sir"))]),
    ]);
    let Some(posted) = run_node(&files, &site, &steps) else { return };
    let server = ServeProcess::start(folder.path(), &["--target", "cpu"]);
    let (status, answer) = server.post("/v1/completions", "", &wish);
    assert_eq!(status, 200, "{answer}");
    server.stop();
    let expected = &answer["choices"][0];
    for written in [&posted[1], &posted[4]] {
        assert_eq!(written["text"], expected["text"], "{written} {answer}");
        assert_eq!(written["finish"], expected["finish_reason"]);
        assert_eq!(written["usage"]["completion_tokens"], answer["usage"]["completion_tokens"]);
    }
    assert_eq!((&posted[1]["reopened"], &posted[4]["reopened"]), (&value!(0), &value!(1)));
    // A model that likes white space may not come to the end.
    if expected["finish_reason"] == "stop" {
        let man: Value = serde_json::from_str(posted[1]["text"].as_str().unwrap()).unwrap();
        assert!(man["old"].is_boolean() && man.as_object().unwrap().len() == 1, "{man}");
    }
    expect_same(&posted[2], &generate_on_cpu(folder.path(), &draft(), "The old man", &["--max-tokens", "4"]));
    let said = posted[3]["error"].as_str().unwrap();
    assert!(said.contains("`response_format`: the form of the answer cannot be enforced"), "{said}");
    assert!(["yes, sir", "no, sir"].contains(&posted[5]["text"].as_str().unwrap()), "{}", posted[5]);
    // Loaded one time, for the first request that asked for a form.
    assert_eq!((files.asked_for("/form.wasm"), files.asked_for("/vocabulary.bin")), (1, 1));
}
