//! What agents send: decoded, and converted as the client does.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tapml_rpc::wire::{self, Reply, convert};

fuzz_target!(|data: &[u8]| {
    let Ok(message) = wire::decode_reply(Bytes::copy_from_slice(data)) else { return };
    match message.reply {
        Some(Reply::Welcome(welcome)) => drop(welcome.device.map(|info| convert::info_from_wire(&info))),
        Some(Reply::Failed(failed)) => drop(convert::error_from_wire(failed)),
        Some(Reply::Findings(all)) => {
            all.findings.into_iter().for_each(|f| drop(convert::finding_from_wire(f)))
        }
        _ => {}
    }
});
