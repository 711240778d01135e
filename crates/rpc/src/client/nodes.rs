//! A device that runs operators itself: nodes are sent to it, and tensors to hold for them.

use super::again::Origin;
use super::connection::Connection;
use super::tensors::{absent, output_type, wire_tensor, wire_type};
use crate::wire::limits::{MAX_MESSAGE, PIECE};
use crate::wire::{self, Reply, Request, convert};
use bytes::{Bytes, BytesMut};
use std::fmt;
use tapml_exec::{Gave, NodeCall, NodeInput, NodeServer, PlatformInfo, Region, ServedOp};
use tapml_graph::op::{DeclaredType, Foreign};
use tapml_graph::{Context, DType, Error, ErrorKind, Op, Result, Symbols, Tensor, TensorType, byte_len};

/// Bytes of inputs that travel with a call; further ones are put first.
const WITH_CALL: usize = MAX_MESSAGE / 2;

/// The detail that tells the type of an output that has another one than the graph says.
const FOUND: &str = "found";

/// Bytes of results of wrong types that are received, so that the session can go on.
const FORGIVEN: u64 = 1 << 30;

/// Operators behind an agent. Every call waits for the agent.
///
/// What the agent sends is believed only as far as types, sizes and numbers of outputs are those that the call names;
/// else the error tells operator, output, what was expected and what was found. A lost connection and results that do
/// not end are [`tapml_graph::ErrorKind::DeviceLost`].
pub struct RemoteOperators {
    connection: Connection,
    origin: Origin,
    info: PlatformInfo,
    ops: Vec<ServedOp>,
    /// Whether each operator's code is told: else another session's may be of other code.
    versioned: bool,
    /// Handles given so far.
    handles: u32,
}

/// A type on the wire, whether or not it makes sense.
struct Shown<'a>(&'a wire::Tensor);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.shape.iter().map(u64::to_string).collect();
        write!(f, "{}[{}]", self.0.dtype.escape_debug(), sizes.join(","))
    }
}

impl RemoteOperators {
    /// The operators that the welcome announces.
    pub(super) fn new(
        connection: Connection,
        origin: Origin,
        info: &wire::DeviceInfo,
    ) -> Result<RemoteOperators> {
        let versioned = info.ops.iter().all(|op| !op.version.is_empty());
        let (mut info, ops) = read_announcement(info)?;
        info.device = format!("{} at {}", info.device, connection.place());
        Ok(RemoteOperators { connection, origin, info, ops, versioned, handles: 0 })
    }

    fn handle(&mut self) -> Result<u32> {
        // Handles are not used a second time: a late message about an old one would mean the new one.
        let next = self.handles.checked_add(1).ok_or_else(|| {
            Error::unsupported("this connection has used all its handles")
                .with_hint("connect to the agent again")
        })?;
        self.handles = next;
        Ok(next)
    }

    /// Sends a request and waits for its reply.
    fn ask(&mut self, request: Request) -> Result<Reply> {
        let seq = self.connection.send(request, true)?;
        self.wait(seq)
    }

    fn wait(&mut self, seq: u64) -> Result<Reply> {
        self.connection.wait(seq).map_err(|error| match error.kind() {
            // A bug of the agent's, which is no bug here.
            ErrorKind::Bug => {
                let text = format!("the agent failed: {}", error.message());
                error
                    .details()
                    .iter()
                    .fold(Error::invalid(text), |e, (name, value)| e.with_detail(name, value))
            }
            _ => error,
        })
    }

    /// Inputs for the wire, and handles of those that were put for this call alone.
    fn inputs(&mut self, call: &NodeCall<'_>) -> Result<(Vec<wire::Tensor>, Vec<u32>)> {
        let (mut inputs, put) = self.ordered_inputs(&call.inputs, &call.constants)?;
        if let Op::Foreign(op) = call.op {
            // An agent finds inputs by their place in the operator's declaration, absent ones among them.
            inputs = op.place_inputs(inputs).into_iter().map(|input| input.unwrap_or_else(absent)).collect();
        }
        Ok((inputs, put))
    }

