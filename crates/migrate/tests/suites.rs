//! Suites: what is carved is what is read, and nothing broken or foreign is taken for a suite.
#![allow(clippy::unwrap_used)]

mod common;

use common::{decode, identity, prompts, toy};
use proptest::prelude::*;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use tapml_exec::CpuPlatform;
use tapml_graph::{ErrorKind, Model, Origin, Result};
use tapml_migrate::suite::{self, Suite, SuiteWriter};
use tapml_migrate::{CarveOptions, Carved, Quiet, Stop, carve};

const STEPS: u32 = 3;

fn carve_toy(model: &Model, out: &Path, overwrite: bool, self_contained: bool) -> Result<Carved> {
    let options = CarveOptions { out, overwrite, steps: STEPS, self_contained, context: 64, decode: &decode };
    carve(&mut CpuPlatform::new(), model, identity(), &prompts(), &options, &Quiet, &Stop::new())
}

fn folder_bytes(path: &Path) -> u64 {
    fs::read_dir(path).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn carved_calls_evaluate_to_their_recorded_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(1);
    let out = dir.path().join("suite");
    let carved = carve_toy(&model, &out, false, false).unwrap();
    let suite = Suite::open(&out).unwrap();
    assert_eq!(suite.manifest(), &carved.manifest);
    let frames = prompts().len() * (STEPS as usize + 1);
    assert_eq!(suite.frames().len(), frames);
    assert_eq!(suite.cases().count(), frames * model.graph().nodes().len());
    assert_eq!(suite.manifest().prompts[0].generated.len(), STEPS as usize + 1);
    let replay = suite.model(Some(&model)).unwrap();
    for case in suite.cases() {
        let (call, expected) = suite.call(case, &replay).unwrap();
        call.check().unwrap();
        let dtypes: Vec<_> = call.output_types.iter().map(|t| t.dtype).collect();
        let found = tapml_reference::run_node(&call.op, &call.symbols, &call.inputs, &dtypes).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.bytes()[..], expected.bytes()[..], "{}", suite.case_id(case));
        }
        assert_eq!(suite.find_case(&suite.case_id(case)).unwrap(), case);
    }
    let error = suite.find_case("p9.s0.head").unwrap_err();
    assert!(error.hint().unwrap().contains("p0.s0.embed"), "{error}");
}

#[test]
fn tensors_are_stored_once_and_caches_by_their_new_rows() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let manifest = carve_toy(&toy(1), &out, false, false).unwrap().manifest;
    let (unique, recorded) = (manifest.totals.tensor_bytes, manifest.totals.recorded_bytes);
    assert!(unique < recorded, "the appended rows equal the projections: {unique} of {recorded}");
    assert_eq!(fs::metadata(out.join(suite::INDEX)).unwrap().len(), manifest.totals.tensors * 48);
    let tokens: usize = prompts().iter().map(|p| p.ids.len() + STEPS as usize).sum();
    // What the nodes give per token, in f32: two layers and the head; the caches' rows are outputs of other nodes.
    let layer = 24 + 24 + 12 + 12 + 24 + 12 + 24 + 24 + 24 + 4 * 40 + 24 + 24;
    let most = tokens * (24 + 6 + 2 * layer + 50 + 1) * 4;
    assert!(unique <= most as u64, "{unique} of at most {most}");
}

#[test]
fn a_self_contained_suite_needs_no_checkpoint_and_another_one_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let model = toy(1);
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    carve_toy(&model, &with, false, true).unwrap();
    carve_toy(&model, &without, false, false).unwrap();
    let own = Suite::open(&with).unwrap().model(None).unwrap();
    for (_, weight) in model.graph().weights() {
        assert_eq!(
            own.weight(&weight.name).unwrap().bytes()[..],
            model.weight(&weight.name).unwrap().bytes()[..]
        );
    }
    let error = Suite::open(&without).unwrap().model(None).unwrap_err();
    assert!(error.to_string().contains("is not in the suite"), "{error}");
    assert!(error.hint().unwrap().contains("models/toy"), "{error}");
}

#[test]
fn a_suite_of_another_model_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let (model, other) = (toy(1), toy(2));
    carve_toy(&model, &out, false, false).unwrap();
    let suite = Suite::open(&out).unwrap();
    let error = suite.model(Some(&other)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("`toy` at `models/toy`"), "{error}");
    assert!(error.to_string().contains("has other values"), "{error}");
    assert_ne!(error.detail("expected"), error.detail("found"));
}

