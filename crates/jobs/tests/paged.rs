//! Steps with rows of several texts on devices: a text has the same bits alone and among others, whole and in pieces.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use tapml_engine::{
    Batch, BatchLimits, BatchRunner, LogitDetail, NO_SLOT, PagedRunner, SequenceRows, StepLogits,
    WantedLogits,
};
use tapml_exec::{Interface, Overrides, PlatformSpec};
use tapml_graph::{DType, Model};
use tapml_import::quantize::quantize;
use tapml_import::{Checkpoint, ImportOptions};
use tapml_jobs::model::GraphOptions;
use tapml_jobs::serve::ServeOptions;
use tapml_migrate::{Quiet, Stop};

const LIMITS: BatchLimits = BatchLimits {
    page: 8,
    pages: 20,
    rows: 40,
    sequences: 4,
    context: 48,
    vocab: 0,
    states: 8,
    length_limit: None,
    window: None,
};
/// Enough for rows beyond a tile of the products that take the most rows at a time.
const WIDE: BatchLimits = BatchLimits { pages: 120, rows: 300, context: 232, ..LIMITS };

/// A text of ids that no other text has.
fn ids(seed: u32, count: usize, vocab: u32) -> Vec<u32> {
    (0..count as u32).map(|i| (seed * 7919 + i * 104_729 + i * i * 31) % vocab).collect()
}

/// Small checkpoints of every operator that only some architectures need: recurrences, scales of positions, rotations that
/// depend on lengths, windows, sinks, chunks, latents.
const FAMILIES: &[&str] = &[
    "rwkv5_tiny",
    "rwkv6_tiny",
    "rwkv7_tiny",
    "mamba2_tiny",
    "ministral3_tiny",
    "llama4_tiny",
    "phi3_tiny_longrope",
    "llama_tiny_dynamic",
    "gemma2_tiny",
    "gpt_oss_tiny",
    "baichuan_tiny_alibi",
    "deepseek_v2_tiny",
    "deepseek_v3_tiny",
];

/// The bits of the logits of each text's last row, its rows fed in pieces of this many, these texts in each step.
fn last_bits(runner: &mut PagedRunner, texts: &[(usize, Vec<u32>)], piece: usize) -> Vec<Vec<u32>> {
    let limits = runner.limits();
    // Each text has pages of its own, whichever other texts there are.
    let page_of = |text: usize, block: usize| (limits.pages - 1 - (block * limits.sequences + text)) as u32;
    let pages = |text: usize, count: usize| (0..count).map(|block| page_of(text, block)).collect();
    let mut last = vec![Vec::new(); texts.len()];
    for start in (0..limits.context).step_by(piece) {
        let mut batch = Batch::default();
        let mut which = Vec::new();
        for (index, (text, ids)) in texts.iter().enumerate().filter(|(_, (_, ids))| start < ids.len()) {
            let end = (start + piece).min(ids.len());
            let pages = pages(*text, end.div_ceil(limits.page));
            let wanted = if end == ids.len() { WantedLogits::Last } else { WantedLogits::Nothing };
            let slot = |step: usize| (2 * text + step % 2) as u32;
            let states = [if start == 0 { NO_SLOT } else { slot(start / piece) }, slot(start / piece + 1)];
            let (ids, detail) = (ids[start..end].to_vec(), LogitDetail::Full);
            batch.sequences.push(SequenceRows {
                ids,
                start,
                pages,
                wanted,
                states,
                prompt: 1,
                detail,
                images: vec![],
            });
            which.push(index);
        }
        if which.is_empty() {
            break;
        }
        for (index, logits) in which.into_iter().zip(runner.step(&batch).unwrap()) {
            // Steps before the last row of a text give nothing of it.
            if let StepLogits::Full(logits) = logits {
                last[index] = logits.iter().map(|value| value.to_bits()).collect();
            }
        }
    }
    last
}

