//! Tests of the scheduler beside a store of pages that notices what should not be read.

use super::*;
use proptest::prelude::*;

const LIMITS: BatchLimits = BatchLimits {
    page: 4,
    pages: 12,
    rows: 8,
    sequences: 4,
    context: 48,
    vocab: 10,
    states: 0,
    length_limit: None,
    window: None,
};

fn scheduler(limits: BatchLimits) -> Scheduler {
    Scheduler::new(limits, SchedulerOptions { prompt_rows: limits.rows, prefix_cache: true })
}

fn new(prompt: Vec<u32>) -> NewSequence {
    NewSequence { prompt, prompt_logits: false, last_logits: true, salt: String::new(), images: Vec::new() }
}

/// The parts of a step: sequence, first position, rows.
fn parts(step: &PlannedStep) -> Vec<(SequenceId, usize, usize)> {
    step.ids.iter().zip(&step.batch.sequences).map(|(id, s)| (*id, s.start, s.ids.len())).collect()
}

/// Runs a step; every sequence that is computed to its end says `token`.
fn run(scheduler: &mut Scheduler, token: u32) -> Vec<(SequenceId, usize, usize)> {
    let step = scheduler.plan(None);
    scheduler.complete(&step);
    let ends = |id: &&SequenceId| scheduler.is_computed(**id);
    let ended: Vec<SequenceId> = step.ids.iter().filter(ends).copied().collect();
    ended.into_iter().for_each(|id| scheduler.push(id, token));
    parts(&step)
}

#[test]
fn running_sequences_come_before_chunks_of_prompts() {
    let mut scheduler = scheduler(LIMITS);
    scheduler.submit(1, new(vec![1; 3]));
    assert_eq!(run(&mut scheduler, 5), [(1, 0, 3)]);
    scheduler.submit(2, new((0..12).collect()));
    scheduler.submit(3, new(vec![9; 4]));
    assert_eq!(run(&mut scheduler, 5), [(1, 3, 1), (2, 0, 7)]);
    assert_eq!(run(&mut scheduler, 5), [(1, 4, 1), (2, 7, 5), (3, 0, 2)]);
    assert_eq!(run(&mut scheduler, 5), [(1, 5, 1), (2, 12, 1), (3, 2, 2)]);
}

#[test]
fn the_youngest_gives_its_pages_up_and_is_the_next_to_come_back() {
    let mut scheduler = scheduler(BatchLimits { pages: 4, rows: 40, ..LIMITS });
    for id in 1..=3 {
        scheduler.submit(id, new(vec![id as u32; 4]));
    }
    assert_eq!(run(&mut scheduler, 5), [(1, 0, 4), (2, 0, 4), (3, 0, 4)]);
    // The first takes the last page, the second that of the third.
    assert_eq!(run(&mut scheduler, 5), [(1, 4, 1), (2, 4, 1)]);
    assert_eq!(
        (scheduler.running_count(), scheduler.waiting_count(), scheduler.counts().preemptions),
        (2, 1, 1)
    );
    scheduler.submit(4, new(vec![4; 2]));
    assert_eq!(run(&mut scheduler, 5), [(1, 5, 1), (2, 5, 1)], "the fourth does not overtake the third");
    scheduler.remove(1);
    assert_eq!(run(&mut scheduler, 5), [(2, 6, 1), (3, 0, 5)]);
    scheduler.remove(2);
    scheduler.remove(3);
    assert_eq!(run(&mut scheduler, 5), [(4, 0, 2)]);
}

