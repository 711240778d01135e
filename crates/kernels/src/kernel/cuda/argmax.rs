//! The index of the greatest logit of one row: `argmax.cu`.
//!
//! One cluster of blocks looks through the row; blocks of a cluster exchange their best by distributed shared memory.
//! The index goes to two outputs: behind those found before, and alone, as the next token.

use super::{bindings, desc};
use crate::kernel::source::{constant, plan_of, single_workgroup, unserved_error, wrong_op};
use crate::kernel::{Request, argmax};
use crate::plan::{Arg, InPlace, Launch, NodePlan, Phase};
use tapml_device::DeviceInfo;
use tapml_graph::{Dim, Extent, Op, Result, Symbol};

/// The text, whose headers are put in front of it.
const TEXT: &str = include_str!("argmax.cu");
/// Threads of a block.
const THREADS: u32 = 512;
/// Blocks of the cluster.
const CLUSTER: u64 = 8;

/// The plan of `argmax` where `x` has one row and `p` indices were found before.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let Op::Argmax(_) = request.op else { return Err(wrong_op(request)) };
    let (found, x) = (&request.inputs[0].shape[0], &request.inputs[1]);
    let rows = &x.shape[0];
    // In the prefill phase `n` is not one, and the text looks at one row alone.
    let decode = *rows == Dim::symbol(Symbol::N) && request.phase == Phase::Decode;
    if *found != Dim::symbol(Symbol::P) || !(decode || rows.as_const() == Some(1)) {
        return Err(unserved_error(request));
    }
    let launch = launch(constant("the row length", &x.shape[1])?, request.info);
    // Nothing is added up.
    let mut plan = plan_of(launch, 0);
    plan.launches.insert(0, argmax::copy(found)?);
    plan.in_place = vec![InPlace { input: 0, output: 0, copy: Some(0) }];
    Ok(plan)
}

/// The launch for a row of this width.
fn launch(width: u32, info: &DeviceInfo) -> Launch {
    let mut desc = desc(info, "argmax/cuda", "cuda/argmax.cu", TEXT, THREADS, 0);
    desc.bindings = bindings(1, 2);
    desc.constants = vec![("WIDTH".into(), f64::from(width)), ("THREADS".into(), f64::from(THREADS))];
    let input = Arg::Input { index: 1, offset: 0, len: 0 };
    // The next token comes before the list of all.
    let args = vec![input, Arg::Output(1), Arg::Output(0), Arg::Symbols];
    Launch { desc, args, groups: [Extent::from_dim(CLUSTER), single_workgroup(), single_workgroup()] }
}
