//! `tapml device check --speed`: how soon a device answers, and how fast bytes go there and back.

use crate::output::JsonArg;
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};
use tapml::device::Device;

/// Round trips, and transfers in each direction.
const TIMES: (usize, usize) = (200, 7);

/// Bytes of a transfer.
const BYTES: usize = 16 << 20;

/// What was measured.
#[derive(Serialize)]
pub struct Speed {
    /// From a wait to its answer, in microseconds.
    round_trip_us: Spread,
    /// Bytes of one transfer.
    bytes: usize,
    /// To the device, waited for, in millions of bytes per second.
    upload_mb_s: Spread,
    /// From the device.
    download_mb_s: Spread,
}

/// Several measurements of the same.
#[derive(Serialize)]
struct Spread {
    /// Half of them are below.
    median: f64,
    /// The tenths below and above which the fewest and the most are.
    p10: f64,
    p90: f64,
    /// How many there were.
    times: usize,
}

impl Spread {
    /// Does the work so often, and turns each time into a value.
    fn measure(
        times: usize,
        value: impl Fn(f64) -> f64,
        mut work: impl FnMut() -> tapml::graph::Result<()>,
    ) -> Result<Spread> {
        // The first one also pays for what is made once.
        work()?;
        let mut all = Vec::new();
        for _ in 0..times {
            let start = Instant::now();
            work()?;
            all.push(value(start.elapsed().max(Duration::from_nanos(1)).as_secs_f64()));
        }
        all.sort_by(f64::total_cmp);
        // Rounded down, so that it is a time that was measured.
        let at = |percent: usize| all[(times - 1) * percent / 100];
        Ok(Spread { median: at(50), p10: at(10), p90: at(90), times })
    }
}

/// Measures a device that nobody else uses meanwhile.
///
/// # Errors
/// If the device fails, or gives back other bytes than it was given.
pub fn measure(device: &mut dyn Device, json: &JsonArg) -> Result<Speed> {
    let round_trip_us = Spread::measure(TIMES.0, |s| s * 1e6, || device.wait())?;
    // In whole words, and no more than one buffer holds.
    let size = BYTES.min(device.info().limits.max_buffer_size as usize / 4 * 4);
    let buffer = device.create_buffer("speed", size as u64)?;
    let rate = |s: f64| size as f64 / 1e6 / s;
    // Half of it at an offset: what a buffer is filled with first may be held there already and would not be sent.
    let (data, mut out) = (vec![0x5a; size - 4], vec![0; size - 4]);
    let up = || device.write(buffer, 4, &data).and_then(|()| device.wait());
    let upload_mb_s = Spread::measure(TIMES.1, rate, up)?;
    let download_mb_s = Spread::measure(TIMES.1, rate, || device.read(buffer, 4, &mut out))?;
    // A fast device that gives other bytes is of no use.
    anyhow::ensure!(out == data, "the device gave back other bytes than it was given");
    device.destroy_buffer(buffer)?;
    let speed = Speed { round_trip_us, bytes: size, upload_mb_s, download_mb_s };
    let say = |what: &str, s: &Spread, unit: &str| {
        let Spread { median, p10, p90, times } = s;
        json.say(&format!("{what:10} {median:.0} {unit} (median of {times}; {p10:.0} to {p90:.0})"))
    };
    say("round trip", &speed.round_trip_us, "µs")?;
    say("upload", &speed.upload_mb_s, "MB/s")?;
    say("download", &speed.download_mb_s, "MB/s")?;
    Ok(speed)
}