#[test]
fn a_prompt_that_another_one_computes_waits_for_its_pages() {
    let mut scheduler = scheduler(LIMITS);
    let prompt: Vec<u32> = (0..13).collect();
    scheduler.submit(1, new(prompt.clone()));
    scheduler.submit(2, new(prompt));
    assert_eq!(run(&mut scheduler, 5), [(1, 0, 8)]);
    assert_eq!(run(&mut scheduler, 5), [(1, 8, 5)]);
    assert_eq!(run(&mut scheduler, 5), [(1, 13, 1), (2, 12, 1)]);
    assert_eq!((scheduler.cached_tokens(1), scheduler.cached_tokens(2)), (0, 12));
    assert_eq!(scheduler.counts(), Counts { prefix_queries: 26, prefix_hits: 12, preemptions: 0 });
}

#[test]
fn a_prompt_whose_logits_are_wanted_is_not_taken_from_the_cache() {
    let mut scheduler = scheduler(LIMITS);
    scheduler.submit(1, new((0..8).collect()));
    run(&mut scheduler, 5);
    scheduler.submit(2, NewSequence { prompt_logits: true, ..new((0..8).collect()) });
    let step = scheduler.plan(None);
    assert_eq!(parts(&step), [(1, 8, 1), (2, 0, 7)]);
    assert_eq!(step.batch.sequences[1].wanted, WantedLogits::All);
    scheduler.complete(&step);
    // SequenceLogits whose logits were given may come from the cache.
    scheduler.lose_pages();
    scheduler.remove(1);
    let step = scheduler.plan(None);
    assert_eq!((parts(&step), step.batch.sequences[0].wanted), (vec![(2, 0, 8)], WantedLogits::All));
}

#[test]
fn a_sequence_alone_sends_the_others_away() {
    let mut scheduler = scheduler(LIMITS);
    (1..=3).for_each(|id| scheduler.submit(id, new(vec![id as u32; 2])));
    run(&mut scheduler, 5);
    assert_eq!(parts(&scheduler.plan(Some(2))), [(2, 2, 1)]);
    assert_eq!((scheduler.running_count(), scheduler.waiting_count()), (1, 2));
    assert_eq!(parts(&scheduler.plan(None)), [(1, 0, 3), (2, 0, 3), (3, 0, 2)]);
}

/// Computes a sequence to this many tokens, and says how many pages were in use at most.
fn most_pages(scheduler: &mut Scheduler, id: SequenceId, length: usize) -> usize {
    let mut most = 0;
    while scheduler.ids(id).len() < length {
        let token = scheduler.ids(id).len() as u32 % 7;
        run(scheduler, token);
        most = most.max(scheduler.pages_used());
    }
    most
}

#[test]
fn pages_in_front_of_a_window_come_back_and_are_found_by_others() {
    let limits = BatchLimits { pages: 30, context: 120, window: Some(10), ..LIMITS };
    let mut windowed = scheduler(limits);
    windowed.submit(1, new(vec![1; 60]));
    // Behind each step no more than those of a window, and one in front of them.
    assert_eq!(most_pages(&mut windowed, 1, 110), 4);
    let ids = windowed.ids(1).to_vec();
    windowed.remove(1);
    assert_eq!(windowed.pages_used(), 0);
    let mut whole = scheduler(BatchLimits { window: None, ..limits });
    whole.submit(1, new(vec![1; 60]));
    assert_eq!(most_pages(&mut whole, 1, 110), 28);

    // Another text takes the pages of the first tokens; those of the last ones are enough to go on.
    windowed.submit(2, new(vec![9; 30]));
    most_pages(&mut windowed, 2, 31);
    assert_eq!(windowed.cached_tokens(2), 0);
    windowed.remove(2);
    windowed.submit(3, new(ids[..61].to_vec()));
    let step = windowed.plan(None);
    assert_eq!((parts(&step), windowed.cached_tokens(3)), (vec![(3, 60, 1)], 60));
    // Rows from position 60 on read keys from 51 on.
    assert_eq!((windowed.sequences[&3].behind, windowed.pages_used()), (12, 4));
    windowed.complete(&step);

    // Of a text whose last pages are gone, earlier ones are of use.
    windowed.remove(3);
    let keys: Vec<PageKey> = ids[..60]
        .chunks(4)
        .scan(PageKey::root(""), |key, ids| {
            *key = key.next(ids);
            Some(*key)
        })
        .collect();
    keys[13..].iter().for_each(|key| windowed.pool.drop_content(key));
    windowed.submit(4, new(ids[..61].to_vec()));
    assert_eq!(parts(&windowed.plan(None)), [(4, 52, 8)]);
}

