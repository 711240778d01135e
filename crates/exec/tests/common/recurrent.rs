//! A toy language model without attention: one layer of each recurrence. Other crates' tests use this file too.

use tapml_graph::op::{
    Add, CausalConv, Embedding, Linear, Mul, SelectiveScan, Silu, Softplus, TokenShift, Wkv, Wkv7,
};
use tapml_graph::{Builder, DType, Dim, Model, Op, Symbol, Tensor, TensorType, ValueId};

const VOCAB: usize = 29;
const WIDTH: usize = 16;

struct Net {
    b: Builder,
    dtype: DType,
}

impl Net {
    fn weight(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.b.weight(name, TensorType::new(DType::F32, shape.iter().copied())).unwrap()
    }

    fn linear(&mut self, name: &str, x: ValueId, outputs: usize) -> ValueId {
        let w = self.weight(&format!("{name}.weight"), &[outputs, WIDTH]);
        self.b.node(name, Linear::default(), &[x, w]).unwrap()
    }

    /// A node whose last input, or the one at `at`, is a state of this shape, and whose output 1 is the state after.
    fn stateful(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        mut inputs: Vec<ValueId>,
        at: usize,
        shape: [usize; 2],
    ) -> ValueId {
        let state = self.b.state(format!("{name}.state"), TensorType::new(DType::F32, shape)).unwrap();
        inputs.insert(at, state);
        let outputs = [format!("{name}.y"), format!("{name}.after")];
        let outputs = self.b.node_multi(name, op, &inputs, &outputs).unwrap();
        self.b.set_state(state, outputs[1]).unwrap();
        outputs[0]
    }

    fn add(&mut self, name: &str, x: ValueId, y: ValueId) -> ValueId {
        self.b.node(name, Add {}, &[x, y]).unwrap()
    }

    fn wkv(&mut self, x: ValueId) -> ValueId {
        let last = self.stateful("shift", TokenShift {}, vec![x], 1, [1, WIDTH]);
        let rkv: Vec<ValueId> = ["r", "k", "v", "w"].map(|n| self.linear(n, last, WIDTH)).to_vec();
        let u = self.weight("u", &[WIDTH]);
        let inputs = [rkv, vec![u]].concat();
        self.stateful("wkv", Wkv { head_dim: 8 }, inputs, 5, [WIDTH, 8])
    }

    fn wkv7(&mut self, x: ValueId) -> ValueId {
        let inputs = ["r7", "w7", "k7", "v7", "a7", "b7"].map(|n| self.linear(n, x, WIDTH)).to_vec();
        self.stateful("wkv7", Wkv7 { head_dim: 4 }, inputs, 6, [WIDTH, 4])
    }

    fn scan(&mut self, x: ValueId) -> ValueId {
        let (w, b) = (self.weight("conv.weight", &[WIDTH, 1, 4]), self.weight("conv.bias", &[WIDTH]));
        let x = self.stateful("conv", CausalConv {}, vec![x, w, b], 2, [3, WIDTH]);
        let x = self.b.node("conv.act", Silu {}, &[x]).unwrap();
        let dt = self.linear("dt", x, 4);
        let dt = self.b.node("dt.softplus", Softplus {}, &[dt]).unwrap();
        let (b, c) = (self.linear("b", x, 12), self.linear("c", x, 12));
        let (a, d) = (self.weight("a_log", &[4]), self.weight("d", &[4]));
        let op = SelectiveScan { heads: 4, head_dim: 4, groups: 2, state: 6 };
        self.stateful("scan", op, vec![x, dt, a, b, c, d], 6, [24, 4])
    }
}

/// The toy with activations of this dtype.
pub fn recurrent(dtype: DType) -> Model {
    let mut b = Builder::new("recurrent");
    let ids = b.input("ids", TensorType::new(DType::U32, [Dim::symbol(Symbol::N)])).unwrap();
    let table = b.weight("embed", TensorType::new(DType::F32, [VOCAB, WIDTH])).unwrap();
    let x = b.node("embedding", Embedding { dtype }, &[ids, table]).unwrap();
    let mut net = Net { b, dtype };
    let y = net.wkv(x);
    let x = net.add("add.wkv", x, y);
    // Keeps the delta rule from growing: its keys have no norm here.
    let small = net.weight("small", &[WIDTH]);
    let y = net.b.node("scaled", Mul {}, &[x, small]).unwrap();
    let y = net.wkv7(y);
    let x = net.add("add.wkv7", x, y);
    let y = net.scan(x);
    let x = net.add("add.scan", x, y);
    let head = Linear { dtype: (net.dtype != DType::F32).then_some(DType::F32) };
    let logits = net.b.node("lm_head", head, &[x, table]).unwrap();
    net.b.output("logits", logits);
    let graph = net.b.finish().unwrap();
    let weights = graph.weights().map(|(_, v)| (v.name.clone(), weight(&v.name, &v.ty))).collect();
    Model::new(graph, weights).unwrap()
}

/// Values between -0.6 and 0.6 that depend on nothing but the name.
fn weight(name: &str, ty: &TensorType) -> Tensor {
    let shape: Vec<usize> = ty.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
    let mut state = name.bytes().fold(7u64, |h, b| h.wrapping_mul(0x100_0000_01b3) ^ u64::from(b));
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        0.6 * ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    let values = (0..shape.iter().product()).map(next).collect();
    Tensor::from_f32(shape, values).unwrap()
}
