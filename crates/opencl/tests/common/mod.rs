//! Running one node of a sample on a device as its plan says, and comparing what comes of it.
#![allow(clippy::unwrap_used, dead_code)]

use tapml_device::{Binding, BufferId, Command, Device};
use tapml_graph::op::Sample;
use tapml_graph::{Bytes, Tensor};
use tapml_kernels::{Arg, NodePlan, symbol_bytes};

fn upload(device: &mut dyn Device, bytes: &[u8]) -> BufferId {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().max(4).next_multiple_of(4), 0);
    let buffer = device.create_buffer("test", padded.len() as u64).unwrap();
    device.write(buffer, 0, &padded).unwrap();
    buffer
}

/// Runs a call as its plan says.
pub fn run(device: &mut dyn Device, plan: &NodePlan, sample: &Sample, inputs: &[Tensor]) -> Vec<Tensor> {
    let (types, symbols) = (sample.types(), &sample.symbols);
    let given: Vec<BufferId> = inputs.iter().map(|t| upload(device, t.bytes())).collect();
    let outputs = sample.op.infer_bound(&types, symbols).unwrap();
    let shapes: Vec<Vec<usize>> = outputs.iter().map(|t| t.sizes(symbols).unwrap()).collect();
    let sizes: Vec<usize> = outputs
        .iter()
        .zip(&shapes)
        .map(|(t, shape)| shape.iter().product::<usize>() * t.dtype.size())
        .collect();
    let made: Vec<BufferId> = sizes.iter().map(|&size| upload(device, &vec![0; size])).collect();
    let constants: Vec<BufferId> = plan.constants.iter().map(|bytes| upload(device, bytes)).collect();
    let scratch = plan.scratch.iter().map(|scratch| scratch.bytes().eval(symbols).unwrap() as usize);
    let scratch: Vec<BufferId> = scratch.map(|size| upload(device, &vec![0; size])).collect();
    let uniform = upload(device, &symbol_bytes(symbols).unwrap());
    let mut commands = Vec::new();
    for launch in &plan.launches {
        let bind = |arg: &Arg| match *arg {
            Arg::Input { index, offset, len } => Binding { buffer: given[index], offset, size: len },
            Arg::Output(index) => Binding::whole(made[index]),
            Arg::Constant(index) => Binding::whole(constants[index]),
            Arg::Scratch(index) => Binding::whole(scratch[index]),
            Arg::Symbols => Binding::whole(uniform),
        };
        commands.push(Command::Dispatch {
            label: sample.op.name().into(),
            kernel: device.create_kernel(&launch.desc).unwrap_or_else(|e| panic!("{e}\n{:?}", e.details())),
            bindings: launch.args.iter().map(bind).collect(),
            groups: launch.groups.clone(),
        });
    }
    let list = device.record(&commands).unwrap();
    device.replay(list, symbols).unwrap();
    let mut results = Vec::new();
    for (((buffer, ty), shape), size) in made.iter().zip(&outputs).zip(shapes).zip(sizes) {
        let mut bytes = vec![0; size.next_multiple_of(4)];
        device.read(*buffer, 0, &mut bytes).unwrap();
        bytes.truncate(size);
        results.push(Tensor::new(ty.dtype, shape, Bytes::new(bytes)).unwrap());
    }
    results
}

/// The largest difference, in units of what one rounding of the output's dtype is at its largest value.
pub fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let scale = expected.iter().fold(1e-30, |most: f64, x| most.max(x.abs()));
    let differences =
        found.iter().zip(&expected).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() / scale });
    differences.fold(0.0, |most: f64, d| if d.is_nan() { f64::INFINITY } else { most.max(d) })
}
