//! Agents that run operators: a good one in this process, and ones that lie in every way that the schema leaves them.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use tapml_device::conformance::CaseOutcome;
use tapml_exec::{Gave, NodeCall, NodeInput, NodeServer};
use tapml_graph::op::{OPS, Sample};
use tapml_graph::{DType, ErrorKind, Result, Tensor, TensorType};
use tapml_rpc::client::node_cases::{Tester, cases};
use tapml_rpc::wire::{self, CallNode, NodeResult, Reply, Request, ToClient, convert};
use tapml_rpc::{Address, Remote, RemoteDevice, RemoteOperators};
use tungstenite::{Message, WebSocket};

/// What an agent answers to a call, given the honest answer.
type Lie = dyn Fn(&CallNode, NodeResult) -> Vec<Reply> + Send + Sync;

fn served_op(name: &str) -> wire::ServedOp {
    wire::ServedOp {
        name: name.into(),
        dtypes: vec!["f32".into(), "f16".into(), "bf16".into()],
        version: "1".into(),
        ..Default::default()
    }
}

fn info() -> wire::DeviceInfo {
    let ops = OPS.iter().map(|op| served_op(op.name)).collect();
    wire::DeviceInfo { platform: "test".into(), name: "Test".into(), ops, ..Default::default() }
}

/// An agent on a free port of this machine, which serves until the test's process ends.
fn agent(
    info: wire::DeviceInfo,
    lie: impl Fn(&CallNode, NodeResult) -> Vec<Reply> + Send + Sync + 'static,
) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let lie: Arc<Lie> = Arc::new(lie);
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let (info, lie) = (info.clone(), lie.clone());
            std::thread::spawn(move || session(tcp.unwrap(), info, lie.as_ref()));
        }
    });
    Address::parse(&format!("ws://127.0.0.1:{port}/test"), &[]).unwrap()
}

fn honest(_: &CallNode, result: NodeResult) -> Vec<Reply> {
    vec![Reply::NodeResult(result)]
}

/// The operators behind an address.
fn operators(address: &Address) -> RemoteOperators {
    match Remote::open(address).unwrap() {
        Remote::Operators(operators) => *operators,
        Remote::Device(_) => panic!("a device that runs kernels"),
    }
}

