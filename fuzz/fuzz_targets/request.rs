//! What clients send: decoded, and converted as the executor does.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tapml_device::{BufferId, KernelId};
use tapml_rpc::wire::{self, Request, convert};

fuzz_target!(|data: &[u8]| {
    let Ok(message) = wire::decode_request(Bytes::copy_from_slice(data)) else { return };
    match message.request {
        Some(Request::CreateKernel(kernel)) => drop(convert::kernel_from_wire(kernel)),
        Some(Request::Replay(replay)) => drop(convert::symbols_from_wire(&replay.symbols)),
        Some(Request::Record(record)) => {
            for command in &record.commands {
                let buffer = |id| Ok(BufferId(u64::from(id)));
                let kernel = |id| Ok(KernelId(u64::from(id)));
                drop(convert::command_from_wire(command, buffer, kernel));
            }
        }
        _ => {}
    }
});
