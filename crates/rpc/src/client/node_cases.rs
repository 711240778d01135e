//! What an agent that runs operators must do on the wire, case by case: requests that are wrong are refused with a Failed,
//! tensors are held and freed, and the agent serves on whatever it was asked. Whether the numbers are right is not judged
//! here; nothing is asked twice of a session that broke.

use super::connection::Connection;
use super::{Address, OperatorDevice, connect, offers, operators, tensors, token, wait_ms};
use crate::wire::limits::VERSION;
use crate::wire::{self, CallNode, Reply, Request, ToAgent, convert};
use bytes::Bytes;
use std::time::Duration;
use tapml_device::conformance::CaseOutcome;
use tapml_exec::ServedOp;
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{Context, DType, Error, ErrorKind, Result};
use tungstenite::Message;

/// How long an agent may show no sign of life.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Operators to test with if they are served, the best first: their outputs have the type of their first input.
const PREFERRED: [&str; 6] = ["rms_norm", "add", "mul", "layer_norm", "silu", "linear"];

/// One thing that an agent must do.
pub struct WireCase {
    /// The thing.
    pub name: &'static str,
    run: fn(&Tester) -> Result<CaseOutcome>,
}

impl WireCase {
    /// Tries it in sessions of its own. An error is what the agent should not have told.
    pub fn run(&self, tester: &Tester) -> CaseOutcome {
        (self.run)(tester)
            .unwrap_or_else(|error| CaseOutcome::Failed(format!("expected no error, found: {error}")))
    }
}

/// All cases.
pub fn cases() -> &'static [WireCase] {
    &[
        WireCase { name: "the list of devices names it with its operators", run: check_listed },
        WireCase { name: "an unknown version is refused", run: version },
        WireCase { name: "an unknown device is refused", run: unknown_device },
        WireCase { name: "nothing is served before a hello", run: before_hello },
        WireCase { name: "an operator that is not announced is refused", run: unknown_operator },
        WireCase { name: "attributes that are no JSON are refused", run: no_json },
        WireCase { name: "an unknown attribute is refused", run: unknown_attribute },
        WireCase { name: "a missing input is refused", run: missing_input },
        WireCase { name: "an input that is shorter than its type is refused", run: short_input },
        WireCase { name: "inputs whose shapes do not fit are refused", run: odd_shape },
        WireCase { name: "an unknown handle is refused", run: unknown_handle },
        WireCase { name: "held tensors are inputs", run: held_inputs },
        WireCase { name: "a tensor may come in pieces", run: pieces },
        WireCase { name: "an output may be held", run: held_output },
        WireCase { name: "a freed tensor is gone", run: check_freed },
        WireCase { name: "sessions do not see each other's tensors", run: check_apart },
        WireCase { name: "a request for a kernel's device is refused", run: kernels },
        WireCase { name: "a request that the schema does not have is refused", run: future },
        WireCase { name: "after bytes that are no message the agent lives on", run: garbage },
    ]
}

/// An agent, and a call that it must serve.
pub struct Tester {
    address: Address,
    sample: Sample,
    call: CallNode,
    /// Type and bytes of the call's only output.
    output: (wire::Tensor, Bytes),
}

impl Tester {
    /// Looks for an operator to test with, and calls it once.
    pub fn new(address: &Address, ops: &[ServedOp]) -> Result<Tester> {
        let sample = sample(ops).ok_or_else(|| {
            Error::unsupported(
                "no operator that is announced can be tested with: none takes f32 and has one output",
            )
        })?;
        let call = node(&sample)?;
        let mut tester = Tester { address: address.clone(), sample, call, output: Default::default() };
        let what = || format!("`{}`, {}", tester.sample.op.name(), tester.sample.name);
        tester.output = tester.session()?.call(tester.call.clone()).context(what)?;
        Ok(tester)
    }

    fn dial(&self) -> Result<Session> {
        let socket = connect::connect(&self.address)?;
        Ok(Session { connection: Connection::new(socket, self.address.place(), ANSWER_WITHIN) })
    }