/// Feeds four texts of these lengths together in pieces, and each alone, whole and row by row.
fn check_model(word: &str, model: &Model, limits: BatchLimits, lengths: [usize; 4], piece: usize) {
    let spec = PlatformSpec::parse(word).unwrap();
    let mut platform = tapml_jobs::platform::open(&spec, Overrides::default()).unwrap();
    let mut runner = PagedRunner::new(platform.as_mut(), model, limits).unwrap();
    let vocab = Interface::from_graph(model.graph()).unwrap().vocab().unwrap().min(320) as u32;
    let texts: Vec<(usize, Vec<u32>)> =
        (0..).zip(lengths).map(|(i, n)| (i, ids(i as u32 + 1, n, vocab))).collect();
    let among = last_bits(&mut runner, &texts, piece);
    for (text, among) in texts.iter().zip(&among) {
        for piece in [1, limits.rows] {
            let found = last_bits(&mut runner, std::slice::from_ref(text), piece);
            assert!(
                found[0] == *among,
                "{word}, {}: text {} in pieces of {piece}",
                model.graph().name(),
                text.0
            );
        }
    }
    assert_eq!(platform.take_findings().len(), 0);
}

fn check(word: &str) {
    let folder = tapml_testing::root().join("models/llama_draft");
    let checkpoint = Checkpoint::open_with(&folder, &ImportOptions::default()).unwrap();
    check_model(word, checkpoint.model(), LIMITS, [21, 3, 16, 9], 9);
}

/// With f16, of which GPUs have kernels of their own, packed and not. Rows of `llama` have 320 elements, an odd number of steps.
fn check_f16(word: &str) {
    let models =
        [("llama_draft", None), ("llama_draft", Some("q4")), ("llama_head64", None), ("llama", Some("q4"))];
    for (folder, scheme) in models {
        let folder = tapml_testing::model(folder);
        let options = ImportOptions { activation: DType::F16, ..ImportOptions::default() };
        let checkpoint = Checkpoint::open_with(&folder, &options).unwrap();
        let packed = scheme.map(|scheme| quantize(checkpoint.model(), &scheme.parse().unwrap()).unwrap().0);
        let model = packed.as_ref().unwrap_or(checkpoint.model());
        check_model(word, model, WIDE, [200, 3, 65, 130], 70);
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_on_an_emulated_gpu_with_all_checks() {
    check("emulator?kind=gpu&check=all");
}

#[test]
fn every_family_has_the_same_bits_alone_and_among_others_on_an_emulated_gpu_with_all_checks() {
    for name in FAMILIES {
        let folder = tapml_testing::golden(name);
        let checkpoint = Checkpoint::open_with(&folder, &ImportOptions::default()).unwrap();
        let word = "emulator?kind=gpu&check=all";
        check_model(word, checkpoint.model(), LIMITS, [21, 3, 16, 9], 9);
    }
}

#[test]
fn kernels_of_every_family_pass_the_check_before_serving() {
    for name in FAMILIES {
        let options = ServeOptions {
            model: tapml_testing::golden(name),
            target: "emulator?kind=gpu&check=all".into(),
            rows: 40,
            sequences: 4,
            ..ServeOptions::default()
        };
        let serving = options.load(&Quiet, &Stop::new()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(serving.checked.unwrap().passes(), "{name}");
    }
}

#[test]
fn sums_of_ranks_are_among_the_calls_of_the_check_before_serving() {
    let graph = GraphOptions { tensor_parallel: Some(2), ..GraphOptions::default() };
    let model = tapml_testing::model("llama_draft");
    let target = "emulator?kind=gpu&check=all".into();
    let options = ServeOptions { model, target, graph, rows: 40, sequences: 4, ..ServeOptions::default() };
    let serving = options.load(&Quiet, &Stop::new()).unwrap();
    assert!(serving.platform.device.starts_with("2 ranks of"), "{}", serving.platform.device);
    let report = serving.checked.unwrap();
    assert!(report.passes());
    for name in ["all_reduce", "all_gather", "paged_attention"] {
        let op = report.ops.iter().find(|op| op.op == name).unwrap();
        assert!(op.cases > 0 && op.passes(), "{name}");
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_on_an_emulated_phone() {
    check("emulator?profile=mobile");
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_on_vulkan() {
    match tapml_jobs::platform::devices("vulkan") {
        Ok(found) if !found.is_empty() => check("vulkan"),
        _ => tapml_testing::skip("vulkan", "no adapter"),
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_with_f16_on_cuda() {
    match tapml_jobs::platform::devices("cuda") {
        Ok(found) if !found.is_empty() => check_f16("cuda"),
        _ => tapml_testing::skip("cuda", "no device"),
    }
}
