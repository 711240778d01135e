//! How a decoder makes bytes of the written forms of tokens.

use tokenizers::decoders::DecoderWrapper;

/// Steps of a decoder that make bytes of a token's written form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSteps {
    /// Each character stands for a byte.
    pub level: bool,
    /// `<0x41>` stands for a byte.
    pub fallback: bool,
}

impl ByteSteps {
    /// Those of a decoder, which may be a sequence.
    pub fn of_decoder(decoder: &DecoderWrapper) -> ByteSteps {
        match decoder {
            DecoderWrapper::ByteLevel(_) => ByteSteps { level: true, fallback: false },
            DecoderWrapper::ByteFallback(_) => ByteSteps { level: false, fallback: true },
            DecoderWrapper::Sequence(steps) => {
                let steps = steps.get_decoders().iter().map(ByteSteps::of_decoder);
                steps.fold(ByteSteps::default(), |all, step| ByteSteps {
                    level: all.level || step.level,
                    fallback: all.fallback || step.fallback,
                })
            }
            _ => ByteSteps::default(),
        }
    }
}
