//! Tests of guessing.

use super::*;

fn drafter(tokens: usize) -> Drafter {
    Drafter::new(&NgramOptions { tokens, ..NgramOptions::default() })
}

#[test]
fn what_followed_last_time_is_guessed() {
    assert_eq!(drafter(3).propose(&[1, 2, 3, 4, 5, 9, 1, 2, 3], 10), [4, 5, 9]);
    assert_eq!(drafter(9).propose(&[1, 2, 3, 4, 5, 9, 1, 2, 3], 2), [4, 5]);
    // The last time counts, and three tokens before two.
    assert_eq!(drafter(1).propose(&[2, 3, 7, 2, 3, 8, 2, 3], 10), [8]);
    assert_eq!(drafter(1).propose(&[1, 2, 3, 7, 2, 3, 8, 1, 2, 3], 10), [7]);
    // A text that repeats itself does so once more.
    assert_eq!(drafter(4).propose(&[5, 5, 5, 5], 10), [5, 5, 5, 5]);
    assert_eq!(drafter(5).propose(&[7, 8, 9, 7, 8, 9, 7, 8], 10), [9, 7, 8, 9]);
    for nothing in [&[][..], &[1], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 1]] {
        assert!(drafter(9).propose(nothing, 10).is_empty(), "{nothing:?}");
    }
}

#[test]
fn guesses_are_as_long_as_they_are_right() {
    let text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3];
    let mut drafter = drafter(6);
    assert_eq!(drafter.propose(&text, 10), [4, 5, 6, 7]);
    (0..20).for_each(|_| drafter.note(4, 4));
    assert_eq!(drafter.propose(&text, 10), [4, 5, 6, 7, 8, 9]);
    (0..20).for_each(|_| drafter.note(4, 1));
    assert_eq!(drafter.propose(&text, 10).len(), 3);
}

#[test]
fn guesses_become_rare_where_they_fail_and_come_back() {
    let text = [1, 2, 3, 4, 5, 6, 1, 2, 3];
    let mut drafter = drafter(4);
    let mut guesses = 0;
    for _ in 0..1000 {
        let guessed = drafter.propose(&text, 10).len();
        guesses += usize::from(guessed > 0);
        drafter.note(guessed, 0);
    }
    // About nine before the first pause, six while the pauses grow, and then one of 65.
    assert!((15..40).contains(&guesses), "{guesses}");
    for _ in 0..70 {
        let guessed = drafter.propose(&text, 10).len();
        drafter.note(guessed, guessed);
    }
    assert!(!drafter.propose(&text, 10).is_empty());
}