fn session(tcp: TcpStream, info: wire::DeviceInfo, lie: &Lie) {
    use tungstenite::handshake::server::{ErrorResponse, Request as Upgrade, Response};
    // The size of the error is the library's choice.
    #[allow(clippy::result_large_err)]
    let protocol = |_: &Upgrade, mut response: Response| -> std::result::Result<Response, ErrorResponse> {
        let name = wire::limits::PROTOCOL.parse().unwrap();
        response.headers_mut().insert("sec-websocket-protocol", name);
        Ok(response)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(tcp, protocol) else { return };
    let (mut held, mut partial) = (HashMap::new(), HashMap::new());
    let mut open = false;
    while let Ok(Message::Binary(bytes)) = socket.read() {
        let Ok(message) = wire::decode_request(bytes.clone()) else {
            // The fields before the request are known in every version.
            let seq = u64::from(bytes.get(1).copied().unwrap_or(0));
            say(&mut socket, seq, failed_reply(wire::ErrorKind::InvalidInput));
            continue;
        };
        let replies = match message.request.unwrap() {
            Request::Hello(hello) => match (hello.version_min, hello.target.as_str()) {
                (1, "" | "test") => {
                    open = true;
                    vec![welcome(&info, !hello.target.is_empty())]
                }
                _ => {
                    say(&mut socket, message.seq, failed_reply(wire::ErrorKind::Unsupported));
                    return;
                }
            },
            _ if !open => return,
            Request::PutTensor(put) => {
                let tensor = put.tensor.unwrap();
                let data: &mut Vec<u8> = partial.entry(tensor.handle).or_default();
                data.extend(&tensor.data);
                if !put.more {
                    let data = Bytes::from(partial.remove(&tensor.handle).unwrap());
                    held.insert(tensor.handle, wire::Tensor { handle: 0, data, ..tensor });
                }
                vec![Reply::Done(wire::Done {})]
            }
            Request::DropTensor(drop) => {
                held.remove(&drop.handle);
                Vec::new()
            }
            Request::CallNode(call) => match run(&call, &mut held) {
                Ok(result) => lie(&call, result),
                Err(error) => vec![Reply::Failed(convert::error_to_wire(&error))],
            },
            _ => vec![failed_reply(wire::ErrorKind::Unsupported)],
        };
        for reply in replies {
            say(&mut socket, message.seq, reply);
        }
    }
}

fn say(socket: &mut WebSocket<TcpStream>, seq: u64, reply: Reply) {
    // A client that has seen enough is gone.
    drop(socket.send(Message::Binary(wire::encode(&ToClient { seq, reply: Some(reply) }))));
}

fn failed_reply(kind: wire::ErrorKind) -> Reply {
    Reply::Failed(wire::Failed { kind: kind.into(), message: "refused".into(), ..Default::default() })
}

fn welcome(info: &wire::DeviceInfo, one: bool) -> Reply {
    let limits = Some(wire::SessionLimits { window: 1 << 20, ..Default::default() });
    let offer = wire::Offer { name: "test".into(), info: Some(info.clone()), ..Default::default() };
    let device = one.then(|| info.clone());
    let devices = if one { Vec::new() } else { vec![offer] };
    Reply::Welcome(wire::Welcome { version: 1, device, devices, limits, ..Default::default() })
}

/// The reference.
fn run(call: &CallNode, held: &mut HashMap<u32, wire::Tensor>) -> Result<NodeResult> {
    let symbols = convert::symbols_from_wire(&call.symbols)?;
    let op = tapml_graph::Op::parse_text(&call.op, &call.attributes)?;
    let tensor = |given: &wire::Tensor| {
        let missing = || tapml_graph::Error::invalid(format!("no tensor {}", given.handle));
        let t = if given.handle > 0 { held.get(&given.handle).ok_or_else(missing)? } else { given };
        let shape = t.shape.iter().map(|&size| size as usize).collect();
        Tensor::new(DType::parse(&t.dtype).unwrap(), shape, tapml_graph::Bytes::new(t.data.to_vec()))
    };
    let inputs = call.inputs.iter().map(tensor).collect::<Result<Vec<_>>>()?;
    let outputs = tapml_reference::eval::<f32>(
        &op,
        &symbols,
        &inputs.iter().map(tapml_reference::Value::from_tensor).collect::<Result<Vec<_>>>()?,
    )?;
    let dtype = inputs.first().map_or(DType::F32, Tensor::dtype);
    let mut result = NodeResult { last: true, ..Default::default() };
    let mut data = Vec::new();
    for (output, &keep) in outputs.iter().zip(&call.keep) {
        let output = output.to_tensor(dtype)?;
        let shape: Vec<u64> = output.shape().iter().map(|&size| size as u64).collect();
        let ty = wire::Tensor { dtype: dtype.name().into(), shape, ..Default::default() };
        match keep {
            0 => data.extend_from_slice(output.bytes()),
            _ => drop(held.insert(keep, wire::Tensor { data: output.bytes().to_vec().into(), ..ty.clone() })),
        }
        result.outputs.push(ty);
    }
    result.data = data.into();
    Ok(result)
}

fn sample(op: &str) -> Sample {
    (OPS.iter().find(|info| info.name == op).unwrap().samples)().remove(0)
}

fn call_with(operators: &mut RemoteOperators, sample: &Sample, keep: bool) -> Result<Vec<Gave>> {
    let tensors = sample.tensors(3)?;
    let outputs: Vec<TensorType> = sample.op.infer_bound(&sample.types(), &sample.symbols)?;
    operators.call(&NodeCall {
        node: "a.node",
        op: &sample.op,
        symbols: &sample.symbols,
        inputs: tensors.iter().map(NodeInput::Here).collect(),
        constants: vec![false; tensors.len()],
        keep: vec![keep; outputs.len()],
        outputs,
    })
}

fn call(operators: &mut RemoteOperators, op: &str) -> Result<Vec<Gave>> {
    call_with(operators, &sample(op), false)
}

fn bytes(gave: &[Gave]) -> Vec<u8> {
    let of = |gave: &Gave| match gave {
        Gave::Here(tensor) => tensor.bytes().to_vec(),
        Gave::Held(_) => panic!("held"),
    };
    gave.iter().flat_map(of).collect()
}

#[test]
fn nodes_run_with_tensors_from_here_and_held_ones() {
    let mut there = operators(&agent(info(), honest));
    assert_eq!(there.describe().platform, "test");
    assert_eq!(there.ops().len(), OPS.len());
    let sample = sample("add_rms_norm");
    let direct = call_with(&mut there, &sample, false).unwrap();
    assert_eq!(direct.len(), 2);
    let held = call_with(&mut there, &sample, true).unwrap();
    assert!(matches!(held[..], [Gave::Held(a), Gave::Held(b)] if a != b));
    // Larger than a message may be: put first, in pieces.
    let rows = 5000;
    let tensor = Tensor::from_f32(vec![rows, 1000], (0..rows * 1000).map(|i| i as f32).collect()).unwrap();
    let ty = TensorType::new(DType::F32, [rows, 1000]);
    let silu = tapml_graph::op::Silu {}.into();
    let symbols = tapml_graph::Symbols::np(rows as u64, 0);
    let gave = there.call(&NodeCall {
        node: "large",
        op: &silu,
        symbols: &symbols,
        inputs: vec![NodeInput::Here(&tensor)],
        constants: vec![false],
        outputs: vec![ty],
        keep: vec![true],
    });
    let [Gave::Held(handle)] = gave.unwrap()[..] else { panic!("not held") };
    there.release(handle).unwrap();
    let error = RemoteDevice::open(&agent(info(), honest)).err().unwrap();
    assert!(error.to_string().contains("runs operators, no kernels"), "{error}");
}

#[test]
fn a_good_agent_passes_every_case_of_the_wire() {
    let address = agent(info(), honest);
    let tester = Tester::new(&address, operators(&address).ops()).unwrap();
    for case in cases() {
        assert_eq!(case.run(&tester), CaseOutcome::Passed, "{}", case.name);
    }
}

#[test]
fn results_in_pieces_are_joined() {
    let whole = bytes(&call(&mut operators(&agent(info(), honest)), "silu").unwrap());
    let address = agent(info(), |_, result| {
        let chunks: Vec<Bytes> = result.data.chunks(100).map(Bytes::copy_from_slice).collect();
        let part = |(i, data): (usize, &Bytes)| {
            let outputs = if i == 0 { result.outputs.clone() } else { Vec::new() };
            Reply::NodeResult(NodeResult { outputs, data: data.clone(), last: i + 1 == chunks.len() })
        };
        chunks.iter().enumerate().map(part).collect()
    });
    assert_eq!(bytes(&call(&mut operators(&address), "silu").unwrap()), whole);
}

#[test]
fn wrong_results_are_named_and_the_next_call_is_served() {
    type Change = fn(NodeResult) -> Vec<Reply>;
    let lies: [(&str, Change); 9] = [
        ("output 0: expected f32[9,320], found f32[9,321]", |mut r| {
            r.outputs[0].shape[1] += 1;
            vec![Reply::NodeResult(r)]
        }),
        ("output 0: expected f32[9,320], found f16[9,320]", |mut r| {
            r.outputs[0].dtype = "f16".into();
            vec![Reply::NodeResult(r)]
        }),
        ("output 0: expected f32[9,320], found odd\\n[9007199254740991,9007199254740991]", |mut r| {
            r.outputs[0] =
                wire::Tensor { dtype: "odd\n".into(), shape: vec![(1 << 53) - 1; 2], ..Default::default() };
            vec![Reply::NodeResult(r)]
        }),
        ("expected 1 outputs, found 2", |mut r| {
            r.outputs.push(r.outputs[0].clone());
            vec![Reply::NodeResult(r)]
        }),
        ("expected 1 outputs, found 0", |mut r| {
            r.outputs.clear();
            r.data.clear();
            vec![Reply::NodeResult(r)]
        }),
        ("expected 11520 bytes of results, found 11516", |mut r| {
            r.data.truncate(11516);
            vec![Reply::NodeResult(r)]
        }),
        ("something else than its result", |_| vec![Reply::Done(wire::Done {})]),
        ("the agent failed: refused", |_| vec![failed_reply(wire::ErrorKind::Bug)]),
        ("refused", |_| vec![failed_reply(wire::ErrorKind::Unsupported)]),
    ];
    for (text, change) in lies {
        let address = agent(info(), move |call, result| match call.op.as_str() {
            "silu" => change(result),
            _ => honest(call, result),
        });
        let mut there = operators(&address);
        let error = call(&mut there, "silu").unwrap_err();
        assert!(error.to_string().contains(text), "expected `{text}`, found `{error}`");
        let unsupported = text == "refused";
        assert_eq!(error.kind() == ErrorKind::Unsupported, unsupported, "{error}");
        assert_eq!(error.kind() == ErrorKind::InvalidInput, !unsupported, "{error}");
        call(&mut there, "add").unwrap();
    }
}

#[test]
fn results_without_end_lose_the_agent() {
    let more = |data: Vec<u8>| {
        move |_: &CallNode, result: NodeResult| {
            let first = NodeResult { last: false, ..result };
            let next = NodeResult { data: data.clone().into(), ..Default::default() };
            vec![Reply::NodeResult(first), Reply::NodeResult(next)]
        }
    };
    for (data, text) in [(vec![0; 4096], "where 11520 belong"), (Vec::new(), "without data and without end")]
    {
        let mut there = operators(&agent(info(), more(data)));
        let error = call(&mut there, "silu").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(call(&mut there, "add").unwrap_err().kind(), ErrorKind::DeviceLost);
    }
}

#[test]
fn nan_is_a_value_and_no_error_of_the_wire() {
    let address = agent(info(), |_, mut result| {
        result.data = f32::NAN.to_le_bytes().repeat(result.data.len() / 4).into();
        vec![Reply::NodeResult(result)]
    });
    let gave = bytes(&call(&mut operators(&address), "silu").unwrap());
    assert!(gave.chunks_exact(4).all(|b| f32::from_le_bytes(b.try_into().unwrap()).is_nan()));
}

#[test]
fn announcements_that_make_no_sense_are_refused() {
    let odd = |change: &dyn Fn(&mut wire::DeviceInfo)| {
        let mut lied = info();
        change(&mut lied);
        Remote::open(&agent(lied, honest)).err().unwrap().to_string()
    };
    let text = odd(&|info| info.platform = "a b".into());
    assert!(text.contains("must be a word"), "{text}");
    let text = odd(&|info| info.ops[0].dtypes.push("f33".into()));
    assert!(text.contains("unknown dtype `f33`"), "{text}");
    let text = odd(&|info| info.ops[0].accumulate = "u32".into());
    assert!(text.contains("floating-point dtype of sums"), "{text}");
    let text = odd(&|info| info.ops = vec![served_op("x"); 2000]);
    assert!(text.contains("2000 operators, at most 1024"), "{text}");
    let text = odd(&|info| info.ops[0].version = "v".repeat(65));
    assert!(text.contains("65 bytes of version"), "{text}");
    // Without a version nothing is believed later.
    let mut unversioned = info();
    unversioned.ops[0].version = String::new();
    let address = agent(unversioned, honest);
    let version = || operators(&address).ops()[0].version.clone();
    assert_ne!(version(), version());
}