#[test]
fn an_existing_suite_is_kept_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    carve_toy(&toy(1), &out, false, false).unwrap();
    let before = Suite::open(&out).unwrap().hash();
    assert!(carve_toy(&toy(2), &out, false, false).unwrap_err().to_string().contains("exists already"));
    assert_eq!(Suite::open(&out).unwrap().hash(), before);
    carve_toy(&toy(2), &out, true, false).unwrap();
    assert_ne!(Suite::open(&out).unwrap().hash(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no leftovers");
}

#[test]
fn bad_prompts_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let model = toy(1);
    let run = |prompt: Vec<u32>, context| {
        let options = CarveOptions {
            out: &out,
            overwrite: false,
            steps: 3,
            self_contained: false,
            context,
            decode: &decode,
        };
        let prompts =
            [tapml_migrate::PromptInput { text: String::new(), ids: prompt, image: None, most_steps: None }];
        carve(&mut CpuPlatform::new(), &model, identity(), &prompts, &options, &Quiet, &Stop::new())
            .unwrap_err()
    };
    let error = run(vec![1; 10], 12);
    assert!(error.to_string().contains("10 tokens and 3 steps follow, the model's context is 12"), "{error}");
    assert!(error.hint().unwrap().contains("by 1 tokens"), "{error}");
    assert!(run(vec![1, 99], 0).to_string().contains("outside the vocabulary"));
    assert!(run(vec![], 0).to_string().contains("no token ids"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_carve_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let options = CarveOptions {
        out: &out,
        overwrite: false,
        steps: 3,
        self_contained: false,
        context: 0,
        decode: &decode,
    };
    let stop = Stop::new();
    stop.request();
    let error = carve(&mut CpuPlatform::new(), &toy(1), identity(), &prompts(), &options, &Quiet, &stop);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A file on a disk with so many bytes left.
struct Full(u64);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl suite::SuiteOutput for Full {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_nothing_and_says_how_much_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let model = toy(1);
    let (source, settings) =
        (suite::SuiteSource::default(), suite::Settings { steps: 0, self_contained: true });
    let writer = SuiteWriter::create_with(&out, false, &model, identity(), source, settings, &|_| {
        Box::new(Full(1000))
    });
    let error = match writer {
        Err(error) => error,
        Ok(writer) => writer.finish(Vec::new()).unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(error.detail("needed").is_some() && error.detail("free").is_some());
    assert!(error.hint().unwrap().contains("nothing was left behind"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_really_full_disk_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&disk)
        .output();
    if !mount.as_ref().is_ok_and(|o| o.status.success()) {
        return tapml_testing::skip("tmpfs", "a small file system cannot be mounted here");
    }
    let result = carve_toy(&toy(1), &disk.join("suite"), false, true);
    let left = fs::read_dir(&disk).unwrap().count();
    let unmounted = std::process::Command::new("umount").arg(&disk).status();
    assert!(unmounted.is_ok_and(|s| s.success()));
    let error = result.unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    let number = |name| error.detail(name).unwrap().parse::<u64>().unwrap();
    assert!(number("free") <= 64 << 10 && number("needed") > number("free"), "{error}");
    assert_eq!(left, 0);
}

#[test]
fn every_cut_and_flipped_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let model = toy(1);
    carve_toy(&model, &out, false, false).unwrap();
    for name in [suite::MANIFEST, suite::FRAMES, suite::INDEX, suite::TENSORS] {
        let path = out.join(name);
        let good = fs::read(&path).unwrap();
        fs::write(&path, &good[..good.len() - 1]).unwrap();
        let error = Suite::open(&out).unwrap_err();
        assert!(error.to_string().contains(name), "{name}: {error}");
        fs::remove_file(&path).unwrap();
        assert!(Suite::open(&out).is_err(), "{name} missing");
        fs::write(&path, &good).unwrap();
    }
    let path = out.join(suite::TENSORS);
    let good = fs::read(&path).unwrap();
    let suite = Suite::open(&out).unwrap();
    let embed = model.graph().find_value("embed").unwrap();
    let first = suite.value(0, embed).unwrap();
    let at = good.windows(first.bytes().len()).position(|w| w == &first.bytes()[..]).unwrap() + 5;
    let mut bad = good.clone();
    bad[at] ^= 0x10;
    fs::write(&path, &bad).unwrap();
    let suite = Suite::open(&out).unwrap();
    let error = suite.value(0, embed).unwrap_err();
    assert!(
        error.to_string().contains("tensors.bin") && error.to_string().contains("`embed` in run 0"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("carve the model again"), "{error}");
    assert!(suite.verify().is_err());
}

#[test]
fn a_manifest_that_refers_to_what_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    carve_toy(&toy(1), &out, false, false).unwrap();
    let text = fs::read_to_string(out.join(suite::MANIFEST)).unwrap();
    let mutations: [(&str, &str, &str); 6] = [
        ("\"schema\": 1", "\"schema\": 2", "format 2"),
        ("rms_norm", "rms_nrm", "does not match its hash"),
        ("\"frames\": 8", "\"frames\": 9", "counts 9 runs"),
        ("\"name\": \"embed.weight\"", "\"name\": \"embed.wait\"", "is not listed"),
        ("\"name\": \"tensors.index\"", "\"name\": \"../../etc/passwd\"", "does not list"),
        ("\"type\": {", "\"tyqe\": {", "suite.json"),
    ];
    for (from, to, expected) in mutations {
        assert!(text.contains(from), "{from}");
        fs::write(out.join(suite::MANIFEST), text.replacen(from, to, 1)).unwrap();
        let error = Suite::open(&out).unwrap_err();
        assert!(error.to_string().contains(expected), "{from}: {error}");
    }
    let error = Suite::open(dir.path()).unwrap_err();
    assert!(error.hint().unwrap().contains("tapml carve"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is written over any file, reading either fails with an error or gives what was recorded.
    #[test]
    fn mutated_suites_never_panic_and_never_lie(
        file in 0usize..4, at in 0.0f64..1.0, bytes in proptest::collection::vec(any::<u8>(), 1..9),
    ) {
        thread_local! {
            static GOOD: (tempfile::TempDir, Model) = {
                let dir = tempfile::tempdir().unwrap();
                let model = toy(3);
                carve_toy(&model, &dir.path().join("suite"), false, false).unwrap();
                (dir, model)
            };
        }
        GOOD.with(|(dir, model)| {
            let out = dir.path().join("suite");
            let path = out.join([suite::MANIFEST, suite::FRAMES, suite::INDEX, suite::TENSORS][file]);
            let good = fs::read(&path).unwrap();
            let intact = Suite::open(&out).unwrap();
            let mut bad = good.clone();
            let start = (at * good.len() as f64) as usize;
            for (slot, byte) in bad[start..].iter_mut().zip(bytes) {
                *slot = byte;
            }
            fs::write(&path, &bad).unwrap();
            if let Ok(suite) = Suite::open(&out)
                && let Ok(replay) = suite.model(Some(model))
            {
                for case in suite.cases().step_by(7) {
                    if let Ok((_, outputs)) = suite.call(case, &replay) {
                        fs::write(&path, &good).unwrap();
                        let (_, expected) = intact.call(case, &replay).unwrap();
                        fs::write(&path, &bad).unwrap();
                        for (a, b) in outputs.iter().zip(&expected) {
                            assert_eq!(a.bytes()[..], b.bytes()[..]);
                        }
                    }
                }
            }
            fs::write(&path, &good).unwrap();
        });
    }
}

#[test]
fn a_suite_costs_little_more_than_its_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("suite");
    let model = toy(1);
    let manifest = carve_toy(&model, &out, false, false).unwrap().manifest;
    // The toy's tensors are 100 bytes each, so the manifest and the index weigh more than in any real model; what is
    // bounded here is what is added per tensor and per run.
    let per_frame = 8 * model.graph().values().len() as u64;
    let fixed = fs::metadata(out.join(suite::MANIFEST)).unwrap().len();
    let extra = folder_bytes(&out) - manifest.totals.tensor_bytes - fixed;
    let most = manifest.totals.tensors * (48 + 16) + manifest.totals.frames * (200 + per_frame);
    assert!(extra <= most, "{extra} of at most {most}");
    let growing = model.graph().values().iter().filter(|v| matches!(v.origin, Origin::State(_))).count();
    assert_eq!(growing, 4);
}