    fn hello(&self, version_min: u32, version_max: u32, target: &str) -> Result<Request> {
        // A hub waits for agents that do not come; not for one that nobody is called.
        let wait_ms = if target == self.address.target { wait_ms(&self.address) } else { 1000 };
        let (token, target, client) = (token(&self.address)?, target.into(), "tapml device check".into());
        Ok(Request::Hello(wire::Hello {
            version_min,
            version_max,
            client,
            token,
            target,
            wait_ms,
            ..Default::default()
        }))
    }

    fn session(&self) -> Result<Session> {
        let mut session = self.dial()?;
        session.ask(self.hello(VERSION, VERSION, &self.address.target)?)?;
        Ok(session)
    }

    /// Passed if the request is refused by a Failed, of one of these kinds if there are any, and the session goes on.
    fn expect_refusal(
        &self,
        mut session: Session,
        request: Request,
        kinds: &[ErrorKind],
    ) -> Result<CaseOutcome> {
        let names = || kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
        let outcome = match session.ask(request) {
            Ok(reply) => failed_outcome("a Failed", describe_reply(&reply)),
            Err(error) if error.kind() == ErrorKind::DeviceLost => {
                failed_outcome("a Failed, and the session to go on", &error.to_string())
            }
            Err(error) if !kinds.is_empty() && !kinds.contains(&error.kind()) => failed_outcome(
                &format!("a Failed of kind {}", names()),
                &format!("{}: {error}", error.kind().name()),
            ),
            Err(_) => return self.serves(session),
        };
        Ok(outcome)
    }

    /// Passed if the session gives for the call what it gave before.
    fn serves(&self, mut session: Session) -> Result<CaseOutcome> {
        let again = session.call(self.call.clone()).context(|| "the next call".into())?;
        Ok(compare_outputs(&self.output, &again))
    }

    /// The call with another change.
    fn change_call(&self, change: impl FnOnce(&mut CallNode)) -> Request {
        let mut call = self.call.clone();
        change(&mut call);
        Request::CallNode(call)
    }
}

struct Session {
    connection: Connection,
}

impl Session {
    fn ask(&mut self, request: Request) -> Result<Reply> {
        let seq = self.connection.send(request, true)?;
        self.connection.wait(seq)
    }

    /// Type and bytes of the only output.
    fn call(&mut self, call: CallNode) -> Result<(wire::Tensor, Bytes)> {
        let Reply::NodeResult(result) = self.ask(Request::CallNode(call))? else {
            return Err(Error::invalid("a node is answered by something else than its result"));
        };
        match (<[wire::Tensor; 1]>::try_from(result.outputs), result.last) {
            (Ok([output]), true) => Ok((output, result.data)),
            (Ok(_), false) => Err(Error::invalid("a short result comes in pieces")),
            (Err(outputs), _) => Err(Error::invalid(format!("expected 1 output, found {}", outputs.len()))),
        }
    }

    fn put(&mut self, tensor: wire::Tensor, more: bool) -> Result<()> {
        match self.ask(Request::PutTensor(wire::PutTensor { tensor: Some(tensor), more }))? {
            Reply::Done(_) => Ok(()),
            other => Err(Error::invalid(format!(
                "a PutTensor is answered by {}, expected Done",
                describe_reply(&other)
            ))),
        }
    }
}

/// The first sample of an announced operator that takes f32 alone and has one output.
fn sample(ops: &[ServedOp]) -> Option<Sample> {
    let rest = OPS.iter().map(|info| info.name);
    let names = PREFERRED
        .into_iter()
        .chain(rest)
        .filter(|name| ops.iter().any(|op| op.name == *name && op.dtypes.contains(&DType::F32)));
    let samples =
        names.flat_map(|name| OPS.iter().find(|info| info.name == name)).flat_map(|info| (info.samples)());
    let plain = |sample: &Sample| {
        let types = sample.types();
        let outputs = sample.op.infer(&types).unwrap_or_default();
        !types.is_empty()
            && outputs.len() == 1
            && types.iter().chain(&outputs).all(|ty| ty.dtype == DType::F32)
    };
    samples.into_iter().find(plain)
}

