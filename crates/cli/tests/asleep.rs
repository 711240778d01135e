//! Commands whose machine sleeps, whose agent is started again, or whose way to it breaks: they go on, say so, and give what
//! they give without.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../rpc/tests/common/proxy.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod proxy;

use common::{Serving, carve_small, draft, prompts};
use proxy::Proxy;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// No command works so long until its event.
const LONGEST: Duration = Duration::from_secs(120);

/// An agent that ends sessions which say nothing for two seconds, and the way to it.
struct Way {
    folder: PathBuf,
    cache: bool,
    hub: Option<Serving>,
    agent: Serving,
    proxy: Proxy,
    /// Whether the agent has the weights of earlier commands.
    warm: bool,
}

fn agent(folder: &Path, cache: bool, hub: Option<&Serving>) -> Serving {
    let mut arguments = vec!["serve", "--target", "emulator", "--idle", "2"];
    match hub {
        Some(hub) => arguments.extend(["--hub", &hub.place, "--name", "lab"]),
        None => arguments.extend(["--listen", "127.0.0.1:0"]),
    }
    if cache {
        arguments.extend(["--cache", "kept"]);
    }
    Serving::start(folder, &arguments)
}

fn port(agent: &Serving) -> u16 {
    agent.place.rsplit(':').next().unwrap().parse().unwrap()
}

/// What happens to a command in the middle of its work.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its process does not run until the agent has given it up.
    Sleep,
    /// Its connection breaks.
    Cut,
    /// The agent is killed, and another is started.
    Restart,
}

impl Way {
    fn new(folder: &Path, cache: bool) -> Way {
        Way::open(folder, cache, None)
    }

    /// The same with a hub between the way and the agent.
    fn through_hub(folder: &Path) -> Way {
        Way::open(folder, false, Some(Serving::hub(folder, "127.0.0.1:0")))
    }

    fn open(folder: &Path, cache: bool, hub: Option<Serving>) -> Way {
        let agent = agent(folder, cache, hub.as_ref());
        let proxy = Proxy::start(port(hub.as_ref().unwrap_or(&agent)));
        Way { folder: folder.into(), cache, hub, agent, proxy, warm: false }
    }

    fn port(&self) -> u16 {
        port(self.hub.as_ref().unwrap_or(&self.agent))
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapml"));
        let place = format!("ws://127.0.0.1:{}", self.proxy.port);
        let target = match self.hub {
            Some(_) => format!("hub/lab/emulator?hub={place}"),
            None => format!("{place}/emulator"),
        };
        command.args(arguments).args(["--target", &target, "--json", "-"]).current_dir(&self.folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a command; the bytes that it sent. Gives its report, which has no times, and what it said.
    fn run(&mut self, arguments: &[&str], event: Option<(Event, u64)>) -> (u64, Value, String) {
        // A migration begins anew.
        let _ = std::fs::remove_dir_all(self.folder.join("ledger"));
        let before = self.proxy.passed_bytes();
        let child = self.start(arguments);
        if let Some((event, at)) = event {
            let sent = self.proxy.wait_for_bytes(before + at, LONGEST);
            assert!(sent, "{arguments:?} sends less than it did");
            self.happen(event, &child);
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}, {event:?}: {said}");
        let mut report = serde_json::from_slice(&output.stdout).unwrap();
        untime(&mut report);
        (self.proxy.passed_bytes() - before, report, said)
    }

    fn happen(&mut self, event: Event, child: &Child) {
        let signal = |name: &str| {
            Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
        };
        match event {
            Event::Sleep => {
                signal("-STOP");
                std::thread::sleep(Duration::from_secs(4));
                signal("-CONT");
            }
            Event::Cut => self.proxy.lead_to(self.port()),
            Event::Restart => {
                self.warm = self.cache;
                self.agent.process.kill().unwrap();
                self.agent.process.wait().unwrap();
                self.agent = agent(&self.folder, self.cache, self.hub.as_ref());
                self.proxy.lead_to(self.port());
            }
        }
    }

    /// Runs a command if the agent may lack the weights that it sends.
    fn send_weights(&mut self, arguments: &[&str]) {
        if !std::mem::replace(&mut self.warm, true) {
            self.run(arguments, None);
        }
    }

    /// Runs a command without an event, then with each of them once it has sent so much of what it sends; all must give the
    /// same. An agent that is started again may lack the weights, so that this event comes last.
    fn expect_same(&mut self, arguments: &[&str], events: &[(Event, &dyn Fn(u64) -> u64)]) {
        self.send_weights(arguments);
        let (bytes, mut expected, _) = self.run(arguments, None);
        // The agent may give up a command that a busy machine keeps from running.
        expected.as_object_mut().unwrap().remove("reconnects");
        for (event, at) in events {
            assert!(self.warm, "{event:?} comes behind a restart");
            let (_, mut found, said) = self.run(arguments, Some((*event, at(bytes))));
            let reconnects = found.as_object_mut().unwrap().remove("reconnects");
            assert!(
                reconnects.as_ref().and_then(Value::as_u64) >= Some(1),
                "{arguments:?}, {event:?}: {said}"
            );
            assert!(said.contains("is lost") || said.contains("was ended"), "{event:?}: {said}");
            assert!(said.contains("connected again after"), "{event:?}: {said}");
            assert_eq!(found, expected, "{arguments:?}, {event:?}: {said}");
        }
    }
}

/// Takes out what no two runs have in common.
fn untime(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let timed = |name: &str| name.contains("seconds") || name == "device";
            fields.retain(|name, _| !timed(name));
            fields.values_mut().for_each(untime);
        }
        Value::Array(values) => values.iter_mut().for_each(untime),
        _ => {}
    }
}

