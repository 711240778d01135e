//! Tests of guessing.

use super::*;

#[test]
fn what_followed_last_time_is_guessed() {
    assert_eq!(guess_from_text(&[1, 2, 3, 4, 5, 9, 1, 2, 3], 3), [4, 5, 9]);
    assert_eq!(guess_from_text(&[1, 2, 3, 4, 5, 9, 1, 2, 3], 2), [4, 5]);
    // The last time counts, and three tokens before two.
    assert_eq!(guess_from_text(&[2, 3, 7, 2, 3, 8, 2, 3], 1), [8]);
    assert_eq!(guess_from_text(&[1, 2, 3, 7, 2, 3, 8, 1, 2, 3], 1), [7]);
    // A text that repeats itself does so once more.
    assert_eq!(guess_from_text(&[5, 5, 5, 5], 4), [5, 5, 5, 5]);
    assert_eq!(guess_from_text(&[7, 8, 9, 7, 8, 9, 7, 8], 5), [9, 7, 8, 9, 7]);
    for nothing in [&[][..], &[1], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 1]] {
        assert!(guess_from_text(nothing, 9).is_empty(), "{nothing:?}");
    }
}

#[test]
fn guesses_are_as_long_as_they_are_right() {
    let mut pace = DraftPace::default();
    assert_eq!(pace.next_length(), 4);
    (0..20).for_each(|_| pace.note(8, 8));
    assert_eq!(pace.next_length(), 16);
    (0..20).for_each(|_| pace.note(4, 1));
    assert_eq!(pace.next_length(), 3);
    pace.note(0, 0);
    assert_eq!(pace.next_length(), 3);
}

#[test]
fn guesses_become_rare_where_they_fail_and_come_back() {
    let mut pace = DraftPace::default();
    let mut guesses = 0;
    for _ in 0..1000 {
        let guessed = pace.next_length();
        guesses += usize::from(guessed > 0);
        pace.note(guessed, 0);
    }
    // Eight before the first pause, six while the pauses grow, and then one of 65.
    assert!((15..40).contains(&guesses), "{guesses}");
    for _ in 0..70 {
        let guessed = pace.next_length();
        pace.note(guessed, guessed);
    }
    assert!(pace.next_length() > 0);
}
