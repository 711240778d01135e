//! Templates of a stranger: each goes beyond one limit, and is refused by its name within a bounded amount of memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{measure_work, turn};
use tapml_engine::{Chat, ChatTemplate, Message, SpecialTokens};
use tapml_graph::Result;

fn render(source: &str) -> Result<String> {
    let special = SpecialTokens { bos: Some("<s>".into()), ..SpecialTokens::default() };
    ChatTemplate::new(source, &special)?.render(&Chat::new(&[Message::new("user", "Hello there")])?)
}

/// Renders what must be refused with these words.
fn refuses(what: &str, source: &str, words: &str) {
    let (error, kept) = measure_work(what, || render(source).expect_err(what).to_string());
    assert!(error.contains("the chat template") && error.contains(words), "{what}: {error}");
    assert!(error.len() < 4000, "{what}: {} bytes of message", error.len());
    assert!(kept < 1 << 20, "{what}: {kept} bytes stay");
}

#[test]
fn deep_texts_are_refused_before_they_are_parsed() {
    let _turn = turn();
    let deep = [
        ("minus", format!("{{{{ {}1 }}}}", "-".repeat(20_000))),
        ("not", format!("{{{{ {}true }}}}", "not ".repeat(20_000))),
        ("brackets", format!("{{{{ {}1 }}}}", "[".repeat(20_000))),
        ("parentheses", format!("{{{{ {}1 }}}}", "(".repeat(20_000))),
        ("maps", format!("{{{{ {}1 }}}}", "{1:".repeat(20_000))),
        ("items", format!("{{{{ a{} }}}}", "[0]".repeat(20_000))),
        ("calls", format!("{{{{ a{} }}}}", "()".repeat(20_000))),
        ("attributes", format!("{{{{ a{} }}}}", ".a".repeat(20_000))),
        ("filters", format!("{{{{ a{} }}}}", "|upper".repeat(20_000))),
        ("tests", format!("{{{{ a{} }}}}", " is string".repeat(20_000))),
        ("sums", format!("{{{{ 1{} }}}}", "+1".repeat(20_000))),
        ("texts", format!("{{{{ a{} }}}}", "~a".repeat(20_000))),
        ("powers", format!("{{{{ a{} }}}}", "**a".repeat(20_000))),
        ("comparisons", format!("{{{{ a{} }}}}", "<a".repeat(20_000))),
        ("choices", format!("{{{{ {}1 }}}}", "1 if a else ".repeat(10_000))),
        ("branches", format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(10_000))),
    ];
    for (what, source) in deep {
        refuses(what, &source, "nests more than 400");
    }
    let blocks = "{% if a %}".repeat(10_000) + &"{% endif %}".repeat(10_000);
    refuses("blocks", &blocks, "nests more than 400");
    let loops = "{% for a in b %}".repeat(5000) + &"{% endfor %}".repeat(5000);
    refuses("loops", &loops, "recursion limits");
    refuses("long", &"a".repeat(300_000), "at most 262144 are read");
}

#[test]
fn constants_that_a_compiler_would_compute_are_refused() {
    let _turn = turn();
    for source in [
        "{{ 'a' * 100000000 }}",
        "{% set a = (1,) * 100000000 %}",
        "{{ 'a' * 10000 * 10000 }}",
        "{{ 'a' * (10 ** 9) }}",
        "{{ [1, 2] * (1 // 0.00000001) }}",
    ] {
        refuses(source, source, "multiplies constants");
    }
    assert_eq!(render("{{ '-' * 20 }}{{ 3 * 4 }}").unwrap(), "-".repeat(20) + "12");
}

