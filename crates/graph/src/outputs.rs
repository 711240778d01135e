//! More results of a graph: values that are computed anyway, such as hidden states, made visible from outside.

use crate::error::{Error, Result};
use crate::graph::{Graph, Output};
use crate::verify;

impl Graph {
    /// The same graph with further outputs, given as pairs of output name and value name.
    /// Fails if a value does not exist or an output's name is taken.
    pub fn with_outputs<'a>(&self, more: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Graph> {
        let mut graph = self.clone();
        for (output, value) in more {
            let id = self.find_value(value).ok_or_else(|| {
                Error::invalid(format!("output `{output}`: graph `{}` has no value `{value}`", self.name()))
            })?;
            graph.outputs.push(Output { name: output.into(), value: id });
        }
        verify::check(&graph)?;
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Builder, DType, Symbol, TensorType, op::Silu};

    #[test]
    fn values_become_outputs_and_bad_names_are_refused() {
        let mut b = Builder::new("g");
        let x =
            b.input("x", TensorType::new(DType::F32, [crate::Dim::from(Symbol::N), 4u64.into()])).unwrap();
        let y = b.node("y", Silu {}, &[x]).unwrap();
        let z = b.node("z", Silu {}, &[y]).unwrap();
        b.output("z", z);
        let graph = b.finish().unwrap();
        let more = graph.with_outputs([("hidden", "y")]).unwrap();
        assert_eq!(more.outputs().len(), 2);
        assert!(graph.with_outputs([("hidden", "w")]).unwrap_err().to_string().contains("no value `w`"));
        assert!(graph.with_outputs([("z", "y")]).unwrap_err().to_string().contains("two outputs"));
    }
}
