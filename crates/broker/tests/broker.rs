//! Against a real server: what is kept, what is shared, and what happens when the server is killed and started again.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Server, wait_until};
use std::time::Duration;
use tapml_broker::{Bucket, HubTable, Queue};
use tapml_rpc::hub::Table;

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn rows_are_created_once_and_outlive_the_server() {
    let Some(mut server) = Server::plain() else { return };
    let bucket = Bucket::open(server.client(), "test", "", LONG).unwrap();
    let other = Bucket::open(server.client(), "test", "a.", LONG).unwrap();
    assert!(bucket.create("a.1", b"one").unwrap().is_some());
    assert!(other.create("a.1", b"two").unwrap().is_none(), "it is there");
    let value = |of: &Bucket, key: &str| of.with_rows(|rows| rows.get(key).map(|row| row.value.clone()));
    assert_eq!(wait_until(|| value(&other, "a.1")), b"one");
    bucket.put("b.1", b"not for the other").unwrap();
    other.remove("a.1").unwrap();
    wait_until(|| value(&bucket, "a.1").is_none().then_some(()));
    let seq = other.create("a.1", b"three").unwrap().expect("it was removed");
    assert!(bucket.replace("a.1", seq - 1, b"late").unwrap().is_none());
    for of in [&bucket, &other] {
        wait_until(|| (value(of, "a.1")? == b"three").then_some(()));
    }
    assert!(other.with_rows(|rows| rows.len() == 1), "its prefix is `a.`");
    server.kill();
    assert!(bucket.put("a.2", b"lost").is_err());
    assert_eq!(value(&bucket, "a.1").unwrap(), b"three", "what is known stays known");
    server.restart();
    wait_until(|| bucket.put("a.2", b"kept").ok());
    wait_until(|| value(&other, "a.2"));
    assert_eq!(value(&other, "a.1").unwrap(), b"three");
}

#[test]
fn work_comes_until_it_is_finished() {
    let Some(mut server) = Server::plain() else { return };
    let queue = |server: &Server| Queue::open(server.client(), "run-1", Duration::from_millis(800)).unwrap();
    let (one, two) = (queue(&server), queue(&server));
    assert!(!one.busy("lane").unwrap() && one.take("lane").unwrap().is_none());
    one.put("lane", b"x").unwrap();
    one.put("other", b"y").unwrap();
    let first = two.take("lane").unwrap().unwrap();
    assert_eq!((first.payload.as_slice(), first.before), (b"x".as_slice(), 0));
    assert!(one.take("lane").unwrap().is_none() && one.busy("lane").unwrap());
    // Whoever says that it works on it keeps it.
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(300));
        two.renew(&first.token).unwrap();
    }
    assert!(one.take("lane").unwrap().is_none());
    // On a machine without a free processor a connection may be taken for lost, and is made again.
    let again = wait_until(|| one.take("lane").ok().flatten());
    assert_eq!((again.payload.as_slice(), again.before), (b"x".as_slice(), 1));
    server.kill();
    assert!(one.finish(&again.token).is_err());
    server.restart();
    let last = wait_until(|| two.take("lane").ok().flatten());
    assert_eq!(last.payload, b"x");
    two.finish(&last.token).unwrap();
    wait_until(|| (!one.busy("lane").unwrap()).then_some(()));
    assert_eq!(one.take("other").unwrap().unwrap().payload, b"y", "the server was killed, its work is there");
}

#[test]
fn hubs_see_each_others_rows_and_those_of_a_killed_hub_go() {
    let Some(mut server) = Server::plain() else { return };
    let (one, two) =
        (HubTable::connect(&server.url, "lab").unwrap(), HubTable::connect(&server.url, "lab").unwrap());
    let has = |table: &HubTable, key: &str| table.rows().iter().any(|(k, _)| k == key).then_some(());
    one.put("a.x", b"agent");
    wait_until(|| has(&two, "a.x"));
    assert!(one.create("l.x", b"lease").unwrap());
    assert!(!two.create("l.x", b"lease").unwrap(), "one of both has it");
    one.remove("l.x");
    wait_until(|| two.create("l.x", b"lease").unwrap().then_some(()));
    server.kill();
    assert!(one.create("l.y", b"lease").is_err(), "nobody can know");
    server.restart();
    wait_until(|| one.create("l.y", b"lease").ok());
    wait_until(|| has(&two, "l.y"));
    drop(two);
    wait_until(|| has(&one, "l.x").is_none().then_some(()));
    assert!(has(&one, "a.x").is_some(), "its own rows stay");
}

#[test]
fn a_broker_that_comes_back_empty_is_told_everything_again() {
    let Some(mut server) = Server::plain() else { return };
    let tables = || HubTable::connect(&server.url, "lab").unwrap();
    let (one, two) = (tables(), tables());
    let has = |table: &HubTable, key: &str| table.rows().iter().any(|(k, _)| k == key).then_some(());
    assert_eq!((one.trouble(), two.trouble()), (None, None));
    one.put("a.x", b"agent");
    assert!(one.create("l.x", b"lease").unwrap());
    wait_until(|| has(&two, "a.x").and(has(&two, "l.x")));
    server.kill();
    wait_until(|| two.trouble().filter(|trouble| trouble.contains("away")));
    server.again_empty();
    // At no moment could the other hub lease what is leased.
    wait_until(|| match two.create("l.x", b"mine") {
        Ok(created) => {
            assert!(!created, "two have it");
            Some(())
        }
        Err(error) => {
            assert!(error.to_string().contains("broker"), "{error}");
            None
        }
    });
    wait_until(|| has(&two, "a.x").and(has(&two, "l.x")));
    // Each hub ends its own time of waiting for the others' rows.
    wait_until(|| [&one, &two].iter().all(|table| table.trouble().is_none()).then_some(()));
    one.remove("l.x");
    wait_until(|| two.create("l.x", b"mine").unwrap().then_some(()));
}
