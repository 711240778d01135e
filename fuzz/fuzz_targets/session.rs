//! A whole session on a device that computes nothing: any messages in any order, executed as a session's process does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapml_device::null::NullDevice;
use tapml_device::{Device, Features, Limits, Result};
use tapml_rpc::agent::serve_session;
use tapml_rpc::wire::{self, Hello, Request, ToAgent};
use tapml_rpc::{Offer, Offered};

struct Nothing;

impl Offer for Nothing {
    fn list(&self) -> Vec<Offered> {
        Vec::new()
    }

    fn open(&self, _: &str, _: &str) -> Result<Box<dyn Device>> {
        Ok(Box::new(NullDevice::new(Limits::WEBGPU, Features::default())))
    }
}

fn frame(seq: u64, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], &seq.to_le_bytes(), bytes].concat()
}

fuzz_target!(|data: &[u8]| {
    // Settings of nothing but 1 MiB of memory; then the hello.
    let hello = Hello { version_min: 1, version_max: 1, target: "null".into(), ..Hello::default() };
    let hello = wire::encode(&ToAgent { seq: 1, request: Some(Request::Hello(hello)) });
    let mut stream = [frame(0, &[0x20, 0x80, 0x80, 0x40]), frame(1, &hello)].concat();
    // A byte for the length of each message.
    let (mut rest, mut seq) = (data, 1);
    while let [len, tail @ ..] = rest {
        let (message, after) = tail.split_at(tail.len().min(usize::from(*len)));
        seq += 1;
        stream.extend(frame(seq, message));
        rest = after;
    }
    // An error ends the session; nothing else may happen.
    drop(serve_session(&mut stream.as_slice(), &mut std::io::sink(), &Nothing));
});
