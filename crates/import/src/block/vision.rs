//! Vision towers: transformers over the patches of images. CLIP: Radford et al., "Learning Transferable Visual Models
//! From Natural Language Supervision", 2021, section 2.4; SigLIP: Zhai et al., "Sigmoid Loss for Language Image
//! Pre-Training", 2023, section 4.
//!
//! A tower takes `pixels: f32[channels, images·height, width]` and has no states. Its weights and inputs
//! are constants of a run, so it is computed once for an image.

use super::activation::ActivationOp;
use super::attention::SelfAttention;
use super::layer::Layer;
use super::mlp::Mlp;
use super::norm::Norm;
use super::sizes::Sizes;
use crate::config::Section;
use crate::net::{Net, Path};
use crate::source::Source;
use tapml_graph::op::{Add, Attention, Linear, Patches};
use tapml_graph::{Result, ValueId};

/// A vision tower.
#[derive(Clone, Debug)]
pub struct Tower {
    /// Decides names, the class token and where biases stand.
    family: Family,
    hidden: u32,
    layers: u32,
    /// Height and width of an image, pixels.
    image: u32,
    /// Height and width of a patch, pixels.
    patch: u32,
    channels: u32,
    /// All norms of the tower.
    norm: Norm,
    attention: SelfAttention,
    mlp: Mlp,
}

/// What the families do differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// A class token stands before the patches, a norm before the layers.
    Clip,
    /// The patches alone; their projection has a bias.
    Siglip,
}

impl Tower {
    /// Reads the configuration of a tower, of Transformers' `clip_vision_model` or `siglip_vision_model` as `key` says.
    ///
    /// # Errors
    /// If the tower is of another kind or a size is out of bounds.
    pub fn read(json: &Section, key: &str) -> Result<Tower> {
        let (family, patch, activation, eps) = match json.text(key)? {
            "clip_vision_model" => (Family::Clip, 32, "quick_gelu", 1e-5),
            "siglip_vision_model" => (Family::Siglip, 16, "gelu_pytorch_tanh", 1e-6),
            other => {
                let text = format!("vision tower `{other}` is not supported");
                return Err(json
                    .unsupported(key, &text)
                    .with_hint("supported: clip_vision_model, siglip_vision_model"));
            }
        };
        let hidden = json.size_or("hidden_size", 768, 1..=1 << 14)?;
        let heads = json.size_or("num_attention_heads", 12, 1..=1 << 10)?;
        if !hidden.is_multiple_of(heads) {
            let expected = format!("a multiple of `num_attention_heads`, which is {heads}");
            return Err(json.expected_error("hidden_size", &expected));
        }
        let image = json.size_or("image_size", 224, 1..=1 << 12)?;
        let patch = json.size_or("patch_size", patch, 1..=image)?;
        let layers = json.size_or("num_hidden_layers", 12, 1..=1 << 10)?;
        let head_dim = hidden / heads;
        let sizes = Sizes {
            // A tower has neither tokens nor a length; these two sizes are never read.
            vocab: 0,
            hidden,
            intermediate: json.size_or("intermediate_size", 3072, 1..=1 << 16)?,
            layers,
            heads,
            kv_heads: heads,
            head_dim,
            context: 0,
        };
        let scores = SelfAttention::new(&sizes).scores;
        let attention = SelfAttention {
            bias: true,
            output: "out_proj",
            output_bias: true,
            scores: Attention { causal: false, ..scores },
            ..SelfAttention::new(&sizes)
        };
        Ok(Tower {
            family,
            hidden,
            layers,
            image,
            patch,
            channels: json.size_or("num_channels", 3, 1..=16)?,
            norm: Norm::layer(json, "layer_norm_eps", eps)?,
            attention,
            mlp: Mlp::plain(&sizes, ActivationOp::read(json, "hidden_act", activation)?, ["fc1", "fc2"]),
        })
    }

    /// Layers.
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// Height and width of an image, pixels.
    pub fn image(&self) -> u32 {
        self.image
    }

    /// Patches along a side of an image.
    pub fn side(&self) -> u32 {
        self.image / self.patch
    }

    /// Columns of the hidden states.
    pub fn hidden(&self) -> u32 {
        self.hidden
    }

    /// Rows of the hidden states before the patches of an image: the class token if there is one.
    pub fn lead(&self) -> u32 {
        u32::from(self.family == Family::Clip)
    }

    /// Rows of the hidden states of an image.
    pub fn rows(&self) -> u32 {
        self.side().pow(2) + self.lead()
    }

    /// Hidden states `[images·rows, hidden]` of the images in the input `pixels`, one below the other, which do not see
    /// each other: what enters the first layer, then what leaves each of the first `layers` layers.
    pub fn apply(&self, net: &mut Net, at: &Path, images: u32, layers: u32) -> Result<Vec<ValueId>> {
        let mut x = self.embed(net, &at.child("embeddings"), images)?;
        if self.family == Family::Clip {
            // Spelled as checkpoints have it.
            x = self.norm.apply(net, &at.child("pre_layrnorm"), x, self.hidden)?;
        }
        let layer =
            Layer { before: Some(["layer_norm1", "layer_norm2"]), ..Layer::new(self.hidden, &self.norm) };
        let mut attention = self.attention.clone();
        // Several images are rows of one matrix. Attention in chunks of one image keeps them apart.
        attention.scores.chunk = (images > 1).then_some(self.rows());
        let mut states = vec![x];
        for index in 0..layers {
            let attend = |net: &mut Net, at: &Path, x| attention.apply(net, at, x, None);
            let at = at.child("encoder.layers").child(index);
            x = layer.apply(net, &at, x, attend, |net, at, x| self.mlp.apply(net, at, x))?;
            states.push(x);
        }
        Ok(states)
    }

    /// The patches, projected, behind the class token if there is one, plus the learned positions.
    fn embed(&self, net: &mut Net, at: &Path, images: u32) -> Result<ValueId> {
        let (dtype, patch, lead) = (net.activation(), self.patch, self.lead());
        let pixels = net.pixels([self.channels, images * self.image, self.image])?;
        let patches = net.node(&at.child("patches"), Patches { patch, images, lead, dtype }, &[pixels])?;
        let projection = at.child("patch_embedding");
        let (weight, columns) = (projection.child("weight"), self.channels * patch * patch);
        // `[hidden, channels, patch, patch]` as `[hidden, channels·patch²]`.
        let matrix = Source::Reshaped(weight.to_string());
        let matrix = net.derive(&weight.child("matrix"), &[self.hidden, columns], matrix)?;
        let mut inputs = vec![patches, matrix];
        if self.family == Family::Siglip {
            inputs.push(net.weight(&projection.child("bias"), &[self.hidden])?);
        }
        let x = net.node(&projection, Linear::default(), &inputs)?;
        let table = at.child("position_embedding.weight");
        // The row before the patches is zero so far: it becomes the class token with its position.
        let source = match self.family {
            Family::Siglip => Source::Converted(table.to_string(), dtype),
            Family::Clip => {
                let parts = [table.to_string(), at.child("class_embedding").to_string()];
                Source::Positions { parts, images: images as usize, dtype }
            }
        };
        let positions =
            net.derive(&table.child("converted"), &[images * self.rows(), self.hidden], source)?;
        net.node(&at.child("add_positions"), Add {}, &[x, positions])
    }
}
