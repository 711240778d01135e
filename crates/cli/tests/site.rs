//! Sites of `tapml compile --out`: what a browser writes by a site is what `cpu` writes, whatever happens meanwhile. A real headless
//! Chromium on its software adapter runs them, and Dawn under Node.
#![allow(clippy::unwrap_used)]

mod common;

use common::site::{
    Files, Oddities, compile, enter, expect_same, generate_on_cpu, of_any_device, read_json, run_deno,
    run_node, with_template,
};
use common::{draft, stderr, tapml};
use serde_json::{Value, json as value};
use tapml_testing::Browser;

#[test]
fn a_site_is_whole_and_says_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &[]);
    let manifest: Value = serde_json::from_slice(&std::fs::read(site.join("site.json")).unwrap()).unwrap();
    // The rows are those of the lowered graph. A site computes the logits of the last row alone, as `generate` does.
    let target = "emulator?profile=mobile";
    let inspect = ["inspect", &draft(), "--lowered", "--target", target];
    let lowered = tapml(folder.path()).args(inspect).assert().success().get_output().stdout.clone();
    let lowered = String::from_utf8(lowered).unwrap();
    // One for each sort of device: those with f16 and subgroups, with either, with neither.
    let sorts = manifest["programs"].as_array().unwrap().iter();
    let sorts: Vec<Value> = sorts.map(|p| value!([p["activation"], p["f16"], p["subgroups"]])).collect();
    let wide = value!([32, 128]);
    let expected =
        value!([["f16", true, wide], ["f16", true, null], ["f32", false, wide], ["f32", false, null]]);
    assert_eq!(value!(sorts), expected);
    let rows = |at: usize| manifest["programs"][at]["rows"].to_string();
    assert!(rows(2).contains("linear/gemv") && !rows(3).contains("linear/gemv"), "{manifest}");
    let program = of_any_device(&manifest);
    for row in program["rows"].as_array().unwrap() {
        assert!(row == "last_row/portable" || lowered.contains(row.as_str().unwrap()), "{row}: {lowered}");
    }
    let programs: Vec<&Value> = report["programs"].as_array().unwrap().iter().collect();
    assert_eq!(manifest["programs"], value!(programs));
    // Every weight that a program binds is in the shards, at its place.
    let shards = manifest["weights"]["shards"].as_array().unwrap().iter();
    let all: Vec<u8> =
        shards.flat_map(|s| std::fs::read(site.join(s["file"].as_str().unwrap())).unwrap()).collect();
    assert_eq!(manifest["weights"]["bytes"], all.len());
    let tensors = manifest["weights"]["tensors"].as_array().unwrap();
    let end = tensors.iter().map(|t| t["at"].as_u64().unwrap() + t["len"].as_u64().unwrap()).max();
    assert!(end.unwrap().next_multiple_of(4) == all.len() as u64 && !tensors.is_empty());

    // What is there is not lost by a mistake, and nothing is written of what cannot be.
    let again = ["compile", &draft(), "--target", "webgpu", "--out", "site"];
    assert!(stderr(tapml(folder.path()).args(again), 2).contains("exists already"));
    let cuda = ["compile", &draft(), "--target", "cuda", "--out", "other"];
    assert!(stderr(tapml(folder.path()).args(cuda), 2).contains("targets: webgpu, mobile-webgpu"));
    let nothing = ["compile", "no-such-model", "--target", "webgpu", "--out", "nothing"];
    assert!(stderr(tapml(folder.path()).args(nothing), 2).contains("no such file or folder"));
    assert!(!folder.path().join("nothing").exists());
    assert!(!folder.path().join("other").exists());
}

#[test]
fn a_chat_is_what_the_template_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = with_template(folder.path());
    let (site, _) = compile(folder.path(), &model, &["--quantize", "q4", "--no-suite"]);
    let files = Files::serve(&site, Oddities::default());
    let message = value!({"role": "user", "content": "  Tell me of the old man. "});
    let steps = value!([{"load": files.url}, {"write": {"messages": [message], "max_tokens": 16}}]);
    let Some(posted) = run_node(&files, &site, &steps) else { return };
    let more = ["--max-tokens", "16", "--quantize", "q4"];
    expect_same(&posted[1], &generate_on_cpu(folder.path(), &model, "  Tell me of the old man. ", &more));
    assert_eq!(posted[0]["facts"]["chat"], true);
    assert_eq!(
        posted[0]["plan"]["memory"],
        of_any_device(&read_json(&site.join("site.json")))["memory"]
            .as_object()
            .unwrap()
            .values()
            .map(|v| v.as_u64().unwrap())
            .sum::<u64>()
    );
}

