//! Tests of chat templates; the expected texts are what Jinja2 with Transformers' settings gives.

use super::*;

fn special() -> SpecialTokens {
    SpecialTokens { bos: Some("<s>".into()), eos: Some("</s>".into()), ..SpecialTokens::default() }
}

fn render(source: &str, messages: &[Message]) -> Result<String> {
    ChatTemplate::new(source, &special())?.render(&Chat::new(messages)?)
}

fn talk() -> Vec<Message> {
    vec![Message::new("system", "Be <brief> & kind."), Message::new("user", "  Hé?  ")]
}

#[test]
fn blocks_are_trimmed_and_globals_are_there() {
    let source = "{{ bos_token }}\n{% for m in messages %}\n    {% if m['role'] == 'user' %}\nU: {{ m.content | trim }}\n    \
                  {% else %}\nS: {{ m.content }}{{ eos_token }}\n    {% endif %}\n{% endfor %}\n\
                  {% if add_generation_prompt %}\nA:{% endif %}";
    assert_eq!(render(source, &talk()).unwrap(), "<s>\nS: Be <brief> & kind.</s>\nU: Hé?\nA:");
}

#[test]
fn python_methods_slices_namespaces_and_loop_controls() {
    let backwards = "{{ [][::-1] }}{{ [1, 2, 3][0:3:-1] }}{{ [1, 2, 3][::-1] }}";
    assert_eq!(render(backwards, &talk()).unwrap(), "[][][3, 2, 1]");
    let source = "{%- set ns = namespace(n=0) -%}{%- for m in messages[1:] -%}{%- set ns.n = ns.n + 1 -%}\
                  {%- if ns.n > 1 -%}{%- break -%}{%- endif -%}{{ m.content.strip().upper() }}{%- endfor -%}|{{ ns.n }}";
    assert_eq!(render(source, &talk()).unwrap(), "HÉ?|1");
}

#[test]
fn tojson_is_pythons() {
    let source = "{{ messages | tojson }}";
    let expected = "[{\"role\": \"system\", \"content\": \"Be <brief> & kind.\"}, \
                    {\"role\": \"user\", \"content\": \"  Hé?  \"}]";
    assert_eq!(render(source, &talk()).unwrap(), expected);
    let indented = render("{{ messages[1] | tojson(indent=2) }}", &talk()).unwrap();
    assert_eq!(indented, "{\n  \"role\": \"user\",\n  \"content\": \"  Hé?  \"\n}");
}

