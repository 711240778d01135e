//! Steps with rows of several texts, against runs of one text at a time: the same bits, wherever the pages lie.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod models;

use models::{load, load_distinct};
use std::path::{Path, PathBuf};
use tapml_engine::{
    Batch, BatchLimits, BatchRunner, LogitDetail, NO_SLOT, PagedRunner, PartSums, SequenceRows, StepLogits,
    WantedLogits,
};
use tapml_exec::{CpuPlatform, Interface, Platform, Session};
use tapml_graph::{Model, Result};
use tapml_import::quantize::quantize;

const LIMITS: BatchLimits = BatchLimits {
    page: 8,
    pages: 40,
    rows: 48,
    sequences: 5,
    context: 48,
    vocab: 0,
    states: 11,
    length_limit: None,
    window: None,
};

/// The bundled models, those of `TAPML_MODELS` and the small checkpoints of all architectures, but encoders.
fn models() -> Vec<(PathBuf, Model)> {
    let extra = tapml_testing::extra_models().into_iter().flat_map(|folder| folder.read_dir().unwrap());
    let mut folders: Vec<PathBuf> = extra.map(|entry| entry.unwrap().path()).collect();
    folders.extend(tapml_testing::models());
    folders.sort();
    folders.extend(tapml_testing::goldens());
    let mut models = load_distinct(folders);
    for scheme in ["q4", "q8"] {
        let folder = tapml_testing::root().join("models/llama");
        let packed = quantize(&load(&folder), &scheme.parse().unwrap()).unwrap().0;
        models.push((folder.join(scheme), packed));
    }
    assert!(models.len() > 40, "{}", models.len());
    models
}

/// A text of ids that no other text has.
fn ids(seed: u32, count: usize, vocab: u32) -> Vec<u32> {
    (0..count as u32).map(|i| (seed * 7919 + i * 104_729 + i * i * 31) % vocab).collect()
}

/// Ids of the model are below this, and below 500.
fn vocab(model: &Model) -> u32 {
    Interface::from_graph(model.graph()).unwrap().vocab().unwrap_or(500).min(500) as u32
}

/// Logits of every position, run alone in a session.
fn run_alone(platform: &mut dyn Platform, model: &Model, text: &[u32]) -> Vec<Vec<f32>> {
    let mut session = Session::new(platform, model, LIMITS.context).unwrap();
    text.iter().map(|&id| session.forward(&[id]).unwrap().to_f32().into_owned()).collect()
}

/// Feeds texts in pieces of these lengths, all texts in each step, and gives the logits of every position.
fn run_together(
    runner: &mut PagedRunner,
    texts: &[Vec<u32>],
    pieces: &[usize],
    wanted: WantedLogits,
) -> Result<Vec<Vec<Vec<f32>>>> {
    // Pages are dealt out in turn and from the end, so that no text's pages lie one behind the other.
    let pages =
        |text: usize| (0..).map(move |block| (LIMITS.pages - 1 - (block * texts.len() + text)) as u32);
    let mut done = vec![0; texts.len()];
    let mut found = vec![Vec::new(); texts.len()];
    let mut turn = 0;
    while texts.iter().zip(&done).any(|(text, &done)| done < text.len()) {
        let mut batch = Batch::default();
        let mut which = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let count = pieces[(turn + index) % pieces.len()].min(text.len() - done[index]);
            if count == 0 {
                continue;
            }
            let (start, end) = (done[index], done[index] + count);
            let pages = pages(index).take(end.div_ceil(LIMITS.page)).collect();
            // States go to one of two slots in turn, and those of the first step come from none.
            let slot = |turn: usize| (2 * index + turn % 2) as u32;
            let states = [if start == 0 { NO_SLOT } else { slot(turn) }, slot(turn + 1)];
            let (ids, detail) = (text[start..end].to_vec(), LogitDetail::Full);
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
            done[index] = end;
        }
        let vocab = runner.limits().vocab;
        for (index, logits) in which.into_iter().zip(runner.step(&batch)?) {
            found[index].extend(full(&logits).chunks(vocab).map(<[f32]>::to_vec));
        }
        turn += 1;
    }
    Ok(found)
}

/// The numbers of rows that were asked for in full.
fn full(logits: &StepLogits) -> &[f32] {
    let StepLogits::Full(logits) = logits else { panic!("all logits were asked for") };
    logits
}