fn node(sample: &Sample) -> Result<CallNode> {
    let tensors = sample.tensors(1)?;
    let input = |tensor: &tapml_graph::Tensor| wire::Tensor {
        data: Bytes::copy_from_slice(tensor.bytes()),
        ..tensors::wire_type(tensor)
    };
    Ok(CallNode {
        node: "check".into(),
        op: sample.op.name().into(),
        attributes: sample.op.attributes_text(),
        symbols: convert::symbols_to_wire(&sample.symbols)?,
        inputs: tensors.iter().map(input).collect(),
        keep: vec![0],
        outputs: Vec::new(),
    })
}

fn failed_outcome(expected: &str, found: &str) -> CaseOutcome {
    CaseOutcome::Failed(format!("expected {expected}, found {found}"))
}

/// A reply in words.
fn describe_reply(reply: &Reply) -> &'static str {
    match reply {
        Reply::Welcome(_) => "a Welcome",
        Reply::Done(_) => "Done",
        Reply::NodeResult(_) => "a NodeResult",
        _ => "another message",
    }
}

fn compare_outputs(expected: &(wire::Tensor, Bytes), found: &(wire::Tensor, Bytes)) -> CaseOutcome {
    let ty = |tensor: &wire::Tensor| format!("{}{:?}", tensor.dtype, tensor.shape);
    match (expected.0 == found.0, expected.1 == found.1) {
        (false, _) => failed_outcome(&ty(&expected.0), &ty(&found.0)),
        (_, false) => {
            let first = expected.1.iter().zip(&found.1).position(|(a, b)| a != b).unwrap_or(found.1.len());
            failed_outcome("the same bytes for the same call", &format!("others from byte {first} on"))
        }
        _ => CaseOutcome::Passed,
    }
}

fn held_tensor(handle: u32) -> wire::Tensor {
    wire::Tensor { handle, ..wire::Tensor::default() }
}

fn check_listed(tester: &Tester) -> Result<CaseOutcome> {
    let name = tester.address.target.split('?').next().unwrap_or_default();
    let all = offers(&tester.address)?;
    let devices = all.iter().filter_map(operators).collect::<Result<Vec<OperatorDevice>>>()?;
    let op = tester.sample.op.name();
    Ok(match devices.iter().find(|device| device.name == name) {
        None => {
            let names: Vec<&str> = all.iter().map(|offer| offer.name.as_str()).collect();
            failed_outcome(&format!("`{name}` with its operators"), &format!("[{}]", names.join(", ")))
        }
        Some(device) if device.ops.iter().any(|served| served.name == op) => CaseOutcome::Passed,
        Some(_) => {
            failed_outcome(&format!("`{op}` among its operators, as in the welcome"), "none of this name")
        }
    })
}

fn refused_hello(tester: &Tester, request: Request) -> Result<CaseOutcome> {
    Ok(match tester.dial()?.ask(request) {
        Ok(reply) => failed_outcome("a Failed", describe_reply(&reply)),
        Err(error) if error.kind() == ErrorKind::DeviceLost && error.message().contains("closed") => {
            failed_outcome("a Failed that says why, then the end", &error.to_string())
        }
        Err(_) => tester.serves(tester.session()?)?,
    })
}

fn version(tester: &Tester) -> Result<CaseOutcome> {
    refused_hello(tester, tester.hello(VERSION + 1000, VERSION + 1001, &tester.address.target)?)
}

fn unknown_device(tester: &Tester) -> Result<CaseOutcome> {
    refused_hello(tester, tester.hello(VERSION, VERSION, "no-such-device")?)
}

