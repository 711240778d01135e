//! Products with matrices, transposes and determinants.
//!
//! WGSL's matrices are arrays of columns. Each cell of a product is a [`dot`](Writer::dot) of a row and a column.

use crate::scalar::Operand;
use crate::types::{COMPONENTS, Kind, Spelt, ValueShape};
use crate::writer::{WriteResult, Writer};
use naga::{BinaryOperator as B, MathFunction as M};

impl Writer<'_> {
    /// Operators on matrices; `None` if neither operand is one.
    ///
    /// Each product is a function of its own for the shapes of both operands.
    pub fn matrix_binary(&mut self, op: B, a: &Operand, b: &Operand) -> WriteResult<Option<String>> {
        let is_matrix = |o: &Operand| matches!(o.shape, ValueShape::Matrix(..));
        let is_scalar = |o: &Operand| matches!(o.shape, ValueShape::Scalar(_));
        // Sums and products with scalars are done component by component.
        if op != B::Multiply || !(is_matrix(a) || is_matrix(b)) || is_scalar(a) || is_scalar(b) {
            return Ok(None);
        }
        // A vector on the left is a row, on the right a column.
        let kind = a.shape.kind();
        let shape = match (a.shape, b.shape) {
            (ValueShape::Matrix(_, rows, _), ValueShape::Matrix(columns, ..)) => {
                ValueShape::Matrix(columns, rows, kind)
            }
            (ValueShape::Matrix(_, rows, _), _) => ValueShape::Vector(rows, kind),
            (_, ValueShape::Matrix(columns, ..)) => ValueShape::Vector(columns, kind),
            _ => return Ok(None),
        };
        let name = format!("times_{}_{}", a.shape.tag(), b.shape.tag());
        let (left, right, ty) =
            (self.types.shape(a.shape), self.types.shape(b.shape), self.types.shape(shape));
        self.helper(&name, |writer| {
            let own = [Operand { text: "a".into(), ..a.clone() }, Operand { text: "b".into(), ..b.clone() }];
            let body = writer.product(&own[0], &own[1], shape)?;
            Ok(format!("DEV {ty} {name}({left} a, {right} b) {{ {body} }}\n"))
        })?;
        Ok(Some(format!("{name}({}, {})", a.text, b.text)))
    }

    /// The statements of a product's function, whose parameters are `a` and `b`.
    /// `shape` is that of the result: a matrix, or a vector if one operand is one.
    fn product(&mut self, a: &Operand, b: &Operand, shape: ValueShape) -> WriteResult<String> {
        let kind = a.shape.kind();
        let columns = match b.shape {
            ValueShape::Matrix(columns, ..) => (0..columns as usize).map(|i| b.column(i)).collect(),
            _ => vec![b.clone()],
        };
        let rows = rows_of(a);
        let mut out = Vec::new();
        for column in &columns {
            let mut cells = Vec::new();
            for row in &rows {
                // A row of a matrix has no place of its own: it is put together from its cells.
                let line = self.vector_of(kind, row)?;
                let line = Operand { text: line, shape: ValueShape::Vector(row.len() as u8, kind) };
                cells.push(self.dot(&line, column)?.text);
            }
            out.push(cells);
        }
        match shape {
            ValueShape::Matrix(..) => self.matrix_of(shape, &out),
            _ => Ok(format!("return {};", self.vector_of(kind, &out.concat())?)),
        }
    }

    /// Statements that return a matrix of these columns.
    ///
    /// Each inner list is a column. The variable is called `m`.
    fn matrix_of(&mut self, shape: ValueShape, columns: &[Vec<String>]) -> WriteResult<String> {
        let ValueShape::Matrix(_, rows, kind) = shape else { return self.fail("a matrix of another shape") };
        let padded = if rows == 3 { ".v" } else { "" };
        let ty = self.types.shape(shape);
        let mut set = String::new();
        for (i, column) in columns.iter().enumerate() {
            set.push_str(&format!("m.c[{i}]{padded} = {}; ", self.vector_of(kind, column)?));
        }
        Ok(format!("{ty} m; {set}return m;"))
    }

    /// `transpose` and `determinant`.
    ///
    /// # Errors
    /// If the operand is no matrix.
    pub fn matrix_math(&mut self, fun: M, a: &Operand) -> WriteResult<String> {
        let ValueShape::Matrix(columns, rows, kind) = a.shape else {
            return self.fail("a matrix function on no matrix");
        };
        let own = Operand { text: "a".into(), shape: a.shape };
        let parameter = self.types.shape(a.shape);
        if fun == M::Transpose {
            let shape = ValueShape::Matrix(rows, columns, kind);
            let name = format!("transpose_{}", a.shape.tag());
            let ty = self.types.shape(shape);
            self.helper(&name, |writer| {
                let body = writer.matrix_of(shape, &rows_of(&own))?;
                Ok(format!("DEV {ty} {name}({parameter} a) {{ {body} }}\n"))
            })?;
            return Ok(format!("{name}({})", a.text));
        }
        let name = format!("determinant_{}", a.shape.tag());
        self.helper(&name, |writer| {
            let value = writer.determinant(kind, &rows_of(&own))?;
            Ok(format!("DEV {} {name}({parameter} a) {{ return {}; }}\n", kind.name(), value.text))
        })?;
        Ok(format!("{name}({})", a.text))
    }

    /// By cofactors of the first column.
    ///
    /// The largest matrix is 4 × 4, so that recursion ends soon.
    fn determinant(&mut self, kind: Kind, rows: &[Vec<String>]) -> WriteResult<Operand> {
        let cell = |text: &String| Operand { text: text.clone(), shape: ValueShape::Scalar(kind) };
        // The recursion ends at one cell.
        if let [row] = rows {
            let first = row.first().map(cell);
            return self.need(first, "an empty matrix");
        }
        let mut sum: Option<Operand> = None;
        for (i, row) in rows.iter().enumerate() {
            let others = rows.iter().enumerate().filter(|&(r, _)| r != i);
            let minor: Vec<Vec<String>> = others.map(|(_, row)| row[1..].to_vec()).collect();
            let minor = self.determinant(kind, &minor)?;
            let term = self.operate(B::Multiply, &cell(&row[0]), &minor)?;
            sum = Some(match sum {
                None => term,
                // Signs alternate along the column.
                Some(sum) if i % 2 == 0 => self.operate(B::Add, &sum, &term)?,
                Some(sum) => self.operate(B::Subtract, &sum, &term)?,
            });
        }
        self.need(sum, "an empty matrix")
    }
}

/// The cells of a matrix row by row; a vector is one row.
/// So a product with a vector on the left needs no code of its own.
fn rows_of(a: &Operand) -> Vec<Vec<String>> {
    match a.shape {
        ValueShape::Matrix(columns, rows, _) => {
            let cell = |r: usize, c: usize| a.column(c).component(r);
            (0..rows as usize).map(|r| (0..columns as usize).map(|c| cell(r, c)).collect()).collect()
        }
        ValueShape::Vector(n, _) => {
            vec![(0..n as usize).map(|i| format!("{}.{}", a.text, COMPONENTS[i])).collect()]
        }
        ValueShape::Scalar(_) => vec![vec![a.text.clone()]],
    }
}