#[test]
fn texts_and_lists_that_grow_end() {
    let _turn = turn();
    let fill = "{% set n = namespace(x='aaaaaaaaaaaaaaaa', l=[1, 2]) %}{% for i in range(60) %}";
    for body in [
        "{% set n.x = n.x ~ n.x %}",
        "{% set n.x = n.x + n.x %}",
        "{% set n.x = n.x * 10 %}",
        "{% set n.x = n.x|replace('a', n.x) %}",
        "{% set n.x = n.x.replace('a', n.x) %}",
        "{% set n.x = n.x.replace('', n.x) %}",
        "{% set n.x = [n.x, n.x, n.x]|join(n.x) %}",
        "{% set n.x = n.x.join([n.x, n.x, n.x]) %}",
        "{% set n.x = '{}{}'.format(n.x, n.x) %}",
        "{% set n.x = '%s%s'|format(n.x, n.x) %}",
        "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}",
        "{% set n.x = (n.x ~ '\\n' ~ n.x)|indent(5000) %}",
        "{% set n.x = [n.x, n.x]|string %}",
        "{% set n.x = {'a': n.x, 'b': n.x}|tojson %}",
        "{% set n.x = n.x|list|string %}",
        "{% set n.x = [n.x, n.x, n.x]|pprint %}",
        "{% set n.x = ([n.x] * 20)|map('replace', 'a', n.x)|join %}",
        "{% set n.x = n.x|e ~ '<<<<<<<<<<<<<<<<<<<<<<<'|e ~ n.x|e %}",
        "{% filter upper %}{{ n.x }}{% set n.x = n.x ~ n.x %}{% endfilter %}",
        "{% set n.l = n.l + n.l %}",
        "{% set n.l = n.l * 10 %}",
        "{% set n.l = (n.l + n.l)|list %}",
        "{% set n.l = n.l|chain(n.l) %}",
        "{% set n.l = n.l|batch(100000, 'x')|first %}{% set n.l = n.l * 9 %}",
        "{% set n.l = n.l[::-1] + n.l[:] %}",
        "{% set n.l = (n.l, n.l) %}",
        "{% set n.l = {'a': n.l, 'b': n.l} %}",
        "{% set n.l = [n.l, n.l] %}",
        "{% set n.l = dict(a=n.l, b=n.l) %}",
    ] {
        let source = format!("{fill}{body}{{% endfor %}}{{{{ n.l|length }}}}");
        refuses(body, &source, "more than");
    }
    let output = "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}";
    refuses(output, output, "makes more than 64 MiB");
    let text = format!("{{% for i in range(100000) %}}{}{{% endfor %}}", "raw text ".repeat(200));
    refuses("raw text", &text, "makes more than 64 MiB");
    let doubling =
        "{% macro f(x, n) %}{% if n %}{{ f(x ~ x, n - 1) }}{% endif %}{% endmacro %}{{ f('ab', 60) }}";
    refuses(doubling, doubling, "more than 8 MiB");
    for source in ["{{ '%99999d'|format(1) }}", "{{ '{:>99999}'.format(1) }}", "{{ '%*d'|format(99999, 1) }}"]
    {
        refuses(source, source, "widths in a format");
    }
    refuses("a width", "{{ 'a\nb'|indent(1000000000) }}", "width or count");
    refuses("a count", "{{ [1]|batch(1000000000, 2) }}", "width or count");
    refuses("a named count", "{{ 'a'|indent(width=1000000000) }}", "width or count");
}

#[test]
fn many_lines_are_read() {
    let _turn = turn();
    assert_eq!(render(&"\n".repeat(200_000)).unwrap().len(), 199_999);
    let error = render(&("\n".repeat(100_000) + "{{ ( }}")).unwrap_err().to_string();
    assert!(error.contains("is not valid"), "{error}");
}

#[test]
fn values_that_hold_themselves_or_nest_are_refused() {
    let _turn = turn();
    let itself = "stores a namespace or a loop within another value";
    for source in [
        "{% set n = namespace() %}{% set n.x = n %}{{ n }}",
        "{% set n = namespace() %}{% set n.x = n %}{{ n|tojson }}",
        "{% set n = namespace() %}{% set n.x = [[n]] %}{{ n == n }}",
        "{% set n = namespace() %}{% set m = namespace(x=n) %}{% set n.x = m %}{{ n|string }}",
        "{% set n = namespace() %}{% set m = {'n': n} %}{% set n.x = m %}{{ n|pprint }}",
        "{% for i in [1, 2] %}{% set l = [loop] %}{% endfor %}",
    ] {
        refuses(source, source, itself);
    }
    for body in ["[n.x]", "{'a': n.x}", "(n.x,)", "dict(a=n.x)", "[n.x]|list", "{'a': n.x}|items"] {
        let source = format!(
            "{{% set n = namespace(x=1) %}}{{% for i in range(50000) %}}{{% set n.x = {body} %}}{{% endfor %}}{{{{ n.x }}}}"
        );
        refuses(body, &source, "nests values more than 64 deep");
    }
}