#[test]
fn a_text_that_goes_back_behind_its_window_is_computed_anew() {
    let limits = BatchLimits { pages: 30, context: 120, rows: 40, window: Some(6), ..LIMITS };
    let options = SchedulerOptions { prompt_rows: 40, prefix_cache: false };
    let mut scheduler = Scheduler::new(limits, options);
    scheduler.submit(1, new(vec![1; 38]));
    run(&mut scheduler, 1);
    // Some tokens back all is there yet.
    assert!(scheduler.set_text(1, &[&[1; 36][..], &[2; 2]].concat()));
    assert_eq!(parts(&scheduler.plan(None)), [(1, 36, 2)]);
    assert!(scheduler.set_text(1, &[&[1; 20][..], &[2; 2]].concat()));
    assert_eq!((run(&mut scheduler, 5), scheduler.pages_used()), (vec![(1, 0, 22)], 3));
}

/// What may happen to the scheduler.
#[derive(Clone, Debug)]
enum Event {
    Submit {
        stem: u32,
        length: usize,
        logits: bool,
    },
    Remove(prop::sample::Index),
    Lose,
    Step,
    /// A step with guesses of this many right tokens and a wrong one.
    Guess(usize),
    Alone(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let submit = (0u32..3, 1usize..40, any::<bool>()).prop_map(|(stem, length, logits)| Event::Submit {
        stem,
        length,
        logits,
    });
    prop_oneof![
        3 => submit,
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
        1 => Just(Event::Lose),
        8 => Just(Event::Step),
        4 => (0usize..6).prop_map(Event::Guess),
        1 => any::<prop::sample::Index>().prop_map(Event::Alone),
    ]
}

/// What follows a text; equal texts go on equally.
fn next_tokens(text: &[u32], count: usize) -> Vec<u32> {
    let mut text = text.to_vec();
    let prompt = text.len();
    (0..count).for_each(|_| text.push(text.iter().fold(1, |sum, id| (sum * 3 + id) % 7)));
    text.split_off(prompt)
}

/// The scheduler with the content of its pages.
struct Store {
    scheduler: Scheduler,
    limits: BatchLimits,
    /// A token for each place of each page.
    places: Vec<Option<u32>>,
}

impl Store {
    /// Runs a step and checks what it reads; every sequence that is computed to its end goes on.
    fn step(&mut self, only: Option<SequenceId>) {
        let BatchLimits { page, rows, sequences, .. } = self.limits;
        let step = self.scheduler.plan(only);
        assert!(!step.ids.is_empty() && step.batch.rows() <= rows && step.ids.len() <= sequences);
        let oldest = self.scheduler.sequences.keys().next();
        assert!(only.is_some() || step.ids.contains(oldest.unwrap()), "the oldest does not go on");
        for s in &step.batch.sequences {
            for (at, id) in (s.start..).zip(&s.ids) {
                assert_eq!(self.scheduler.pool.users(s.pages[at / page]), 1, "a shared page is written");
                self.places[s.pages[at / page] as usize * page + at % page] = Some(*id);
            }
        }
        for (id, s) in step.ids.iter().zip(&step.batch.sequences) {
            let end = s.start + s.ids.len();
            assert_eq!(s.pages.len(), end.div_ceil(page));
            let first = self.limits.window.map_or(0, |window| (s.start + 1).saturating_sub(window));
            let read = (first..end).map(|at| self.places[s.pages[at / page] as usize * page + at % page]);
            let text = self.scheduler.ids(*id);
            let text = [text, &s.ids[text.len().saturating_sub(s.start).min(s.ids.len())..]].concat();
            assert!(read.eq(text[first..end].iter().map(|id| Some(*id))), "another text is read");
        }
        self.scheduler.complete(&step);
        for (id, s) in step.ids.into_iter().zip(step.batch.sequences) {
            let text = self.scheduler.ids(id).to_vec();
            if self.scheduler.is_computed(id) {
                let draft = &s.ids[text.len() - s.start..];
                let follows = next_tokens(&text, draft.len() + 1);
                let right = follows.iter().zip(draft).take_while(|(a, b)| a == b).count();
                follows[..=right].iter().for_each(|token| self.scheduler.push(id, *token));
                assert_eq!(self.scheduler.sequences[&id].pending(), 1);
            }
            if self.scheduler.ids(id).len() > self.limits.context {
                self.scheduler.remove(id);
            }
        }
    }

