//! One batch: upload all inputs, one list of dispatches, one submission, read all outputs.
//!
//! Grids are evaluated here, because calls of one batch have different symbols. What was made is freed in
//! every case.

use super::layout::{BufferRange, ReplayBuffer, ReplayLayout, Role};
use super::ready::ReadyCall;
use crate::device::state::PlatformState;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tapml_device::{Binding, BufferId, Command, Device, DeviceInfo, ListId};
use tapml_graph::{Bytes, Error, Extent, Result, Symbols, Tensor};
use tapml_kernels::{Arg, Launch, Scratch, symbol_bytes};

/// What outputs and scratch hold before a kernel writes them: a NaN in `f32`, in `f16` and in `bf16`, so that what a
/// kernel leaves out shows.
pub(in crate::device) const POISON: u32 = 0x7fc0_7fc0;

// Below it a copy into a shared buffer costs less than a buffer of its own.
/// Bytes from which an input is written from where it is.
const LARGE: usize = 16 << 20;

/// What buffers are filled with.
type Filled<'a> = HashMap<(Role, usize), Cow<'a, [u8]>>;

/// Where the values of one item lie.
struct ItemPlaces {
    /// The call's `n` and `p`.
    symbols: BufferRange,
    inputs: Vec<Input>,
    /// With the shape of each.
    outputs: Vec<(BufferRange, Vec<usize>)>,
    /// In the plan's order.
    scratch: Vec<BufferRange>,
}

/// Where an input lies.
enum Input {
    /// Uploaded with the batch.
    Value(BufferRange),
    /// Kept on the device from batch to batch.
    Weight,
}

/// Buffers and the list of a batch, freed together.
#[derive(Default)]
struct Held {
    buffers: HashMap<(Role, usize), BufferId>,
    list: Option<ListId>,
}

/// The outputs of the items, in their order.
pub(super) fn run(
    inner: &mut PlatformState,
    info: &DeviceInfo,
    items: &[ReadyCall<'_>],
) -> Result<Vec<Vec<Tensor>>> {
    let mut held = Held::default();
    // Weights that this batch uses must not make way for each other.
    inner.weights.start();
    let outputs = perform(inner, info, items, &mut held);
    let device = inner.device.as_mut();
    // The list first: it refers to the buffers.
    let mut freed = held.list.map_or(Ok(()), |list| device.destroy_list(list));
    for buffer in held.buffers.into_values() {
        freed = freed.and(device.destroy_buffer(buffer));
    }
    // An error of the run is the cause; one of freeing would hide it.
    let outputs = outputs?;
    freed.map(|()| outputs)
}

/// Lays out, uploads, records, runs, reads.
fn perform(
    inner: &mut PlatformState,
    info: &DeviceInfo,
    items: &[ReadyCall<'_>],
    held: &mut Held,
) -> Result<Vec<Vec<Tensor>>> {
    let limits = &info.limits;
    let mut layout =
        ReplayLayout::new(u64::from(limits.min_offset_alignment).max(256), limits.max_buffer_size);
    let mut filled: Filled<'_> = HashMap::new();
    let mut known = HashMap::new();
    let places: Vec<ItemPlaces> = items
        .iter()
        .map(|item| lay_out(item, &mut layout, &mut filled, &mut known))
        .collect::<Result<_>>()?;
    let mut commands = Vec::new();
    for ReplayBuffer { role, number, size } in layout.buffers() {
        let buffer = inner.device.create_buffer(&format!("replay {role:?} {number}"), size)?;
        held.buffers.insert((role, number), buffer);
        match filled.remove(&(role, number)) {
            // An input as large as its buffer is not copied.
            Some(bytes) if bytes.len() as u64 == size => inner.device.write(buffer, 0, &bytes)?,
            Some(bytes) => {
                let mut bytes = bytes.into_owned();
                bytes.resize(size as usize, 0);
                inner.device.write(buffer, 0, &bytes)?;
            }
            None => {
                let word = if let Role::Zeroed(_) = role { 0 } else { POISON };
                // Filled on the device: nothing has to be sent.
                commands.push(Command::Fill { buffer, word });
            }
        }
    }
    for (item, places) in items.iter().zip(&places) {
        for (i, launch) in item.planned.plan.launches.iter().enumerate() {
            commands.push(dispatch(inner, item, i, launch, places, held)?);
        }
    }
    let list = inner.device.record(&commands)?;
    held.list = Some(list);
    inner.device.replay(list, &Symbols::new())?;
    read(inner.device.as_mut(), items, &layout, &places, held)
}

/// Finds places for an item's values and puts its inputs and symbols there. Inputs that are one tensor share a place.
fn lay_out<'a>(
    item: &ReadyCall<'a>,
    layout: &mut ReplayLayout,
    filled: &mut Filled<'a>,
    known: &mut HashMap<(*const u8, usize), BufferRange>,
) -> Result<ItemPlaces> {
    let call = item.call;
    let mut put = |role, bytes: Cow<'a, [u8]>| {
        let place = layout.place(role, bytes.len() as u64);
        match filled.entry((role, place.number)) {
            Entry::Vacant(entry) => drop(entry.insert(bytes)),
            Entry::Occupied(mut entry) => {
                let buffer = entry.get_mut().to_mut();
                buffer.resize(place.offset as usize, 0);
                buffer.extend_from_slice(&bytes);
            }
        }
        place
    };
    let symbols = put(Role::Symbols, Cow::Owned(symbol_bytes(&call.symbols)?.to_vec()));
    let mut inputs = Vec::new();
    for (tensor, weight) in call.inputs.iter().zip(&call.weights) {
        inputs.push(match weight {
            Some(_) => Input::Weight,
            None => {
                // Two tensors at one address with one length have the same bytes.
                let key = (tensor.bytes().as_ptr(), tensor.bytes().len());
                let role = if key.1 < LARGE { Role::Input } else { Role::Large };
                Input::Value(*known.entry(key).or_insert_with(|| put(role, Cow::Borrowed(&**tensor.bytes()))))
            }
        });
    }
    let mut outputs = Vec::new();
    for (i, ty) in call.output_types.iter().enumerate() {
        let shape = ty.sizes(&call.symbols)?;
        let len = tapml_graph::byte_len(ty.dtype, &shape);
        let len =
            len.ok_or_else(|| Error::invalid(format!("output {i}, {ty}, overflows the address space")))?;
        outputs.push((layout.place(Role::Output(i), len as u64), shape));
    }
    let scratch = item.planned.plan.scratch.iter().enumerate().map(|(i, scratch)| {
        let role = match scratch {
            Scratch::Temporary(_) => Role::Scratch(i),
            Scratch::Kept(_) => Role::Zeroed(i),
        };
        Ok(layout.place(role, scratch.bytes().eval(&call.symbols)?))
    });
    Ok(ItemPlaces { symbols, inputs, outputs, scratch: scratch.collect::<Result<_>>()? })
}

