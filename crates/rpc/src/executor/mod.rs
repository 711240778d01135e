//! What a session's process does: it opens one device, executes requests in order, and answers.
//!
//! It talks to its agent over two streams and knows nothing of networks. A device that crashes takes this process
//! with it, and the agent tells the client what the recorder says. Requests are executed by one thread, so that their
//! order is that of the client.

pub(crate) mod blobs;
mod buffers;
mod elsewhere;
mod handles;
mod lists;
mod program;
mod requests;
mod traced;

use crate::offer::Offer;
use crate::pipe::{self, Settings};
use crate::recorder::Recorder;
use crate::wire::{self, Reply, Request, ToClient, convert};
use bytes::Bytes;
use prost::Message;
use requests::{Execute, Executor};
use std::io::{Read, Write};
use std::path::Path;
use tapml_graph::{Error, ErrorKind, Result};
use traced::Traced;

/// Bytes of unanswered requests after which they are acknowledged.
/// Both are well below what a client may have under way, so that it need not stop.
const ACKNOWLEDGE: usize = 6 << 20;

/// Unanswered requests after which they are acknowledged.
const ACKNOWLEDGE_COUNT: usize = 1024;

/// Serves one session: settings first, then a [`wire::Hello`], then requests, until the stream ends.
///
/// # Errors
/// If a stream breaks, or a message is not well-formed: the session cannot go on then. A device that does not open is
/// an answer, not an error.
pub fn serve(from: &mut impl Read, to: &mut impl Write, offer: &dyn Offer) -> Result<()> {
    // The agent may end before it has said anything.
    let Some((_, settings)) = pipe::read(from).map_err(|e| broken_error(&e))? else { return Ok(()) };
    let settings =
        Settings::decode(settings).map_err(|e| Error::bug(format!("the session's settings: {e}")))?;
    let recorder = Recorder::open(Path::new(&settings.recorder));
    let Some((seq, hello)) = pipe::read(from).map_err(|e| broken_error(&e))? else { return Ok(()) };
    // Opening a device may crash: the recorder names the hello as what ran.
    recorder.request(seq);
    let opened = wire::decode_request(hello).and_then(|message| match message.request {
        Some(Request::Hello(hello)) => open(&hello, &settings, offer, &recorder),
        _ => Err(Error::invalid("expected a hello first")),
    });
    recorder.request(0);
    let (welcome, executor) = match opened {
        Ok((welcome, executor)) => (Reply::Welcome(welcome), executor),
        Err(error) => (Reply::Failed(convert::error_to_wire(&error)), None),
    };
    send(to, seq, welcome)?;
    match executor {
        Some(executor) => requests(from, to, executor, &recorder),
        None => Ok(()),
    }
}

/// The welcome, and the executor if a device was asked for.
fn open(
    hello: &wire::Hello,
    settings: &Settings,
    offer: &dyn Offer,
    recorder: &Recorder,
) -> Result<(wire::Welcome, Option<Executor>)> {
    let mut welcome = wire::Welcome {
        version: wire::limits::VERSION,
        capabilities: capabilities(),
        ..wire::Welcome::default()
    };
    // Without a device the client asks for the list, and the session ends with it.
    if hello.target.is_empty() {
        let row = |(name, info): crate::offer::Offered| {
            let reason = info.as_ref().err().map(Error::to_string).unwrap_or_default();
            wire::Offer {
                name,
                info: info.ok().as_ref().map(convert::info_to_wire),
                reason,
                ..Default::default()
            }
        };
        welcome.devices = offer.list().into_iter().map(row).collect();
        return Ok((welcome, None));
    }
    // Options stand behind a question mark, as in an address.
    let (name, options) = hello.target.split_once('?').unwrap_or((&hello.target, ""));
    let mut device = offer.open(name, options)?;
    welcome.device = Some(convert::info_to_wire(device.info()));
    if hello.trace {
        // Waiting after each command is slow, so that a client has to ask for it.
        device = Box::new(Traced::new(device, recorder.clone()));
    }
    Ok((welcome, Some(Executor::new(device, settings, recorder.clone()))))
}

/// What this executor can do beside the commands of a device: what its requests name, and tracing, which a hello asks for.
fn capabilities() -> Vec<String> {
    macro_rules! named {
        ($($message:ident)*) => { [$(<wire::$message as Execute>::CAPABILITY),*] };
    }
    let mut all: Vec<&str> = wire::each_to_agent!(named).into_iter().flatten().chain(["trace"]).collect();
    // Requests of one capability are neighbours in the schema.
    all.dedup();
    all.into_iter().map(String::from).collect()
}

/// Executes requests until the stream ends, and acknowledges those that are not answered.
fn requests(
    from: &mut impl Read,
    to: &mut impl Write,
    mut executor: Executor,
    recorder: &Recorder,
) -> Result<()> {
    let (mut bytes, mut count) = (0, 0);
    while let Some((seq, message)) = pipe::read(from).map_err(|e| broken_error(&e))? {
        (bytes, count) = (bytes + message.len(), count + 1);
        recorder.request(seq);
        let request = wire::decode_request(message)?.request.ok_or_else(|| Error::invalid("no request"))?;
        let mut answered = false;
        let mut answer = |reply: Reply| {
            // Waiting for a slow reader is not the request's own time.
            recorder.request(0);
            answered = true;
            let more = matches!(&reply, Reply::Data(data) if !data.last);
            let sent = send(to, seq, reply);
            if more {
                recorder.request(seq);
            }
            sent
        };
        executor.execute(request, &mut answer)?;
        recorder.request(0);
        // Any answer acknowledges all before it: credit is for long rows of unanswered requests.
        if !answered && (bytes > ACKNOWLEDGE || count > ACKNOWLEDGE_COUNT) {
            answered = true;
            send(to, seq, Reply::Credit(wire::Credit {}))?;
        }
        if answered {
            (bytes, count) = (0, 0);
        }
    }
    Ok(())
}

/// Sends a reply to a request, by its number.
fn send(to: &mut impl Write, seq: u64, reply: Reply) -> Result<()> {
    let message: Bytes = wire::encode(&ToClient { seq, reply: Some(reply) });
    pipe::write(to, seq, &message).map_err(|e| broken_error(&e))
}

/// The error of a stream that broke: the agent is gone, most likely.
fn broken_error(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the session's stream broke: {error}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schema_names_the_capabilities() {
        let schema = include_str!("../../proto/tapml.proto");
        let (_, listed) = schema.split_once("can do beside the commands of a device: ").unwrap();
        let listed = listed.lines().next().unwrap().trim_end_matches('.').split(", ");
        let listed: Vec<&str> = listed.map(|name| name.trim_matches('"')).collect();
        assert_eq!(super::capabilities(), listed);
    }
}
