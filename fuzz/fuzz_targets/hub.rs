//! What agents and hubs say to each other beside sessions.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tapml_rpc::wire;

fuzz_target!(|data: &[u8]| {
    drop(wire::decode_agent_word(Bytes::copy_from_slice(data)));
    drop(wire::decode_hub_word(Bytes::copy_from_slice(data)));
});
