//! The time that one plan takes: its launches many times over in one list.
//!
//! The least of several rounds counts. Inputs are those of a recorded call, so that data-dependent kernels
//! do real work.

use std::time::{Duration, Instant};
use tapml_device::{Binding, BufferId, Command, Device};
use tapml_exec::Call;
use tapml_graph::{Error, Result};
use tapml_kernels::{Arg, KernelCache, NodePlan, Scratch, symbol_bytes};

// Many in one list: one submission costs more than a short kernel runs.
/// How often a plan is repeated in a list if one run of it is short.
const REPEATS: usize = 64;
/// A run that takes longer is not repeated within a list.
const LONG: Duration = Duration::from_millis(5);
/// Lists are replayed for so long, and at least [`ROUNDS`] times.
const ENOUGH: Duration = Duration::from_millis(100);
const ROUNDS: usize = 3;

/// Seconds of one run of the plan with the inputs of a call: the least of several rounds.
pub fn plan(device: &mut dyn Device, plan: &NodePlan, call: &Call) -> Result<f64> {
    let mut buffers = Vec::new();
    let mut cache = KernelCache::new();
    let timed = run(device, &mut cache, plan, call, &mut buffers);
    let freed = buffers.into_iter().try_for_each(|buffer| device.destroy_buffer(buffer));
    let cleared = cache.clear(device);
    timed.and_then(|seconds| freed.and(cleared).map(|()| seconds))
}

/// Buffers, commands, rounds. What is made is freed by the caller, on errors too.
fn run(
    device: &mut dyn Device,
    cache: &mut KernelCache,
    plan: &NodePlan,
    call: &Call,
    buffers: &mut Vec<BufferId>,
) -> Result<f64> {
    let mut filled = |device: &mut dyn Device, bytes: &[u8], size: u64| {
        let buffer = device.create_buffer("tune", size.max(bytes.len() as u64).max(4).next_multiple_of(4))?;
        buffers.push(buffer);
        let mut words = bytes.to_vec();
        words.resize(bytes.len().next_multiple_of(4), 0);
        if words.is_empty() { Ok(buffer) } else { device.write(buffer, 0, &words).map(|()| buffer) }
    };
    let too_large = || Error::unsupported(format!("the outputs of node `{}`", call.node));
    let (mut inputs, mut outputs, mut constants, mut scratch) = (vec![], vec![], vec![], vec![]);
    for tensor in &call.inputs {
        inputs.push(filled(device, tensor.bytes(), 0)?);
    }
    for ty in &call.output_types {
        let size = tapml_graph::byte_len(ty.dtype, &ty.sizes(&call.symbols)?).ok_or_else(too_large)?;
        outputs.push(filled(device, &[], size as u64)?);
    }
    for bytes in &plan.constants {
        constants.push(filled(device, bytes, 0)?);
    }
    for wanted in &plan.scratch {
        let bytes = wanted.bytes().eval(&call.symbols)?;
        // A kernel may rely on zeros there before its first run.
        let zeros = if let Scratch::Kept(_) = wanted { vec![0; bytes as usize] } else { Vec::new() };
        scratch.push(filled(device, &zeros, bytes)?);
    }
    let symbols = filled(device, &symbol_bytes(&call.symbols)?, 0)?;
    let mut commands = Vec::new();
    for launch in &plan.launches {
        let bind = |arg: &Arg| match *arg {
            Arg::Input { index, offset, len } => Binding { buffer: inputs[index], offset, size: len },
            Arg::Output(index) => Binding::whole(outputs[index]),
            Arg::Constant(index) => Binding::whole(constants[index]),
            Arg::Scratch(index) => Binding::whole(scratch[index]),
            Arg::Symbols => Binding::whole(symbols),
        };
        commands.push(Command::Dispatch {
            label: call.node.clone(),
            kernel: cache.get(device, &launch.desc)?,
            bindings: launch.args.iter().map(bind).collect(),
            groups: launch.groups.clone(),
        });
    }
    rounds(device, &commands, call)
}

/// Decides by one replay whether the plan is long.
fn rounds(device: &mut dyn Device, commands: &[Command], call: &Call) -> Result<f64> {
    let once = time_replays(device, commands, call, 1)?;
    let repeats = if once > LONG { 1 } else { REPEATS };
    let many: Vec<Command> = commands.iter().cycle().take(commands.len() * repeats).cloned().collect();
    let least = time_replays(device, &many, call, ROUNDS)?;
    Ok(least.as_secs_f64() / repeats as f64)
}

/// The least time of a list, after one replay that does not count.
fn time_replays(
    device: &mut dyn Device,
    commands: &[Command],
    call: &Call,
    rounds: usize,
) -> Result<Duration> {
    let list = device.record(commands)?;
    device.replay(list, &call.symbols)?;
    device.wait()?;
    let (start, mut least, mut done) = (Instant::now(), Duration::MAX, 0);
    while done < rounds || (rounds > 1 && start.elapsed() < ENOUGH) {
        let begin = Instant::now();
        device.replay(list, &call.symbols)?;
        device.wait()?;
        least = least.min(begin.elapsed());
        done += 1;
    }
    device.destroy_list(list).map(|()| least)
}
