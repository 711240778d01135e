//! Rules of sessions: hello, numbers, and what ends a connection.
//!
//! Rules that end a connection open another one afterwards: an agent must survive what one client does.

use super::raw::{Check, Problem, Raw, fail, hello, skip};
use super::rule::Rule;
use crate::Address;
use crate::wire::limits::{MAX_HELLO, VERSION};
use crate::wire::{self, ErrorKind, Reply, Request};

/// The rules, in the order in which they are tried.
/// Rules of the hello come first: the others need a session.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "wire_welcome",
        text: "a hello of version 1 is answered by a welcome with version 1, limits and a device",
        body: welcome,
    },
    Rule {
        name: "wire_other_version",
        text: "a hello of other versions is answered by a failure of kind unsupported",
        body: other_version,
    },
    Rule { name: "wire_wrong_token", text: "an agent with a token refuses any other", body: wrong_token },
    Rule {
        name: "wire_list_of_devices",
        text: "a hello without a device is answered by the list of devices, which holds this one",
        body: list_of_devices,
    },
    Rule {
        name: "wire_unknown_device",
        text: "a hello for a device that does not exist is answered by a failure",
        body: unknown_device,
    },
    Rule {
        name: "wire_hello_first",
        text: "nothing but a hello is answered first; the agent serves on",
        body: hello_first,
    },
    Rule { name: "wire_ping", text: "a ping is answered by a pong of its number", body: ping },
    Rule {
        name: "wire_numbers_rise",
        text: "a request whose number does not rise ends the connection; the agent serves on",
        body: numbers_rise,
    },
    Rule {
        name: "wire_garbage",
        text: "bytes that are no message end the connection; the agent serves on",
        body: garbage,
    },
    Rule {
        name: "wire_claims",
        text: "a field and a frame that claim a terabyte end the connection; the agent serves on",
        body: claims,
    },
    Rule {
        name: "wire_two_sessions",
        text: "two clients that use the same handles do not see each other's buffers",
        body: two_sessions,
    },
];

/// See the rule; limits that would not even hold a hello are none.
fn welcome(address: &Address) -> Check {
    let (_, welcome) = Raw::open(address)?;
    if welcome.version != VERSION {
        return fail(format!("the welcome: expected version {VERSION}, found {}", welcome.version));
    }
    let limits = welcome.limits.unwrap_or_default();
    for (name, value) in [("max_message", limits.max_message), ("window", limits.window)] {
        if value < MAX_HELLO as u64 {
            return fail(format!("the welcome's limits.{name}: expected {MAX_HELLO} or more, found {value}"));
        }
    }
    Ok(())
}

/// Another session is welcomed: the agent serves on.
/// It is opened as a client would, on a connection of its own.
fn serves_on(address: &Address, what: &str) -> Check {
    match Raw::open(address) {
        Ok(_) => Ok(()),
        Err(Problem::Failed(text)) => fail(format!("after {what} the agent serves no more: {text}")),
        Err(other) => Err(other),
    }
}

/// See the rule. The versions are ones that no agent speaks.
fn other_version(address: &Address) -> Check {
    let (low, high) = (VERSION + 1000, VERSION + 1001);
    let hello = wire::Hello { version_min: low, version_max: high, ..hello(address)? };
    match Raw::greet(address, hello)?.1 {
        Reply::Failed(failed) if failed.kind() == ErrorKind::Unsupported => Ok(()),
        other => fail(format!(
            "a hello of versions {low} to {high}: expected a failure of kind unsupported, found {}",
            other.words()
        )),
    }
}

/// See the rule; the wrong token begins as the right one does.
fn wrong_token(address: &Address) -> Check {
    let right = hello(address)?;
    if right.token.is_empty() {
        return skip("no token was given");
    }
    let wrong = wire::Hello { token: format!("{}x", right.token), ..right };
    match Raw::greet(address, wrong)?.1 {
        Reply::Failed(_) => Ok(()),
        other => fail(format!("a hello with a wrong token: expected a failure, found {}", other.words())),
    }
}

/// See the rule.
/// A list ends the session: nothing else is asked on that connection.
fn list_of_devices(address: &Address) -> Check {
    let list = wire::Hello { target: String::new(), ..hello(address)? };
    let devices = match Raw::greet(address, list)?.1 {
        Reply::Welcome(welcome) => welcome.devices,
        other => {
            return fail(format!("a hello without a device: expected a welcome, found {}", other.words()));
        }
    };
    let names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
    let asked = address.target.split('?').next().unwrap_or_default();
    // A number 0 may be left out.
    let plain = |name: &str| name.trim_end_matches(":0").to_string();
    // A hub lists devices of several agents under other names.
    if address.hub || names.iter().any(|name| plain(name) == plain(asked)) {
        Ok(())
    } else {
        fail(format!("the list of devices: expected `{asked}` among them, found {names:?}"))
    }
}

