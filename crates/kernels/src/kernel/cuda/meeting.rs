//! What ranks have together: `all_reduce` and `all_gather`, by one launch. In the graph of one rank the kernel writes its
//! part to memory that all ranks read, and waits for theirs; on a device that runs all ranks it reads the parts where they lie.

use super::{bindings, desc};
use crate::kernel::Request;
use crate::kernel::source::{constant, factors, plan_of, single_workgroup, unserved_error, wrong_op};
use crate::plan::{Arg, Launch, NodePlan};
use std::time::Duration;
use tapml_graph::op::{AllGather, AllReduce};
use tapml_graph::{DType, Dim, Extent, Op, Result};

const TEXT: &str = include_str!("meeting.cu");
/// Threads of a block.
const THREADS: u32 = 512;
/// Blocks of a launch: each has slots of its own. Those that a call does not need end at once.
const BLOCKS: u32 = 64;
/// Bytes for which another block is worth its meeting.
const LEAST_BYTES: u32 = 4096;
/// Bytes of a slot.
const SLOT_BYTES: u32 = 1 << 16;
/// More ranks have no device that reads the memory of all others.
const MOST_RANKS: u32 = 8;
/// Word that tells how many calls have begun.
const CALLS: u32 = 2;
/// First of the words that tell how often each block has met.
const EPOCHS: u32 = 64;
/// First of the words by which each rank's blocks tell how often they have come.
const FLAGS: u32 = EPOCHS + BLOCKS;

/// Word of a rank's memory that tells which rank was late: its number and 1, or 0 if none was.
pub const LATE_RANK: u32 = 0;
/// Word that tells how many calls had begun then, that one included.
pub const LATE_CALL: u32 = 1;
/// How long a rank waits for another before it goes on without.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Words of the memory in which a rank meets so many, itself included; `None` if no kernel serves as many.
pub fn words(ranks: u32) -> Option<u64> {
    // Each rank's words of a block, and their numbers, in two turns.
    let numbered = 2 * u64::from(BLOCKS * ranks.min(MOST_RANKS) * (2 * LEAST_BYTES / 4));
    (ranks <= MOST_RANKS).then(|| u64::from(first_numbered(ranks)) + numbered)
}

/// The word at which words with numbers begin.
fn first_numbered(ranks: u32) -> u32 {
    first_slot(ranks) + 2 * BLOCKS * (SLOT_BYTES / 4)
}

/// The word at which the slots begin.
fn first_slot(ranks: u32) -> u32 {
    (FLAGS + ranks * BLOCKS).next_multiple_of(64)
}

/// The plan of `all_reduce` and of `all_gather`.
pub fn plan(request: &Request) -> Result<NodePlan> {
    let (ranks, rank) = match request.op {
        Op::AllReduce(AllReduce { ranks, rank }) | Op::AllGather(AllGather { ranks, rank }) => {
            (*ranks, *rank)
        }
        _ => return Err(wrong_op(request)),
    };
    let x = &request.inputs[0];
    let (Some(rows), Some(columns)) = (x.shape.first(), x.shape.get(1)) else {
        return Err(unserved_error(request));
    };
    let columns = constant("the row length", columns)?;
    let (parts, memories) = request.inputs.split_at(if rank.is_some() { 1 } else { request.inputs.len() });
    let equal = parts.iter().all(|part| part == x) && matches!(x.dtype, DType::F32 | DType::F16);
    // Kernels write where they find the slots: a graph of strangers may declare less.
    let words = words(ranks).ok_or_else(|| unserved_error(request))?;
    let whole = memories.iter().all(|memory| memory.shape == [Dim::from(words)]);
    if !equal || !whole || columns == 0 {
        return Err(unserved_error(request));
    }
    let [n, p, s, c] = factors(rows)?;
    let gathers = matches!(request.op, Op::AllGather(_));
    let name = if gathers { "all_gather/peer_cuda" } else { "all_reduce/peer_cuda" };
    let mut desc = desc(request.info, name, "cuda/meeting.cu", TEXT, THREADS, 0);
    desc.bindings = bindings(request.inputs.len(), 1);
    desc.constants = [
        ("GATHERS", u32::from(gathers)),
        ("MEET", u32::from(rank.is_some())),
        ("RANK", rank.unwrap_or(0)),
        ("RANKS", ranks),
        ("THREADS", THREADS),
        ("BLOCKS", BLOCKS),
        ("SLOT_BYTES", SLOT_BYTES),
        ("LATE_RANK", LATE_RANK),
        ("LATE_CALL", LATE_CALL),
        ("CALLS", CALLS),
        ("EPOCHS", EPOCHS),
        ("FLAGS", FLAGS),
        ("SLOTS", first_slot(ranks)),
        ("NUMBERED", first_numbered(ranks)),
        ("LEAST_BYTES", LEAST_BYTES),
        ("WAIT_MS", WAIT_TIMEOUT.as_millis() as u32),
        ("K", columns),
        ("WIDE", u32::from(x.dtype == DType::F32)),
        ("ROWS_N", n),
        ("ROWS_P", p),
        ("ROWS_S", s),
        ("ROWS_C", c),
    ]
    .map(|(name, value)| (name.to_string(), f64::from(value)))
    .to_vec();
    let mut args: Vec<Arg> = (0..request.inputs.len()).map(Arg::whole_input).collect();
    args.extend([Arg::Output(0), Arg::Symbols]);
    let groups = [Extent::from_dim(u64::from(BLOCKS)), single_workgroup(), single_workgroup()];
    Ok(plan_of(Launch { desc, args, groups }, if gathers { 0 } else { ranks }))
}