/// A text of one token, whose page is that number less one.
fn row_of(id: u32) -> SequenceRows {
    let (wanted, detail) = (WantedLogits::Last, LogitDetail::Full);
    let states = [NO_SLOT; 2];
    SequenceRows {
        ids: vec![id],
        start: 0,
        pages: vec![id - 1],
        wanted,
        detail,
        states,
        prompt: 1,
        images: vec![],
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|v| v.to_bits()).collect()).collect()
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_on_cpu() {
    for (folder, model) in models() {
        let mut platform = CpuPlatform::new();
        let vocab = vocab(&model);
        let texts: Vec<Vec<u32>> =
            [37, 5, 23, 1, 18].iter().zip(1..).map(|(&count, seed)| ids(seed, count, vocab)).collect();
        let expected: Vec<_> =
            texts.iter().map(|text| bits(&run_alone(&mut platform, &model, text))).collect();
        let mut runner = PagedRunner::new(&mut platform, &model, LIMITS)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for pieces in [&[1][..], &[9, 1, 4], &[3, 2]] {
            let found = run_together(&mut runner, &texts, pieces, WantedLogits::All).unwrap();
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                assert!(
                    *expected == bits(&found),
                    "{}: text {index} in pieces of {pieces:?}",
                    folder.display()
                );
            }
        }
        let last = run_together(&mut runner, &texts, &[9, 1, 4], WantedLogits::Last).unwrap();
        assert_eq!(
            last[0].last().map(|row| bits(std::slice::from_ref(row))[0].clone()).as_ref(),
            expected[0].last()
        );
    }
}

#[test]
fn a_step_beyond_the_limits_is_refused_before_anything_runs() {
    let model = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama"));
    let mut platform = CpuPlatform::new();
    let mut runner = PagedRunner::new(&mut platform, &model, LIMITS).unwrap();
    let row = row_of(1);
    for (bad, told) in [
        (SequenceRows { pages: vec![40], ..row.clone() }, "pages below 40"),
        (SequenceRows { pages: vec![0, 1], ..row.clone() }, "in 2 pages"),
        (SequenceRows { ids: vec![], ..row.clone() }, "0 rows"),
        (SequenceRows { ids: vec![4096], ..row.clone() }, "outside the vocabulary"),
        (SequenceRows { start: 48, pages: vec![0; 7], ..row.clone() }, "from position 48"),
    ] {
        let error = runner.step(&Batch { sequences: vec![bad] }).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let six = Batch { sequences: vec![row.clone(); 6] };
    assert!(runner.step(&six).unwrap_err().to_string().contains("5 sequences"));
    // Nothing has run, so that no reset is needed.
    let given = runner.step(&Batch { sequences: vec![row] }).unwrap();
    assert_eq!(full(&given[0]).len(), 4096);
}

#[test]
fn a_step_gives_the_most_likely_tokens_of_some_texts_and_all_logits_of_others() {
    let model = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/llama"));
    let mut runner = PagedRunner::new(&mut CpuPlatform::new(), &model, LIMITS).unwrap();
    let mut batch = Batch { sequences: (1..=5).map(row_of).collect() };
    let all = runner.step(&batch).unwrap();
    runner.reset().unwrap();
    // Rows that are read in full lie beside each other and apart; one text wants more tokens than are found.
    let sums = LogitDetail::Sums { temperature: 0.75 };
    let details = [LogitDetail::Full, LogitDetail::Full, LogitDetail::Top(64), LogitDetail::Top(65), sums];
    batch.sequences.iter_mut().zip(details).for_each(|(row, detail)| row.detail = detail);
    for (at, (found, expected)) in runner.step(&batch).unwrap().iter().zip(&all).enumerate() {
        let StepLogits::Top(top) = found else {
            assert!([0, 1, 3].contains(&at) && found == expected, "text {at}");
            continue;
        };
        assert!([2, 4].contains(&at) && (top.count, top.tokens.len()) == (64, 64), "text {at}");
        let logits = full(expected);
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        assert_eq!(top.tokens, order[..64]);
        assert!(top.tokens.iter().zip(&top.logits).all(|(&id, &logit)| logits[id as usize] == logit));
        assert_eq!(top.sums.is_some(), at == 4);
        if let Some(PartSums { part, maxima, sums }) = &top.sums {
            assert_eq!((*part, maxima.len(), sums.len()), (1024, 4, 4));
            for ((part, most), sum) in logits.chunks(*part).zip(maxima).zip(sums) {
                let exact: f64 = part.iter().map(|logit| (f64::from(logit - most) / 0.75).exp()).sum();
                assert!(
                    part.contains(most) && (f64::from(*sum) / exact - 1.0).abs() < 3e-6,
                    "{sum}, {exact}"
                );
            }
        }
    }
    // What was not asked for can be read behind the step.
    for (at, expected) in all.iter().enumerate() {
        assert_eq!(runner.read_logits(at, 0, 1000..3000).unwrap(), full(expected)[1000..3000]);
    }
    for (sequence, row, columns) in [(5, 0, 0..1), (0, 1, 0..1), (0, 0, 4000..4097)] {
        assert!(runner.read_logits(sequence, row, columns).is_err());
    }
}