#[test]
fn endless_work_ends() {
    let _turn = turn();
    let nested = "{% for i in range(9000) %}{% for j in range(9000) %}{% endfor %}{% endfor %}";
    refuses(nested, nested, "more than");
    let steps = "{% set r = range(9000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}";
    refuses(steps, steps, "takes more than 20 million steps");
    let calls = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    refuses(calls, calls, "recursion limit");
    let blocks = "{% block a %}{{ self.a() }}{% endblock %}";
    refuses(blocks, blocks, "recursion limit");
    let big = "{% set n = namespace(x='a', r=range(50000)) %}{% for i in range(20) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    for body in [
        "{% for i in n.r %}{% if n.x == n.x ~ 'a' %}{% endif %}{% endfor %}",
        "{% for i in n.r %}{% if 'b' in n.x %}{% endif %}{% endfor %}",
        "{% for i in n.r %}{% if i in n.r %}{% endif %}{% endfor %}",
        "{% for i in n.r %}{% if n.x.startswith('b') or n.x.find('b') > 1 %}{% endif %}{% endfor %}",
        "{{ n.r|select('in', n.x)|list }}",
        "{% for i in n.r %}{% if n.r|sort == 1 %}{% endif %}{% endfor %}",
        "{{ n.x.strip(n.x ~ 'b') }}",
        "{% set s = [{}] * 1000 %}{% for i in range(20) %}{{ s|sort(attribute=n.x|replace('a', 'a,')) }}{% endfor %}",
        "{% for i in n.r %}{% for j in n.r %}{% macro f() %}{{ i + j }}{% endmacro %}{% endfor %}{% endfor %}",
        "{% for i in n.r %}{% if n.x|length + n.x|length == i %}{% endif %}{% endfor %}",
        "{% for i in n.r %}{% if n.x[1000000] == n.x[1:2] %}{% endif %}{% endfor %}",
        "{% set m = n.r|batch(1) %}{% for i in n.r %}{% for j in m %}{% break %}{% endfor %}{% endfor %}",
    ] {
        refuses(body, &format!("{big}{body}"), "more than");
    }
}

#[test]
fn threads_have_a_budget_each() {
    let _turn = turn();
    let half = "{% for i in range(3000) %}{% set x = 'x' * 10000 %}{% endfor %}fine";
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| render(half).unwrap())).collect();
        assert!(all.into_iter().all(|one| one.join().unwrap() == "fine"));
    });
    // On a thread that refused one, the next has all of its budget.
    assert!(render("{% set x = namespace() %}{% set x.x = x %}").is_err());
    assert_eq!(render(half).unwrap(), "fine");
}

#[test]
fn long_chats_are_rendered() {
    let _turn = turn();
    let source = "{{ bos_token }}{% set ns = namespace(last=-1, seen=[]) %}{% for m in messages[::-1] %}\
        {% if m.role == 'user' and ns.last < 0 %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
        {% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('Roles must alternate') }}{% endif %}\
        {% set content = message.content.split('</think>')[-1].lstrip('\\n') if 'think' in message.content else message.content %}\
        {{ '<|' + message['role'] + '|>\\n' + content | trim + '<|end|>' ~ '\\n' }}\
        {% if loop.last or loop.index0 == messages|length - 1 %}{% endif %}{% endfor %}";
    let template = ChatTemplate::new(source, &SpecialTokens::default()).unwrap();
    let words = "word ".repeat(200);
    let messages: Vec<Message> = (0..2000)
        .map(|i| Message::new(["user", "assistant"][i % 2], format!("{i} <think></think>{words}")))
        .collect();
    let text = template.render(&Chat::new(&messages).unwrap()).unwrap();
    assert!(text.len() > 2_000_000 && text.ends_with("word<|end|>\n"), "{}", text.len());
    let error = template
        .render(&Chat::new(&[Message::new("user", "a".repeat(9 << 20))]).unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("a chat may have"), "{error}");
}