/// One launch of an item.
fn dispatch(
    inner: &mut PlatformState,
    item: &ReadyCall<'_>,
    index: usize,
    launch: &Launch,
    places: &ItemPlaces,
    held: &Held,
) -> Result<Command> {
    let bindings =
        launch.args.iter().map(|arg| bind(inner, item, *arg, places, held)).collect::<Result<_>>()?;
    // Symbols are bound here, as the list is replayed without any.
    let mut groups = [const { None }; 3];
    for (slot, extent) in groups.iter_mut().zip(&launch.groups) {
        *slot = Some(Extent::from_dim(extent.eval(&item.call.symbols)?));
    }
    let [Some(x), Some(y), Some(z)] = groups else { return Err(Error::bug("a grid has three sizes")) };
    let kernel = item.planned.kernels[index];
    Ok(Command::Dispatch { label: item.call.node.clone(), kernel, bindings, groups: [x, y, z] })
}

/// The range that an argument stands for.
fn bind(
    inner: &mut PlatformState,
    item: &ReadyCall<'_>,
    arg: Arg,
    places: &ItemPlaces,
    held: &Held,
) -> Result<Binding> {
    let missing = |what: &str| {
        Error::bug(format!("kernel `{}` binds {what} that is not there", item.planned.plan.kernel))
    };
    let at = |place: Option<&BufferRange>, what: &str, offset: u64, len: u64| {
        let place = place.ok_or_else(|| missing(what))?;
        let buffer = held.buffers.get(&(place.role, place.number)).ok_or_else(|| missing(what))?;
        // A plan that binds beyond its value is a bug, and must not reach the device.
        let room = place.len.checked_sub(offset).filter(|&room| len <= room).ok_or_else(|| missing(what))?;
        let size = if len == 0 { room } else { len };
        Ok(Binding { buffer: *buffer, offset: place.offset + offset, size })
    };
    match arg {
        Arg::Symbols => at(Some(&places.symbols), "symbols", 0, 0),
        Arg::Output(i) => at(places.outputs.get(i).map(|(place, _)| place), "an output", 0, 0),
        Arg::Scratch(i) => at(places.scratch.get(i), "scratch", 0, 0),
        Arg::Constant(i) => {
            item.planned.constants.get(i).map(|&b| Binding::whole(b)).ok_or_else(|| missing("a constant"))
        }
        Arg::Input { index, offset, len } => match places.inputs.get(index) {
            Some(Input::Value(place)) => at(Some(place), "an input", offset, len),
            Some(Input::Weight) => {
                let (tensor, name) = (&item.call.inputs[index], item.call.weights[index].as_deref());
                let name = name.ok_or_else(|| missing("a weight"))?;
                let PlatformState { device, weights, .. } = inner;
                Ok(Binding::whole(weights.get(device.as_mut(), name, tensor, (offset, len))?))
            }
            None => Err(missing("an input")),
        },
    }
}

/// Reads each output buffer once and cuts the outputs of every item out of them.
fn read(
    device: &mut dyn Device,
    items: &[ReadyCall<'_>],
    layout: &ReplayLayout,
    places: &[ItemPlaces],
    held: &Held,
) -> Result<Vec<Vec<Tensor>>> {
    let mut bytes: HashMap<(Role, usize), Vec<u8>> = HashMap::new();
    for ReplayBuffer { role, number, size } in layout.buffers() {
        if let (Role::Output(_), Some(&buffer)) = (role, held.buffers.get(&(role, number))) {
            let mut out = vec![0; size as usize];
            device.read(buffer, 0, &mut out)?;
            bytes.insert((role, number), out);
        }
    }
    let mut results = Vec::with_capacity(items.len());
    for (item, places) in items.iter().zip(places) {
        let mut outputs = Vec::with_capacity(places.outputs.len());
        for ((place, shape), ty) in places.outputs.iter().zip(&item.call.output_types) {
            let len = shape.iter().product::<usize>() * ty.dtype.size();
            let start = place.offset as usize;
            let own = bytes.get(&(place.role, place.number)).and_then(|b| b.get(start..start + len));
            // A copy, so that a caller who keeps one output does not keep the whole batch.
            let own = own.ok_or_else(|| Error::bug("an output lies outside its buffer"))?.to_vec();
            outputs.push(Tensor::new(ty.dtype, shape.clone(), Bytes::new(own))?);
        }
        results.push(outputs);
    }
    Ok(results)
}