#[test]
fn penalties_and_bias_choose_as_the_engine_does() {
    let folder = tempfile::tempdir().unwrap();
    let (site, _) = compile(folder.path(), &draft(), &["--no-suite"]);
    let files = Files::serve(&site, Oddities::default());
    let wish = value!({"prompt": "Once upon a time", "max_tokens": 12, "repetition_penalty": 1.3});
    let refused = value!({"prompt": "Once", "tools": []});
    let steps = value!([{"load": files.url}, {"write": wish}, {"write": refused}]);
    let Some(posted) = run_node(&files, &site, &steps) else { return };
    let more = ["--max-tokens", "12", "--repetition-penalty", "1.3"];
    expect_same(&posted[1], &generate_on_cpu(folder.path(), &draft(), "Once upon a time", &more));
    assert!(posted[2]["error"].as_str().unwrap().contains("`tools` is not taken here a site calls no tools"));
    // What forces a form on answers is loaded when one is asked for.
    assert_eq!((files.asked_for("/form.wasm"), files.asked_for("/vocabulary.bin")), (0, 0));
}

#[test]
fn another_webgpu_takes_the_program_in_f16_and_writes_what_cpu_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &[]);
    let files = Files::serve(&site, Oddities::default());
    let wish = value!({"prompt": "Once upon a time", "max_tokens": 12});
    let steps =
        value!([{"load": files.url}, {"write": wish}, {"check": true}, {"lose": true}, {"write": wish}]);
    let Some(posted) = run_deno(&files, &site, &steps) else { return };
    let program = &report["programs"][1];
    assert_eq!((&posted[0]["facts"]["rows"], &program["activation"]), (&program["rows"], &value!("f16")));
    let more = ["--max-tokens", "12", "--activation", "f16"];
    let expected = generate_on_cpu(folder.path(), &draft(), "Once upon a time", &more);
    expect_same(&posted[1], &expected);
    let checked = &posted[2]["report"];
    assert_eq!(
        (&checked["failed"], &checked["cases"]),
        (&value!(0), &program["suite"]["count"]),
        "{checked}"
    );
    expect_same(&posted[3], &expected);
    assert_eq!(posted[3]["reopened"], 1);
}

#[test]
fn a_browser_writes_what_cpu_writes_also_after_its_gpu_process_was_killed() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &["--no-suite"]);
    let files = Files::serve(&site, Oddities { cuts: true, ..Oddities::default() });
    let wish = |count: u32| value!({"prompt": "Once upon a time", "max_tokens": count});
    let steps = value!([{"load": "./"}, {"write": wish(8)}, {"next": true}, {"write": wish(24)}]);
    let browser = files.open(&steps);
    let loaded = files.report();
    assert_eq!(loaded["facts"]["rows"], of_any_device(&report)["rows"], "{loaded}");
    assert_eq!(loaded["facts"]["kept"], "kept in files of this origin");
    assert_eq!(loaded["plan"]["download"], report["weight_bytes"]);
    // The first download of the shard was cut off, and gone on with.
    assert_eq!((files.weights().len(), files.weight_bytes()), (2, report["weight_bytes"].as_u64().unwrap()));

    expect_same(
        &files.report(),
        &generate_on_cpu(folder.path(), &draft(), "Once upon a time", &["--max-tokens", "8"]),
    );
    assert!(browser.kill_gpu_process());
    files.go.send(()).unwrap();
    let written = files.report();
    expect_same(
        &written,
        &generate_on_cpu(folder.path(), &draft(), "Once upon a time", &["--max-tokens", "24"]),
    );
    assert_eq!(written["reopened"], 1, "{written}");
    assert_eq!(files.weights().len(), 2, "the weights were kept");
}

#[test]
fn a_second_visit_and_a_second_tab_load_no_weights() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &["--no-suite"]);
    let files = Files::serve(&site, Oddities::default());
    let wish = value!({"prompt": "Once upon a time", "max_tokens": 4});
    let visit = value!([{"load": "./"}, {"write": wish}]);
    let steps = value!([{"load": "./"}, {"write": wish}, {"reload": true}, {"load": "./"}, {"write": wish}, {"frames": [visit, visit]}]);
    let _browser = files.open(&steps);
    let expected = generate_on_cpu(folder.path(), &draft(), "Once upon a time", &["--max-tokens", "4"]);
    files.report();
    expect_same(&files.report(), &expected);
    let all = report["weight_bytes"].as_u64().unwrap();
    assert_eq!(files.weight_bytes(), all);
    let (again, written) = (files.report(), files.report());
    expect_same(&written, &expected);
    assert_eq!(again["plan"]["download"], 0);
    // Two more at a time, each in a document of its own.
    for _ in 0..4 {
        let posted = files.report();
        if posted.get("ids").is_some() {
            expect_same(&posted, &expected);
        }
    }
    assert_eq!(files.weight_bytes(), all, "the weights were kept");
    println!(
        "second visit: loaded after {} s, first token after {} s more",
        again["seconds"], written["first"]
    );
}