    /// As [`RemoteOperators::inputs`], in their own order.
    pub(super) fn ordered_inputs(
        &mut self,
        given: &[NodeInput<'_>],
        constants: &[bool],
    ) -> Result<(Vec<wire::Tensor>, Vec<u32>)> {
        let (mut inputs, mut put, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (given, &constant) in given.iter().zip(constants) {
            let held = |handle| wire::Tensor { handle, ..wire::Tensor::default() };
            let input = match given {
                NodeInput::Held(handle) => held(*handle),
                // What a message has no room for goes before it, in pieces.
                NodeInput::Here(tensor) if bytes + tensor.bytes().len() <= WITH_CALL => {
                    bytes += tensor.bytes().len();
                    wire_tensor(tensor)
                }
                NodeInput::Here(tensor) => {
                    let handle = self.put(tensor)?;
                    put.push(handle);
                    held(handle)
                }
            };
            inputs.push(wire::Tensor { constant, ..input });
        }
        Ok((inputs, put))
    }

    fn run(&mut self, call: &NodeCall<'_>, inputs: Vec<wire::Tensor>) -> Result<Vec<Gave>> {
        let keep = call.keep.iter().map(|&keep| if keep { self.handle() } else { Ok(0) });
        let keep = keep.collect::<Result<Vec<u32>>>()?;
        let places = Places::from_op(call.op);
        let node = wire::CallNode {
            node: call.node.into(),
            op: call.op.name().into(),
            attributes: call.op.attributes_text(),
            symbols: convert::symbols_to_wire(call.symbols)?,
            inputs,
            keep: places.spread(&keep, 0),
            outputs: places.declared_types(),
        };
        let seq = self.connection.send(Request::CallNode(node), true)?;
        let outputs = self.results(seq, call);
        // The agent may have kept some outputs before it failed.
        if outputs.is_err() {
            for &handle in keep.iter().filter(|&&handle| handle > 0) {
                // If the connection is lost, the call's own error says so.
                drop(self.release(handle));
            }
        }
        let mut sent = outputs?.into_iter();
        let gave = keep.into_iter().map(|handle| match handle {
            0 => sent.next().map(Gave::Here).ok_or_else(|| Error::bug("an output was not received")),
            handle => Ok(Gave::Held(handle)),
        });
        gave.collect()
    }

    /// Receives the outputs of a call that are not held.
    fn results(&mut self, seq: u64, call: &NodeCall<'_>) -> Result<Vec<Tensor>> {
        let mut part = self.part(seq)?;
        // An output that was not asked for has a place and no bytes.
        part.outputs.retain(|output| !output.absent);
        let sent: Vec<&TensorType> =
            call.outputs.iter().zip(&call.keep).filter(|(_, keep)| !**keep).map(|(ty, _)| ty).collect();
        let sizes = sent.iter().map(|ty| Ok((ty.dtype, ty.sizes(call.symbols)?)));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let lens = sizes.iter().map(|(dtype, shape)| byte_len(*dtype, shape));
        let lens = lens
            .collect::<Option<Vec<usize>>>()
            .ok_or_else(|| Error::invalid("the outputs are too large"))?;
        let need: usize = lens.iter().sum();
        let wrong = types(call, &part.outputs).err();
        // Outputs of wrong types are read to their end, so that the connection serves on, up to a bound: an
        // agent may claim anything.
        let most = match wrong {
            None => need as u64,
            Some(_) => claimed_bytes(call, &part.outputs).min(FORGIVEN).max(need as u64),
        };
        let (mut data, mut have) = (BytesMut::new(), 0);
        loop {
            have += part.data.len() as u64;
            if have > most {
                let text = format!("`{}` of {} bytes or more where {most} belong", call.op.name(), have);
                return Err(self.connection.lose(&format!("the agent sent results of {text}")));
            }
            if wrong.is_none() {
                data.extend_from_slice(&part.data);
            }
            if part.last {
                break;
            }
            part = self.part(seq)?;
            if part.data.is_empty() && !part.last {
                return Err(self.connection.lose("the agent sends results without data and without end"));
            }
        }
        if let Some(error) = wrong {
            return Err(error);
        }
        if data.len() != need {
            let text = format!("expected {need} bytes of results, found {}", data.len());
            return Err(Error::invalid(text).context(format!("operator `{}`", call.op.name())));
        }
        let (bytes, mut at) = (tapml_graph::Bytes::new(data.freeze()), 0);
        let cut = |((dtype, shape), len): ((DType, Vec<usize>), usize)| {
            let part = bytes.slice(at, len).ok_or_else(|| Error::bug("results end early"))?;
            at += len;
            Tensor::new(dtype, shape, part)
        };
        sizes.into_iter().zip(lens).map(cut).collect()
    }

    /// Receives outputs of types that the agent tells, at most [`FORGIVEN`] bytes.
    fn receive_outputs(&mut self, seq: u64, asked: usize) -> Result<Vec<Tensor>> {
        let mut part = self.part(seq)?;
        let types: Vec<wire::Tensor> = part.outputs.drain(..).filter(|output| !output.absent).collect();
        let mut sizes = Vec::new();
        for found in &types {
            let unknown = || Error::invalid(format!("an output is {}, which no graph holds", Shown(found)));
            // Packed weights are no results of operators.
            let dtype = DType::parse(&found.dtype).filter(|d| d.packing().is_none()).ok_or_else(unknown)?;
            let shape = found.shape.iter().map(|&size| usize::try_from(size).map_err(|_| unknown()));
            let shape = shape.collect::<Result<Vec<_>>>()?;
            let len = byte_len(dtype, &shape).filter(|&len| len as u64 <= FORGIVEN).ok_or_else(unknown)?;
            sizes.push((dtype, shape, len));
        }
        // Saturating: the sizes are claims, and the sum is held against the bound below.
        let need = sizes.iter().fold(0usize, |sum, (_, _, len)| sum.saturating_add(*len));
        let mut data = BytesMut::new();
        loop {
            if data.len() + part.data.len() > need.min(FORGIVEN as usize) {
                return Err(self.connection.lose("the agent sent more results than it announced"));
            }
            data.extend_from_slice(&part.data);
            if part.last {
                break;
            }
            part = self.part(seq)?;
            if part.data.is_empty() && !part.last {
                return Err(self.connection.lose("the agent sends results without data and without end"));
            }
        }
        if (sizes.len(), data.len()) != (asked, need) {
            let (count, bytes) = (sizes.len(), data.len());
            let text = format!("expected {asked} outputs of {need} bytes, found {count} of {bytes}");
            return Err(Error::invalid(text));
        }
        let (bytes, mut at) = (tapml_graph::Bytes::new(data.freeze()), 0);
        let cut = |(dtype, shape, len): (DType, Vec<usize>, usize)| {
            let part = bytes.slice(at, len).ok_or_else(|| Error::bug("results end early"))?;
            at += len;
            Tensor::new(dtype, shape, part)
        };
        sizes.into_iter().map(cut).collect()
    }

    /// The outputs that a request is answered with, of types that the agent tells.
    pub(super) fn request_outputs(&mut self, request: Request, asked: usize) -> Result<Vec<Tensor>> {
        let seq = self.connection.send(request, true)?;
        self.receive_outputs(seq, asked)
    }

    /// Frees a tensor that was put for one call.
    pub(super) fn free(&mut self, handle: u32) -> Result<()> {
        self.release(handle)
    }

    fn part(&mut self, seq: u64) -> Result<wire::NodeResult> {
        match self.wait(seq)? {
            Reply::NodeResult(result) => Ok(result),
            _ => Err(Error::invalid("the agent answers a node with something else than its result")),
        }
    }
}

impl NodeServer for RemoteOperators {
    fn describe(&self) -> &PlatformInfo {
        &self.info
    }

    fn ops(&self) -> &[ServedOp] {
        &self.ops
    }

    fn reopens(&self) -> bool {
        self.versioned
    }

    fn reopen(&mut self, lost: Error) -> Result<()> {
        if !self.versioned {
            return Err(lost.with_detail(
                "connecting again",
                "not tried: operators without a version may be others then",
            ));
        }
        self.connection = self.origin.open(&self.connection, lost)?;
        Ok(())
    }

    fn put(&mut self, tensor: &Tensor) -> Result<u32> {
        let handle = self.handle()?;
        let bytes: &[u8] = tensor.bytes();
        let pieces = bytes.len().div_ceil(PIECE).max(1);
        for i in 0..pieces {
            let data = &bytes[i * PIECE..bytes.len().min((i + 1) * PIECE)];
            let piece = wire::Tensor { handle, data: Bytes::copy_from_slice(data), ..wire_type(tensor) };
            let put = wire::PutTensor { tensor: Some(piece), more: i + 1 < pieces };
            let Reply::Done(_) = self.ask(Request::PutTensor(put))? else {
                return Err(Error::invalid(
                    "the agent answers a tensor to hold with something else than done",
                ));
            };
        }
        Ok(handle)
    }

    fn release(&mut self, handle: u32) -> Result<()> {
        let request = Request::DropTensor(wire::DropTensor { handle });
        self.connection.send(request, false).map(drop)
    }

    fn discover(&mut self, node: &str, op: &Foreign, inputs: &[(Tensor, bool)]) -> Result<Vec<Tensor>> {
        let (name, op) = (op.kind(), Op::Foreign(op.clone()));
        let symbols = Symbols::new();
        let call = NodeCall {
            node,
            op: &op,
            symbols: &symbols,
            inputs: inputs.iter().map(|(tensor, _)| NodeInput::Here(tensor)).collect(),
            constants: inputs.iter().map(|(_, constant)| *constant).collect(),
            outputs: Vec::new(),
            keep: Vec::new(),
        };
        let (inputs, put) = self.inputs(&call)?;
        let places = Places::from_op(&op);
        let asked = places.0.iter().flat_map(|places| places.iter()).filter(|place| place.is_asked()).count();
        let request = wire::CallNode {
            node: node.into(),
            op: name.into(),
            attributes: op.attributes_text(),
            symbols: Vec::new(),
            inputs,
            keep: places.spread(&vec![0; asked], 0),
            outputs: places.declared_types(),
        };
        let gave = self.request_outputs(Request::CallNode(request), asked);
        for handle in put {
            // If the connection is lost, the call's own error says so.
            drop(self.release(handle));
        }
        gave
    }

    fn run_region(&mut self, region: &Region) -> Result<Vec<Tensor>> {
        self.call_region(region)
    }

    fn call(&mut self, call: &NodeCall<'_>) -> Result<Vec<Gave>> {
        let (inputs, put) = self.inputs(call)?;
        let gave = self.run(call, inputs);
        for handle in put {
            // If the connection is lost, the call's own error says so.
            drop(self.release(handle));
        }
        gave
    }
}

/// The places of a node's outputs on the wire: those of an operator of others that nobody asks for are marked.
struct Places<'a>(Option<&'a [DeclaredType]>);

impl<'a> Places<'a> {
    fn from_op(op: &'a Op) -> Places<'a> {
        match op {
            Op::Foreign(op) => Places(Some(op.outputs())),
            _ => Places(None),
        }
    }

    /// What belongs to the outputs that are asked for, at their places.
    fn spread<T: Copy>(&self, given: &[T], none: T) -> Vec<T> {
        let Some(places) = self.0 else { return given.to_vec() };
        let mut given = given.iter().copied();
        places.iter().map(|p| if p.is_asked() { given.next().unwrap_or(none) } else { none }).collect()
    }

    /// Types at their places; nothing of operators whose types are inferred at both ends.
    fn declared_types(&self) -> Vec<wire::Tensor> {
        let one = |place: &DeclaredType| match place {
            DeclaredType::As(ty) => output_type(ty),
            DeclaredType::Unknown => wire::Tensor::default(),
            DeclaredType::Absent => absent(),
        };
        self.0.map(|places| places.iter().map(one).collect()).unwrap_or_default()
    }
}

impl Drop for RemoteOperators {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// Fails unless these are the types that the call names.
fn types(call: &NodeCall<'_>, found: &[wire::Tensor]) -> Result<()> {
    let wrong = |text: String| Err(Error::invalid(text).context(format!("operator `{}`", call.op.name())));
    if found.len() != call.outputs.len() {
        return wrong(format!("expected {} outputs, found {}", call.outputs.len(), found.len()));
    }
    for (i, (ty, found)) in call.outputs.iter().zip(found).enumerate() {
        let sizes = ty.sizes(call.symbols)?;
        let same = sizes.iter().map(|&size| size as u64).eq(found.shape.iter().copied());
        if !same || found.dtype != ty.dtype.name() {
            return wrong(format!("output {i}: expected {ty}, found {}", Shown(found)))
                .map_err(|e| e.with_detail(FOUND, Shown(found).to_string()));
        }
        if !found.data.is_empty() {
            return wrong(format!(
                "output {i}: expected its data in `data` of the result, found it with its type"
            ));
        }
    }
    Ok(())
}

/// The bytes that outputs of these types have, those that are held left out.
fn claimed_bytes(call: &NodeCall<'_>, found: &[wire::Tensor]) -> u64 {
    let held = |i: usize| call.keep.get(i) == Some(&true);
    let sent = found.iter().enumerate().filter(|(i, _)| !held(*i));
    let bytes = sent.map(|(_, tensor)| {
        let element = DType::parse(&tensor.dtype).map_or(8, DType::size) as u64;
        tensor.shape.iter().fold(element, |product, &size| product.saturating_mul(size))
    });
    bytes.fold(0, u64::saturating_add)
}

/// Identity and operators of a device that announces some.
pub(super) fn read_announcement(info: &wire::DeviceInfo) -> Result<(PlatformInfo, Vec<ServedOp>)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if info.platform.is_empty() || info.platform.len() > 64 || !info.platform.chars().all(plain) {
        let found = info.platform.escape_debug();
        return Err(Error::invalid(format!(
            "the device's platform must be a word of at most 64 letters, digits, `-` and `_`, found `{found}`"
        )));
    }
    let ops = info.ops.iter().map(read_served).collect::<Result<Vec<_>>>()?;
    let (platform, device, driver) = (info.platform.clone(), info.name.clone(), info.driver.clone());
    Ok((PlatformInfo { platform, device, driver }, ops))
}

fn read_served(op: &wire::ServedOp) -> Result<ServedOp> {
    let dtype = |name: &String| {
        DType::parse(name).ok_or_else(|| {
            let known: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
            Error::invalid(format!("unknown dtype `{}`", name.escape_debug()))
                .with_hint(format!("known: {}", known.join(", ")))
        })
    };
    let read = || {
        let dtypes = op.dtypes.iter().map(dtype).collect::<Result<Vec<_>>>()?;
        let accumulate = match op.accumulate.as_str() {
            "" => DType::F32,
            name => dtype(&name.into())?,
        };
        if !accumulate.is_float() {
            return Err(Error::invalid(format!(
                "expected a floating-point dtype of sums, found {accumulate}"
            )));
        }
        let version = match op.version.as_str() {
            "" => unique_version()?,
            version => version.into(),
        };
        Ok(ServedOp { name: op.name.clone(), dtypes, accumulate, version })
    };
    read().context(|| format!("operator `{}`", op.name.escape_debug()))
}

/// A version that no other session gets: nothing that was found is believed later.
fn unique_version() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::bug(format!("the system gives no random numbers: {e}")))?;
    Ok(format!("session-{:016x}", u64::from_le_bytes(bytes)))
}