    /// Guesses what follows all texts.
    fn guess(&mut self, right: usize) {
        for id in self.scheduler.sequences.keys().copied().collect::<Vec<SequenceId>>() {
            let mut draft = next_tokens(self.scheduler.ids(id), right);
            draft.push(9);
            self.scheduler.set_draft(id, draft);
        }
    }

    /// Every page has as many users as lists have it, and no sequence has more pages than it may.
    fn check(&self) {
        let scheduler = &self.scheduler;
        let BatchLimits { page, rows, window, .. } = self.limits;
        let most = window.map_or(usize::MAX, |window| (window + rows).div_ceil(page) + 2);
        assert!(scheduler.sequences.values().all(|s| s.pages.len() - s.behind <= most));
        for page in 0..self.limits.pages as u32 {
            let lists = scheduler.sequences.values().filter(|s| s.pages[s.behind..].contains(&page)).count();
            assert_eq!(scheduler.pool.users(page) as usize, lists);
        }
        assert_eq!(scheduler.running_count() + scheduler.waiting_count(), scheduler.sequences.len());
        assert!(scheduler.waiting.iter().all(|id| scheduler.sequences[id].pages.is_empty()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    /// Whatever happens: every step reads the right text, the oldest goes on, pages have their users, and in the end all come back.
    #[test]
    fn pages_are_right_and_come_back(
        events in prop::collection::vec(event(), 0..120),
        pages in 12usize..30,
        rows in 1usize..20,
        sequences in 1usize..6,
        window in prop::option::of(1usize..20),
    ) {
        let limits = BatchLimits { pages, rows, sequences, window, ..LIMITS };
        let mut store =
            Store { scheduler: scheduler(limits), limits, places: vec![None; limits.page * pages] };
        let mut last = 0;
        for event in events {
            let ids: Vec<SequenceId> = store.scheduler.sequences.keys().copied().collect();
            match event {
                Event::Submit { stem, length, logits } => {
                    last += 1;
                    // Prompts of one stem begin alike.
                    let prompt = (0..length as u32).map(|at| (at * (stem + 1)) % 5).collect();
                    store.scheduler.submit(last, NewSequence { prompt_logits: logits, ..new(prompt) });
                }
                Event::Lose => {
                    store.places.fill(None);
                    store.scheduler.lose_pages();
                }
                _ if ids.is_empty() => {}
                Event::Remove(at) => store.scheduler.remove(ids[at.index(ids.len())]),
                Event::Step => store.step(None),
                Event::Guess(right) => {
                    store.guess(right);
                    store.step(None);
                }
                Event::Alone(at) => store.step(Some(ids[at.index(ids.len())])),
            }
            store.check();
        }
        let mut steps = 0;
        while !store.scheduler.sequences.is_empty() {
            store.step(None);
            store.check();
            steps += 1;
            // The oldest computes one token a step at least, and may have to begin anew for each.
            prop_assert!(steps < 200 * 100, "no end is in sight");
        }
        prop_assert_eq!(store.scheduler.pages_used(), 0);
    }
}
