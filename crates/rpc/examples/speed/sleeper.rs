//! A device that computes nothing and takes its time for it.

use std::time::{Duration, Instant};
use tapml_device::null::NullDevice;
use tapml_device::{Command, Device, Features, Get, Limits, ListId, Put, Result, Symbols};
use tapml_graph::Extent;

/// See the module.
pub struct Sleeper {
    null: NullDevice,
    kernel: Duration,
}

impl Sleeper {
    /// Lists take so many microseconds: `us=1000`.
    pub fn new(options: &str) -> Sleeper {
        let us = options.strip_prefix("us=").and_then(|n| n.parse().ok()).unwrap_or(0);
        Sleeper {
            null: NullDevice::new(Limits::WEBGPU, Features::default()),
            kernel: Duration::from_micros(us),
        }
    }
}

/// How long steps take: a word goes there, a list runs, and so many bytes come back. The first tenth is not counted.
pub fn steps(device: &mut dyn Device, answer: usize, count: usize) -> Result<Vec<Duration>> {
    let [token, logits] =
        [("token", 4), ("logits", answer)].map(|(l, size)| device.create_buffer(l, size as u64));
    let (token, logits) = (token?, logits?);
    let at = || Extent::from_dim(0u64);
    let copy = Command::Copy {
        src: token,
        src_offset: at(),
        dst: logits,
        dst_offset: at(),
        len: Extent::from_dim(4u64),
    };
    let list = device.record(&[copy])?;
    let (mut out, mut times) = (vec![0; answer], Vec::new());
    for i in 0..count as u32 {
        let start = Instant::now();
        let put = Put { buffer: token, offset: 0, data: &i.to_le_bytes() };
        device.step(
            list,
            &Symbols::new(),
            &[put],
            &mut [Get { buffer: logits, offset: 0, out: &mut out }],
        )?;
        times.push(start.elapsed());
    }
    device.destroy_list(list)?;
    device.destroy_buffer(token)?;
    device.destroy_buffer(logits)?;
    times.drain(..count / 10);
    Ok(times)
}

impl Device for Sleeper {
    tapml_device::forward!(null: info, create_buffer, destroy_buffer, write, read, create_kernel,
        destroy_kernel, record, destroy_list, wait, memory);

    fn replay(&mut self, list: ListId, symbols: &Symbols) -> Result<()> {
        if !self.kernel.is_zero() {
            std::thread::sleep(self.kernel);
        }
        self.null.replay(list, symbols)
    }
}
