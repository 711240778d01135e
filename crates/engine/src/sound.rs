//! Sound from a file: samples of each channel, as they are stored.

use hound::{SampleFormat, WavReader};
use std::path::Path;
use tapml_graph::{Context, Error, ErrorKind, Result};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// The samples of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples of each channel in a second.
    pub rate: u32,
    /// Channels, whose samples alternate.
    pub channels: usize,
    /// The samples, in turn one of each channel. Integers are as they are stored; those of 8 bits have a sign.
    pub samples: Vec<f64>,
    /// The magnitude of the loudest sample that the file can hold: 2¹⁵ for 16 bits, 1 for floats.
    pub full_scale: f64,
    /// How samples are stored, such as `16-bit integers`.
    pub stored: String,
}

impl Sound {
    /// Reads a WAV file of at most 256 MiB, whose samples are integers of up to 32 bits (PCM) or floats of 32.
    pub fn open(path: &Path) -> Result<Sound> {
        let bytes = tapml_files::read(path, MAX_FILE, "sound")?;
        let read =
            tapml_constraint::panics::catch(|| decode(&bytes)).unwrap_or(Err(hound::Error::Unsupported));
        read.map_err(|e| sound_error(&e)).context(|| path.display().to_string())
    }
}

/// The library checks the header; it may panic on a damaged one, which the caller catches.
fn decode(bytes: &[u8]) -> hound::Result<Sound> {
    let mut reader = WavReader::new(bytes)?;
    let spec = reader.spec();
    let bits = spec.bits_per_sample;
    let (samples, full_scale, kind): (hound::Result<Vec<f64>>, f64, _) = match spec.sample_format {
        SampleFormat::Float => (reader.samples::<f32>().map(|s| s.map(f64::from)).collect(), 1.0, "floats"),
        SampleFormat::Int => {
            // Bits are clamped: the number is a claim of the file.
            let scale = 2f64.powi(i32::from(bits.clamp(1, 32)) - 1);
            (reader.samples::<i32>().map(|s| s.map(f64::from)).collect(), scale, "integers")
        }
    };
    let (rate, channels) = (spec.sample_rate, usize::from(spec.channels));
    Ok(Sound { rate, channels, samples: samples?, full_scale, stored: format!("{bits}-bit {kind}") })
}

fn sound_error(error: &hound::Error) -> Error {
    let kind = match error {
        hound::Error::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::InvalidInput,
    };
    Error::new(kind, format!("could not read the sound: {error}"))
        .with_hint("give a WAV file of integers of up to 32 bits (PCM) or floats of 32")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wav(
        spec: hound::WavSpec,
        write: impl Fn(&mut hound::WavWriter<&mut std::io::Cursor<Vec<u8>>>),
    ) -> Vec<u8> {
        let mut file = std::io::Cursor::new(Vec::new());
        let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
        write(&mut writer);
        writer.finalize().unwrap();
        file.into_inner()
    }

    fn open_sound(bytes: &[u8]) -> Result<Sound> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wav");
        std::fs::write(&path, bytes).unwrap();
        Sound::open(&path)
    }

    #[test]
    fn samples_are_those_that_are_stored() {
        let spec = |channels, bits_per_sample, sample_format| hound::WavSpec {
            channels,
            sample_rate: 16_000,
            bits_per_sample,
            sample_format,
        };
        let ints = wav(spec(2, 16, SampleFormat::Int), |w| {
            [-32768i32, 5, 32767, -1].iter().for_each(|&v| w.write_sample(v).unwrap())
        });
        let sound = open_sound(&ints).unwrap();
        assert_eq!((sound.rate, sound.channels, sound.full_scale), (16_000, 2, 32768.0));
        assert_eq!(
            (sound.samples, sound.stored.as_str()),
            (vec![-32768.0, 5.0, 32767.0, -1.0], "16-bit integers")
        );
        let floats = wav(spec(1, 32, SampleFormat::Float), |w| w.write_sample(0.25f32).unwrap());
        let sound = open_sound(&floats).unwrap();
        assert_eq!((sound.samples, sound.full_scale), (vec![0.25], 1.0));
        let bytes = wav(spec(1, 8, SampleFormat::Int), |w| w.write_sample(-128i32).unwrap());
        assert_eq!(open_sound(&bytes).unwrap().samples, [-128.0]);
    }

    #[test]
    fn damage_is_told_and_nothing_panics() {
        let spec = hound::WavSpec {
            channels: 2,
            sample_rate: 8000,
            bits_per_sample: 16,
            sample_format: SampleFormat::Int,
        };
        let whole = wav(spec, |w| (0..8i32).for_each(|v| w.write_sample(v).unwrap()));
        for end in 0..whole.len() {
            let error = open_sound(&whole[..end]).unwrap_err().to_string();
            assert!(error.contains("a.wav") && error.contains("could not read the sound"), "{end}: {error}");
        }
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..3000 {
            let mut damaged = whole.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..damaged.len());
                damaged[at] = random.u8(..);
            }
            drop(open_sound(&damaged));
        }
    }
}
