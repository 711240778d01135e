//! Tests of the page pool.

use super::*;
use proptest::prelude::*;

fn key(number: u32) -> PageKey {
    PageKey::root("").next(&[number])
}

#[test]
fn keys_tell_the_whole_text_and_the_salt() {
    let page =
        |salt: &str, pages: &[&[u32]]| pages.iter().fold(PageKey::root(salt), |key, ids| key.next(ids));
    assert_eq!(page("", &[&[1, 2], &[3, 4]]), page("", &[&[1, 2], &[3, 4]]));
    for other in [page("a", &[&[1, 2], &[3, 4]]), page("", &[&[2, 2], &[3, 4]]), page("", &[&[3, 4]])] {
        assert_ne!(page("", &[&[1, 2], &[3, 4]]), other);
    }
}

#[test]
fn the_page_released_first_is_forgotten_first() {
    let mut pool = PagePool::new(3);
    let pages: Vec<u32> = (0..3).map(|_| pool.allocate().unwrap()).collect();
    assert_eq!((pages.clone(), pool.allocate(), pool.used_pages()), (vec![0, 1, 2], None, 3));
    pages.iter().for_each(|page| pool.keep(*page, key(*page)));
    [2, 0, 1].into_iter().for_each(|page| pool.release(page));
    assert_eq!((pool.available(), pool.used_pages()), (3, 0));
    // The first is used again, so that the second goes.
    assert_eq!(pool.share(&key(2)), Some(2));
    assert_eq!(pool.allocate(), Some(0));
    assert_eq!((pool.share(&key(0)), pool.share(&key(1))), (None, Some(1)));
    assert_eq!(pool.allocate(), None);
}

#[test]
fn of_two_equal_pages_the_first_is_known() {
    let mut pool = PagePool::new(2);
    let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
    pool.keep(first, key(7));
    pool.keep(second, key(7));
    pool.release(second);
    assert_eq!(pool.share(&key(7)), Some(first));
    pool.forget();
    assert_eq!(pool.share(&key(7)), None);
    pool.release(first);
    pool.release(first);
    assert_eq!(pool.available(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Beside the plainest pool: a page has as many users as were given it, and a known page is given only to readers of its
    /// content.
    #[test]
    fn pages_are_given_to_one_writer_or_to_readers_of_their_content(
        count in 1usize..8,
        calls in prop::collection::vec((0u8..5, 0u32..12, any::<prop::sample::Index>()), 0..200),
    ) {
        let mut pool = PagePool::new(count);
        // Pages in use: the page, its content if known, once for each user.
        let mut held: Vec<(u32, Option<u32>)> = Vec::new();
        for (call, content, at) in calls {
            match call {
                0 => match pool.allocate() {
                    Some(page) => {
                        prop_assert!(held.iter().all(|(other, _)| *other != page));
                        held.push((page, None));
                    }
                    None => prop_assert_eq!(pool.available(), 0),
                },
                1 => if let Some(page) = pool.share(&key(content)) {
                    prop_assert!(held.iter().all(|(other, known)| *other != page || *known == Some(content)));
                    held.push((page, Some(content)));
                },
                2 if !held.is_empty() => {
                    let (page, known) = held[at.index(held.len())];
                    if known.is_none() {
                        pool.keep(page, key(content));
                        held.iter_mut().filter(|(other, _)| *other == page).for_each(|h| h.1 = Some(content));
                    }
                }
                3 if !held.is_empty() => pool.release(held.swap_remove(at.index(held.len())).0),
                4 if content == 0 => pool.forget(),
                _ => {}
            }
            let mut used: Vec<u32> = held.iter().map(|(page, _)| *page).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!((pool.used_pages(), pool.used_pages() + pool.available()), (used.len(), count));
            for page in used {
                let users = held.iter().filter(|(other, _)| *other == page).count();
                prop_assert_eq!(pool.users(page) as usize, users);
            }
        }
    }
}