#[test]
fn checks_go_on_after_sleep_and_restart_also_through_a_hub() {
    let folder = tempfile::tempdir().unwrap();
    let suite = carve_small(folder.path()).display().to_string();
    for mut way in [Way::new(folder.path(), false), Way::through_hub(folder.path())] {
        way.expect_same(
            &["check", &suite],
            &[
                (Event::Sleep, &|bytes| bytes / 10 * 5),
                (Event::Cut, &|bytes| bytes / 10 * 2),
                (Event::Restart, &|bytes| bytes / 10 * 7),
            ],
        );
        way.proxy.cut();
    }
}

#[test]
fn a_lost_connection_is_not_counted_as_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let mut way = Way::new(folder.path(), false);
    let model = draft();
    let bench = ["bench", "bugs", "--models", &model, "--op", "append", "--limit", "6", "--checker", "none"];
    let bench = [&bench[..], &["--workers", "1"]].concat();
    let (bytes, ..) = way.run(&bench, None);
    let before = way.proxy.passed_bytes();
    let child = way.start(&bench);
    assert!(way.proxy.wait_for_bytes(before + bytes / 2, LONGEST), "it sends less than it did");
    way.happen(Event::Cut, &child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is lost"), "{said}");
    way.proxy.cut();
}

#[test]
fn text_goes_on_after_sleep_and_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut way = Way::new(folder.path(), false);
    let model = draft();
    let greedy = ["generate", &model, "--prompt", "Once upon a time", "--max-tokens", "120"];
    let warm = [&greedy[..], &["--temperature", "0.8", "--seed", "7"]].concat();
    for arguments in [&greedy[..], &warm] {
        // About 50 bytes are sent for a token, and most of the others before the first.
        way.expect_same(
            arguments,
            &[
                (Event::Sleep, &|bytes| bytes - 4000),
                (Event::Cut, &|bytes| bytes - 500_000),
                (Event::Restart, &|bytes| bytes - 3000),
            ],
        );
    }
    way.proxy.cut();
}

#[test]
fn an_agent_that_has_kept_the_weights_is_not_sent_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = tapml_testing::model("llama");
    // All but the embeddings.
    let weights = std::fs::metadata(model.join("model-00001-of-00002.safetensors")).unwrap().len();
    let model = model.display().to_string();
    let generate = ["generate", &model, "--ids", "1,2,3", "--max-tokens", "12"];
    for cache in [true, false] {
        let mut way = Way::new(folder.path(), cache);
        let (cold, expected, _) = way.run(&generate, None);
        let (warm, ..) = way.run(&generate, None);
        assert!(cold > weights / 2 && warm < weights / 2, "{cold} and {warm} of {weights}");
        let (again, mut found, said) = way.run(&generate, Some((Event::Restart, warm / 2)));
        assert_eq!(found.as_object_mut().unwrap().remove("reconnects"), Some(1.into()), "{said}");
        assert_eq!(found, expected);
        assert_eq!(again < weights / 2, cache, "{again} bytes of {weights} where all are {cold}: {cache}");
        way.proxy.cut();
    }
}

#[test]
fn migrations_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (prompts, model) = (prompts(folder.path()).display().to_string(), draft());
    let mut way = Way::new(folder.path(), false);
    let migrate = ["migrate", &model, "--prompts", &prompts, "--steps", "1", "--ledger", "ledger"];
    way.expect_same(&migrate, &[(Event::Restart, &|bytes| bytes / 10 * 6)]);
    way.proxy.cut();
}

#[test]
fn diagnoses_and_evaluations_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, model) = (carve_small(folder.path()).display().to_string(), draft());
    let mut way = Way::new(folder.path(), false);
    let diagnose = ["diagnose", &model, "--suite", &suite];
    way.expect_same(&diagnose, &[(Event::Cut, &|bytes| bytes / 10 * 6)]);
    let eval = ["eval", &model, "--tokens", "256", "--window", "64"];
    way.expect_same(&eval, &[(Event::Restart, &|bytes| bytes / 10 * 8)]);
    let logits = ["logits", &model, "--ids", "1,2,3,4", "--out", "logits.safetensors"];
    way.expect_same(&logits, &[(Event::Cut, &|bytes| bytes / 2)]);
    way.proxy.cut();
}

#[test]
fn measurements_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (suite, model) = (carve_small(folder.path()).display().to_string(), draft());
    let mut way = Way::new(folder.path(), false);
    // What is measured is another number each time.
    let bench = ["bench", "decode", &model, "--prefill", "32", "--tokens", "16", "--runs", "2"];
    let tune = ["tune", &model, "--suite", &suite, "--out", "tuned.json"];
    way.send_weights(&bench);
    for (arguments, events) in [(&bench[..], &[Event::Sleep, Event::Restart][..]), (&tune, &[Event::Restart])]
    {
        let (bytes, expected, _) = way.run(arguments, None);
        for (event, part) in events.iter().flat_map(|event| [(*event, 3), (*event, 8)]) {
            let (_, found, said) = way.run(arguments, Some((event, bytes / 10 * part)));
            assert!(found["reconnects"].as_u64() >= Some(1), "{arguments:?}: {said}");
            let count = |report: &Value, what: &str| report[what].as_array().map(Vec::len);
            assert_eq!(count(&found, "runs"), count(&expected, "runs"), "{found}");
            assert_eq!(count(&found, "ops"), count(&expected, "ops"), "{found}");
        }
    }
    way.proxy.cut();
}