#[test]
fn tojson_takes_pythons_options() {
    for (call, expected) in [
        ("tojson", r#"{"b": ["é", 1e+16, true], "a": {}, "c": []}"#),
        ("tojson(ensure_ascii=true)", r#"{"b": ["\u00e9", 1e+16, true], "a": {}, "c": []}"#),
        ("tojson(true, none, [',', ':'], true)", r#"{"a":{},"b":["\u00e9",1e+16,true],"c":[]}"#),
        (
            "tojson(indent=1, sort_keys=true)",
            "{\n \"a\": {},\n \"b\": [\n  \"é\",\n  1e+16,\n  true\n ],\n \"c\": []\n}",
        ),
        (
            "tojson(indent='\t', separators=('; ', '='))",
            "{\n\t\"b\"=[\n\t\t\"é\"; \n\t\t1e+16; \n\t\ttrue\n\t]; \n\t\"a\"={}; \n\t\"c\"=[]\n}",
        ),
    ] {
        let source = format!("{{{{ {{'b': ['é', 1e16, true], 'a': {{}}, 'c': []}} | {call} }}}}");
        assert_eq!(render(&source, &[]).unwrap(), expected, "{call}");
    }
    for (call, why) in [
        ("tojson(1, 2, 3, 4, 5)", "ensure_ascii, indent, separators, sort_keys"),
        ("tojson(separators=',')", "two texts"),
        ("tojson(indent=' ' * 40)", "at most 16"),
        ("tojson(default=1)", "default"),
    ] {
        let said = render(&format!("{{{{ messages | {call} }}}}"), &[]).unwrap_err().to_string();
        assert!(said.contains(why), "{call}: {said}");
    }
}

#[test]
fn a_template_sees_tools_options_and_the_fields_of_messages() {
    let source = "{{ messages[0].tool_calls[0].name }} {{ tools[0].name if tools }} {{ documents is none }} \
                  {{ tools is iterable }} {{ enable_thinking }} {{ bos_token }} {{ add_generation_prompt }}";
    let template = ChatTemplate::new(source, &special()).unwrap();
    let object = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
    let chat = Chat {
        messages: vec![
            object(r#"{"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]}"#).into(),
        ],
        tools: Some(vec![object(r#"{"name": "g"}"#).into()]),
        options: object(r#"{"enable_thinking": false, "bos_token": "<b>"}"#),
        ..Chat::default()
    };
    assert_eq!(template.render(&chat).unwrap(), "f g True True False <b> False");
    let without = Chat { tools: None, options: object("{}"), ..chat.clone() };
    assert_eq!(template.render(&without).unwrap(), "f  True False  <s> False");
    let error = template.render(&Chat { options: object(r#"{"tools": []}"#), ..chat }).unwrap_err();
    assert!(error.to_string().contains("`tools` is no option"), "{error}");
}

#[test]
fn the_time_is_told_as_c_tells_it() {
    let text = render("{{ strftime_now('%Y-%m-%d %% %H:%M') }}", &[]).unwrap();
    let digits: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(digits, "0000-00-00 % 00:00");
    for wrong in
        ["{{ strftime_now('%!') }}".to_string(), format!("{{{{ strftime_now('{}') }}}}", "%Y".repeat(200))]
    {
        assert!(render(&wrong, &[]).unwrap_err().to_string().contains("format of a time"), "{wrong}");
    }
}

#[test]
fn training_marks_do_nothing() {
    let source = "a{% generation %}b{%- endgeneration -%} c";
    assert_eq!(render(source, &[]).unwrap(), "abc");
    // What is no block is for the parser to tell.
    for broken in ["{%}", "a{%}{% generation %}", "{% generation", "{%"] {
        assert!(render(broken, &[]).unwrap_err().to_string().contains("is not valid"), "{broken}");
    }
}

#[test]
fn keys_of_a_format_that_the_library_would_cut_within_a_character_are_refused() {
    for key in ["{{ '%(é)s'|format({'é': 1}) }}", "{{ '%(䒞'|format(3) }}"] {
        let said = render(key, &[]).unwrap_err().to_string();
        assert!(said.contains("keys in a format must be ASCII"), "{said}");
    }
    let literal = render("{{ 'é %%(é) %s {é}'|format('ü') }}", &[]).unwrap();
    assert_eq!(literal, "é %(é) ü {é}");
}

#[test]
fn checked_operations_give_what_they_gave() {
    let source = concat!(
        "{% for key, value in {'z': [1, 'x', none, true], 'b': 2.5, 'c': {'d': 'e'}} | dictsort %}{% if k",
        "ey not in ['a', 'b'] %}{{ key ~ ':' ~ value|tojson }}{% if not loop.last %},{% endif %}{% endif ",
        "%}{% endfor %}|{{ (messages | selectattr('role', 'equalto', 'user') | map(attribute='content') |",
        " list)[-1] }}|{{ messages[1:]|length }}|{{ ['a','b'] + ['c'] }}|{{ 'x' * 3 }}|{{ ('a,b'.split(',",
        "') | join('+')) }}|{% for m in messages[::-1] %}{{ loop.index }}{{ m.role[0] }}{% endfor %}|{{ 7",
        " // 2 }}|{{ -7 % 3 }}|{{ 1 < 2 < 3 }}|{{ 'b' in 'abc' and 1 not in [2] }}|{{ {'a': 1}.get('b', '",
        "none') }}|{{ {'a': [1, 'x']}|string }}|{{ messages[0].content[3:5] ~ messages[-1]['role'].upper(",
        ") }}|{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(*['x'], **{'b': 3}) }}|{% set a, b = ",
        "(1, 2) %}{{ a - b }}",
    );
    let expected = concat!(
        "c:{\"d\": \"e\"},z:[1, \"x\", null, true]|  Hé?  |1|['a', 'b', 'c']|xxx|a+b|1u2s|3|2|True|True|none|{'",
        "a': [1, 'x']}|<bUSER|x3|-1",
    );
    assert_eq!(render(source, &talk()).unwrap(), expected);
}

#[test]
fn templates_that_refuse_say_why() {
    let error = render("{{ raise_exception('roles must alternate') }}", &talk()).unwrap_err();
    assert!(error.to_string().contains("roles must alternate"), "{error}");
    let error = render("x\n{% if %}", &[]).unwrap_err();
    assert!(error.to_string().contains("is not valid") && error.to_string().contains("line 2"), "{error}");
}

#[test]
fn endless_templates_end() {
    let loops = "{% set r = range(9000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}";
    assert!(render(loops, &[]).unwrap_err().to_string().contains("million steps"));
    let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert!(render(recursion, &[]).is_err());
}

#[test]
fn the_file_goes_before_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let first = |dir: &Path| {
        ChatTemplate::read(dir, &special()).map(|t| t.map(|t| t.render(&Chat::default()).unwrap()))
    };
    assert_eq!(first(dir.path()).unwrap(), None);
    write("tokenizer_config.json", r#"{"chat_template": "one"}"#);
    assert_eq!(first(dir.path()).unwrap().as_deref(), Some("one"));
    let list = r#"{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "two"}]}"#;
    write("tokenizer_config.json", list);
    assert_eq!(first(dir.path()).unwrap().as_deref(), Some("two"));
    for bad in [r#"{"chat_template": 3}"#, r#"{"chat_template": [{"name": "x"}]}"#] {
        write("tokenizer_config.json", bad);
        assert!(first(dir.path()).unwrap_err().to_string().contains("chat_template"));
    }
    write(FILE, "three");
    assert_eq!(first(dir.path()).unwrap().as_deref(), Some("three"));
    write(FILE, "{% bad");
    let error = first(dir.path()).unwrap_err().to_string();
    assert!(error.contains(FILE), "{error}");
}

#[test]
fn the_last_message_may_be_gone_on_with() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    let trimming = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</end>{% endfor %}";
    let chat = |content: &str| Chat {
        continue_final_message: true,
        add_generation_prompt: false,
        ..Chat::new(&[Message::new("user", "Once"), Message::new("assistant", content)]).unwrap()
    };
    let render = |source: &str, chat: &Chat| ChatTemplate::new(source, &special()).unwrap().render(chat);
    assert_eq!(render(source, &chat("Once upon ")).unwrap(), "<user>Once</end><assistant>Once upon ");
    assert_eq!(render(trimming, &chat(" Once upon ")).unwrap(), "<user>Once</end><assistant>Once upon");
    let both = Chat { add_generation_prompt: true, ..chat("a") };
    assert!(render(source, &both).unwrap_err().to_string().contains("exclude one another"));
    let changed = render("{% for m in messages %}{{ m.content | upper }}{% endfor %}", &chat("a"));
    assert!(changed.unwrap_err().to_string().contains("changes the last message"));
    let without =
        Chat { messages: vec![serde_json::json!({ "role": "assistant", "content": null })], ..chat("a") };
    assert!(render("a", &without).unwrap_err().to_string().contains("no text"));
}