fn before_hello(tester: &Tester) -> Result<CaseOutcome> {
    Ok(match tester.dial()?.call(tester.call.clone()) {
        Ok(_) => failed_outcome("a Failed or the end of the connection", "a NodeResult"),
        Err(_) => tester.serves(tester.session()?)?,
    })
}

fn unknown_operator(tester: &Tester) -> Result<CaseOutcome> {
    let request = tester.change_call(|call| call.op = "no_such_operator".into());
    tester.expect_refusal(tester.session()?, request, &[ErrorKind::Unsupported])
}

fn no_json(tester: &Tester) -> Result<CaseOutcome> {
    let request = tester.change_call(|call| call.attributes = "{\"eps\":".into());
    tester.expect_refusal(tester.session()?, request, &[])
}

fn unknown_attribute(tester: &Tester) -> Result<CaseOutcome> {
    let request = tester.change_call(|call| {
        let rest = call.attributes.trim_start_matches('{').to_string();
        let comma = if rest.starts_with('}') { "" } else { "," };
        call.attributes = format!("{{\"no_such_attribute\":1{comma}{rest}");
    });
    tester.expect_refusal(tester.session()?, request, &[])
}

fn missing_input(tester: &Tester) -> Result<CaseOutcome> {
    tester.expect_refusal(tester.session()?, tester.change_call(|call| call.inputs.clear()), &[])
}

fn short_input(tester: &Tester) -> Result<CaseOutcome> {
    let request = tester.change_call(|call| {
        let data = &mut call.inputs[0].data;
        data.truncate(data.len() - 4);
    });
    tester.expect_refusal(tester.session()?, request, &[])
}

fn odd_shape(tester: &Tester) -> Result<CaseOutcome> {
    if tester.call.inputs.len() < 2 {
        return Ok(CaseOutcome::Skipped(format!("`{}` has one input", tester.call.op)));
    }
    let request = tester.change_call(|call| {
        let input = &mut call.inputs[0];
        // One more column than the others have.
        if let Some(columns) = input.shape.last_mut() {
            *columns += 1;
        }
        let len = input.shape.iter().product::<u64>() as usize * 4;
        input.data = Bytes::from(vec![0; len]);
    });
    tester.expect_refusal(tester.session()?, request, &[])
}

fn unknown_handle(tester: &Tester) -> Result<CaseOutcome> {
    tester.expect_refusal(tester.session()?, tester.change_call(|call| call.inputs[0] = held_tensor(77)), &[])
}

/// The call with its inputs put under 1, 2, ….
fn put_all(tester: &Tester, session: &mut Session) -> Result<CallNode> {
    let mut call = tester.call.clone();
    for (handle, input) in (1..).zip(&mut call.inputs) {
        session.put(wire::Tensor { handle, ..input.clone() }, false)?;
        *input = held_tensor(handle);
    }
    Ok(call)
}

fn held_inputs(tester: &Tester) -> Result<CaseOutcome> {
    let mut session = tester.session()?;
    let call = put_all(tester, &mut session)?;
    session.call(call.clone())?;
    Ok(compare_outputs(&tester.output, &session.call(call)?))
}

fn pieces(tester: &Tester) -> Result<CaseOutcome> {
    let (mut session, mut call) = (tester.session()?, tester.call.clone());
    let whole = call.inputs[0].clone();
    let half = whole.data.len() / 2;
    session.put(wire::Tensor { handle: 1, data: whole.data.slice(..half), ..whole.clone() }, true)?;
    session.put(wire::Tensor { handle: 1, data: whole.data.slice(half..), ..whole }, false)?;
    call.inputs[0] = held_tensor(1);
    Ok(compare_outputs(&tester.output, &session.call(call)?))
}

