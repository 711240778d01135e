//! Normalisation layers.

use crate::config::Section;
use crate::net::{Net, Path};
use tapml_graph::op::{LayerNorm, RmsNorm};
use tapml_graph::{Result, ValueId};

/// A kind of normalisation over the columns of `x: [n, width]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Norm {
    /// Root-mean-square normalisation, with `weight: [width]`.
    Rms(RmsNorm),
    /// To mean 0 and variance 1, with `weight: [width]` and `bias: [width]`.
    Layer(LayerNorm),
}

impl Norm {
    /// Root-mean-square normalisation with the epsilon under `key`, or `default` if it is absent.
    pub fn rms(json: &Section, key: &str, default: f64) -> Result<Norm> {
        Ok(Norm::Rms(RmsNorm::new(epsilon(json, key, default)?)))
    }

    /// Normalisation to mean 0 and variance 1 with the epsilon under `key`, or `default` if it is absent.
    pub fn layer(json: &Section, key: &str, default: f64) -> Result<Norm> {
        Ok(Norm::Layer(LayerNorm::new(epsilon(json, key, default)?)))
    }

    /// `x: [n, width]` normalised, with the weights of the module `at`.
    pub fn apply(&self, net: &mut Net, at: &Path, x: ValueId, width: u32) -> Result<ValueId> {
        let weight = net.weight(&at.at("weight"), &[width])?;
        match self {
            Norm::Rms(op) => net.node(at, op.clone(), &[x, weight]),
            Norm::Layer(op) => {
                let bias = net.weight(&at.at("bias"), &[width])?;
                net.node(at, op.clone(), &[x, weight, bias])
            }
        }
    }
}

fn epsilon(json: &Section, key: &str, default: f64) -> Result<f32> {
    Ok(json.number_or(key, default, 0.0..=1.0)? as f32)
}