#[test]
fn two_tabs_may_load_a_site_at_the_same_time() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, _) = compile(folder.path(), &draft(), &["--no-suite"]);
    let files = Files::serve(&site, Oddities::default());
    let visit = value!([{"load": "./"}, {"write": {"prompt": "The old man", "max_tokens": 4}}]);
    let _browser = files.open(&value!([{"frames": [visit, visit]}]));
    let expected = generate_on_cpu(folder.path(), &draft(), "The old man", &["--max-tokens", "4"]);
    for _ in 0..4 {
        let posted = files.report();
        match posted.get("ids") {
            Some(_) => expect_same(&posted, &expected),
            None => assert_eq!(posted["facts"]["kept"], "kept in files of this origin"),
        }
    }
}

/// Bytes of a shard here.
const SHARD: usize = 1 << 19;

#[test]
fn a_tab_that_is_closed_while_it_loads_goes_on_at_the_shard() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &["--no-suite"]);
    // The small model has one shard: it is cut into several.
    let manifest_file = site.join("site.json");
    let mut manifest = read_json(&manifest_file);
    let bytes = std::fs::read(site.join("weights/000.bin")).unwrap();
    let shards: Vec<Value> = bytes
        .chunks(SHARD)
        .enumerate()
        .map(|(at, chunk)| {
            let file = format!("weights/{at:03}.bin");
            std::fs::write(site.join(&file), chunk).unwrap();
            let mut entry = value!({"file": file});
            enter(&site, &mut entry);
            entry
        })
        .collect();
    let count = shards.len();
    manifest["weights"]["shards"] = value!(shards);
    std::fs::write(&manifest_file, manifest.to_string()).unwrap();

    let files = Files::serve(&site, Oddities { stalls: Some("/weights/002.bin"), ..Oddities::default() });
    let half = 2 * SHARD + SHARD / 2;
    let steps = value!([{"abandon": "./", "at": half}, {"load": "./"}, {"write": {"prompt": "The old man", "max_tokens": 4}}]);
    let _browser = files.open(&steps);
    let loaded = files.report();
    assert_eq!(
        loaded["plan"]["download"],
        report["weight_bytes"].as_u64().unwrap() - 2 * SHARD as u64,
        "{loaded}"
    );
    let expected = generate_on_cpu(folder.path(), &draft(), "The old man", &["--max-tokens", "4"]);
    expect_same(&files.report(), &expected);
    let asked = files.weights();
    assert_eq!(asked[..4], ["000.bin", "001.bin", "002.bin", "002.bin"]);
    assert_eq!(asked.len(), count + 1);
}

#[test]
fn without_room_the_model_runs_from_memory() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, report) = compile(folder.path(), &draft(), &["--no-suite"]);
    let prelude =
        "if (navigator.storage) navigator.storage.estimate = async () => ({ quota: 1e6, usage: 0 });";
    let files = Files::serve(&site, Oddities { prelude, ..Oddities::default() });
    let visit = value!([{"load": "./"}, {"write": {"prompt": "The old man", "max_tokens": 4}}]);
    let steps = [
        visit.as_array().unwrap().clone(),
        vec![value!({"reload": true})],
        visit.as_array().unwrap().clone(),
    ];
    let _browser = files.open(&value!(steps.concat()));
    let expected = generate_on_cpu(folder.path(), &draft(), "The old man", &["--max-tokens", "4"]);
    for visits in 1..=2 {
        let loaded = files.report();
        let why = "the browser grants 1.0 MB, the weights take";
        assert!(loaded["plan"]["notKept"].as_str().unwrap().starts_with(why), "{loaded}");
        expect_same(&files.report(), &expected);
        assert_eq!(files.weight_bytes(), visits * report["weight_bytes"].as_u64().unwrap());
    }
}

/// The limits that every WebGPU implementation grants, and no features.
const LEAST: &str = "const of = globalThis.GPUAdapter?.prototype; const open = of?.requestDevice; \
                     if (of) of.requestDevice = function ({ label }) { return open.call(this, { label }); };";

#[test]
fn the_least_limits_are_enough_and_less_is_told_before_the_download() {
    if !Browser::is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, _) = compile(folder.path(), &draft(), &["--no-suite"]);
    let files = Files::serve(&site, Oddities { prelude: LEAST, ..Oddities::default() });
    let steps = value!([{"load": "./"}, {"write": {"prompt": "The old man", "max_tokens": 8}}]);
    let browser = files.open(&steps);
    let expected = generate_on_cpu(folder.path(), &draft(), "The old man", &["--max-tokens", "8"]);
    files.report();
    expect_same(&files.report(), &expected);
    drop(browser);

    let prelude = "const of = globalThis.GPUSupportedLimits?.prototype; \
                   if (of) Object.defineProperty(of, 'maxBufferSize', { get: () => 400000 });";
    let files = Files::serve(&site, Oddities { prelude, ..Oddities::default() });
    let _browser = files.open(&steps);
    let failed = files.report_or_error()["error"].as_str().unwrap().to_string();
    assert!(failed.contains("binds at most 400000") && failed.contains("--quantize q4"), "{failed}");
    assert_eq!(files.weights().len(), 0);
}