fn held_output(tester: &Tester) -> Result<CaseOutcome> {
    let call = tester.call.clone();
    let (ty, bytes) = &tester.output;
    if (&ty.dtype, &ty.shape) != (&call.inputs[0].dtype, &call.inputs[0].shape) {
        return Ok(CaseOutcome::Skipped(format!("`{}` does not take its own output", call.op)));
    }
    let with = |input: wire::Tensor| {
        let mut call = tester.call.clone();
        call.inputs[0] = input;
        call
    };
    let mut session = tester.session()?;
    let direct = session.call(with(wire::Tensor { data: bytes.clone(), ..ty.clone() }))?;
    let (kept, data) = session.call(CallNode { keep: vec![9], ..call })?;
    if kept != *ty || !data.is_empty() {
        return Ok(failed_outcome("the output's type and no data", &format!("{} bytes of data", data.len())));
    }
    Ok(compare_outputs(&direct, &session.call(with(held_tensor(9)))?))
}

fn check_freed(tester: &Tester) -> Result<CaseOutcome> {
    let mut session = tester.session()?;
    let call = put_all(tester, &mut session)?;
    for handle in [1, 1, 500] {
        // Freeing what is not there is no error, and is not answered.
        session.connection.send(Request::DropTensor(wire::DropTensor { handle }), true)?;
    }
    tester.expect_refusal(session, Request::CallNode(call), &[])
}

fn check_apart(tester: &Tester) -> Result<CaseOutcome> {
    let mut one = tester.session()?;
    let other = match tester.session() {
        Ok(other) => other,
        // A device may serve one client at a time; then it, or its hub, says so.
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            return Ok(CaseOutcome::Skipped(format!("there is no second session: {error}")));
        }
        Err(error) => return Err(error),
    };
    let call = put_all(tester, &mut one)?;
    tester.expect_refusal(other, Request::CallNode(call), &[])
}

fn kernels(tester: &Tester) -> Result<CaseOutcome> {
    tester.expect_refusal(tester.session()?, Request::Wait(wire::Wait {}), &[ErrorKind::Unsupported])
}

fn future(tester: &Tester) -> Result<CaseOutcome> {
    let mut socket = connect::connect(&tester.address)?;
    let hello = tester.hello(VERSION, VERSION, &tester.address.target)?;
    let broken =
        |e: tungstenite::Error| Error::new(ErrorKind::DeviceLost, format!("the connection broke: {e}"));
    let mut seen = Vec::new();
    for (seq, request) in [(1, Some(hello)), (2, None), (3, Some(Request::CallNode(tester.call.clone())))] {
        let mut bytes = wire::encode(&ToAgent { seq, request }).to_vec();
        if seq == 2 {
            // Field 1000, empty.
            bytes.extend([0xc2, 0x3e, 0]);
        }
        socket.link().write(Message::Binary(bytes.into())).map_err(broken)?;
        let start = std::time::Instant::now();
        while seen.len() < seq as usize && start.elapsed() < ANSWER_WITHIN {
            match socket.read() {
                // What a hub tells while a device is looked for is no answer.
                Ok(Message::Binary(bytes)) => seen.extend(
                    wire::decode_reply(bytes)?
                        .reply
                        .filter(|reply| !matches!(reply, Reply::Queued(_) | Reply::Leased(_))),
                ),
                Err(error) if crate::net::is_timeout(&error) => {}
                Ok(_) => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }
    Ok(match &seen[..] {
        [_, Reply::Failed(_), Reply::NodeResult(_)] => CaseOutcome::Passed,
        [_, Reply::Failed(_), ..] => failed_outcome("the next call to be served", "no result"),
        _ => failed_outcome("a Failed", "none"),
    })
}

fn garbage(tester: &Tester) -> Result<CaseOutcome> {
    for bytes in [&[0xff; 40][..], &[0x5a, 0xff, 0xff, 0xff, 0xff, 0x7f], b"GET / HTTP/1.1\r\n\r\n"] {
        let socket = connect::connect(&tester.address)?;
        // Whether it answers before it closes is its own choice.
        drop(socket.link().write(Message::Binary(Bytes::copy_from_slice(bytes))));
    }
    tester.serves(tester.session()?)
}