/// See the rule; at a hub the wait for it is short.
/// Which kind of failure it is, is left to the agent.
fn unknown_device(address: &Address) -> Check {
    let other = wire::Hello { target: "no-such-device".into(), wait_ms: 1000, ..hello(address)? };
    match Raw::greet(address, other)?.1 {
        Reply::Failed(_) => Ok(()),
        other => fail(format!("a hello for `no-such-device`: expected a failure, found {}", other.words())),
    }
}

/// See the rule.
/// A failure may come before the end; an answer must not.
fn hello_first(address: &Address) -> Check {
    let mut raw = Raw::connect(address)?;
    raw.send(Request::Wait(wire::Wait {}))?;
    raw.ends("a wait before the hello")?;
    serves_on(address, "a wait before the hello")
}

/// See the rule.
/// A ping has a number of its own, as every request.
fn ping(address: &Address) -> Check {
    let (mut raw, _) = Raw::open(address)?;
    match raw.ask(Request::Ping(wire::Ping {}))? {
        Reply::Pong(_) => Ok(()),
        other => fail(format!("a ping: expected a pong, found {}", other.words())),
    }
}

/// See the rule; the hello had number 1.
fn numbers_rise(address: &Address) -> Check {
    let (mut raw, _) = Raw::open(address)?;
    let what = "a request with the number of the hello";
    raw.send_as(1, Request::Wait(wire::Wait {}))?;
    raw.ends(what)?;
    serves_on(address, what)
}

/// See the rule, before a hello and in a session.
fn garbage(address: &Address) -> Check {
    let mut raw = Raw::connect(address)?;
    raw.bytes(vec![0xff; 64].into())?;
    raw.ends("garbage instead of a hello")?;
    let (mut raw, _) = Raw::open(address)?;
    let whole = wire::encode(&wire::ToAgent {
        seq: 2,
        request: Some(Request::PutBlob(wire::PutBlob {
            data: vec![7; 100].into(),
            hash: Default::default(),
        })),
    });
    // The field claims 100 bytes where fewer are left.
    raw.bytes(whole.slice(..50))?;
    raw.ends("half a message")?;
    serves_on(address, "garbage and half a message")
}

/// See the rule. Both claims are made without the bytes.
fn claims(address: &Address) -> Check {
    let (mut raw, _) = Raw::open(address)?;
    // Field 7, Write, of 2^40 bytes.
    raw.bytes(vec![0x3a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20].into())?;
    raw.ends("a field that claims a terabyte")?;
    let (mut raw, _) = Raw::open(address)?;
    // A binary frame, masked, with a length of 64 bits; the mask is zero.
    let mut frame = vec![0x82, 0xff];
    frame.extend((1u64 << 40).to_be_bytes());
    frame.extend([0; 4]);
    let sent = raw.socket.link().write_raw(&frame);
    sent.map_err(|e| Problem::Failed(format!("the agent takes no frame: {e}")))?;
    raw.ends("a frame that claims a terabyte")?;
    serves_on(address, "claims of a terabyte")
}

/// See the rule.
/// Buffers of both have the same handle and label, and different contents.
fn two_sessions(address: &Address) -> Check {
    if address.hub {
        return skip("a hub lets clients wait for each other");
    }
    let (mut one, _) = Raw::device(address)?;
    let mut two = match Raw::device(address) {
        Ok((raw, _)) => raw,
        // A device may serve one client at a time; then it must say so, which it did.
        Err(Problem::Failed(text)) if text.contains("sessions") => return skip(text),
        Err(other) => return Err(other),
    };
    for (raw, byte) in [(&mut one, 1u8), (&mut two, 2)] {
        raw.send(Request::CreateBuffer(wire::CreateBuffer { buffer: 1, label: "same".into(), size: 4 }))?;
        raw.send(Request::Write(wire::Write { buffer: 1, offset: 0, data: vec![byte; 4].into() }))?;
    }
    for (raw, byte) in [(&mut one, 1u8), (&mut two, 2)] {
        let found = raw.pieces(Request::Read(wire::Read { buffer: 1, offset: 0, size: 4 }))?.concat();
        if found != [byte; 4] {
            return fail(format!("buffer 1 of client {byte}: expected {:?}, found {found:?}", [byte; 4]));
        }
    }
    Ok(())
}
