//! Checks through networks that delay, lose packets and break, and through hubs between them: their verdict is right, or there is
//! none and the error says why.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../rpc/tests/common/proxy.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod proxy;

use common::{Agent, Serving, carve_small, json, tapml};
use proxy::{Proxy, Weather};
use std::path::Path;
use std::time::{Duration, Instant};

/// A check of two operators on a device behind such a network.
fn check(folder: &Path, suite: &Path, port: u16, device: &str) -> assert_cmd::Command {
    let mut command = tapml(folder);
    command.arg("check").arg(suite).args(["--op", "rms_norm", "--op", "rope"]);
    command.args(["--target", &format!("ws://127.0.0.1:{port}/{device}")]);
    command
}

#[test]
fn a_check_through_a_bad_network_has_the_verdict_of_a_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, agent) = (carve_small(folder.path()), Agent::start(folder.path(), &["--target", "emulator"]));
    let port = agent.place.rsplit(':').next().unwrap().parse().unwrap();
    let cases = |report: serde_json::Value| (report["cases"].clone(), report["failed"].clone());
    let direct = cases(json(&mut check(folder.path(), &suite, port, "emulator"), 0));
    let loss = (20, Duration::from_millis(200));
    let bad =
        Proxy::start_in(port, Weather { delay: Duration::from_millis(100), loss, ..Weather::default() });
    assert_eq!(cases(json(&mut check(folder.path(), &suite, bad.port, "emulator"), 0)), direct);
    bad.cut();
}

#[test]
fn a_check_through_bad_networks_and_a_hub_has_the_verdict_of_a_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, hub) = (carve_small(folder.path()), Serving::hub(folder.path(), "127.0.0.1:0"));
    let port: u16 = hub.place.rsplit(':').next().unwrap().parse().unwrap();
    let loss = (20, Duration::from_millis(200));
    let weather = Weather { delay: Duration::from_millis(200), loss, ..Weather::default() };
    let [near, far] = [(); 2].map(|()| Proxy::start_in(port, weather));
    let _agent = Serving::agent(folder.path(), &format!("ws://127.0.0.1:{}", far.port), "far", "emulator");
    let check = |port: u16| {
        let mut command = tapml(folder.path());
        command.arg("check").arg(&suite).args([
            "--op",
            "rms_norm",
            "--op",
            "rope",
            "--target",
            "hub/far/emulator",
        ]);
        let report = json(command.env("TAPML_HUB", format!("ws://127.0.0.1:{port}")), 0);
        (report["cases"].clone(), report["failed"].clone(), report["reconnects"].clone())
    };
    let good = check(port);
    assert_eq!(check(near.port), good);
    near.cut();
    far.cut();
}

#[test]
fn a_check_whose_connection_is_cut_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, agent) = (carve_small(folder.path()), Agent::start(folder.path(), &["--target", "emulator"]));
    let port = agent.place.rsplit(':').next().unwrap().parse().unwrap();
    for at in [100, 1_500, 6_000, 20_000] {
        for (silent, after) in
            [(false, [Some(at), None]), (false, [None, Some(at)]), (true, [Some(at), None])]
        {
            let proxy = Proxy::start_in(port, Weather { after, silent, ..Weather::default() });
            let mut command = check(folder.path(), &suite, proxy.port, "emulator?answer-within=2");
            let start = Instant::now();
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert!(start.elapsed() < Duration::from_secs(60), "{after:?} {silent}: {said}");
            assert_eq!(output.status.code(), Some(2), "{after:?} {silent}: {printed}\n{said}");
            let why = ["lost", "ended before", "has said nothing"];
            assert!(
                why.iter().any(|why| said.contains(why)) && said.contains("hint"),
                "{after:?} {silent}: {said}"
            );
            proxy.cut();
        }
    }
}
