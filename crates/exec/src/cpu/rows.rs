//! A buffer of rows that grows in place while nobody else looks at it, and hands out views that share its bytes.

use std::sync::Arc;
use tapml_graph::{Bytes, DType, Error, Result, Tensor};

/// Rows of a growing state.
#[derive(Debug)]
pub(super) struct StateRows {
    /// Shared with views.
    store: Arc<Store>,
    dtype: DType,
    /// Sizes behind the first.
    row: Vec<usize>,
}

/// Words, so that elements of every dtype are aligned; `len` bytes of them are in use.
#[derive(Clone, Debug, Default)]
struct Store {
    words: Vec<u64>,
    len: usize,
}

impl AsRef<[u8]> for Store {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl Store {
    /// Doubles when it is full, so that adding rows costs a constant on average.
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end > self.words.len() * 8 {
            self.words.resize(end.div_ceil(8).max(self.words.len() * 2).max(512), 0);
        }
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words)[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

impl StateRows {
    /// No rows yet; `row` is the shape of one.
    pub fn new(dtype: DType, row: Vec<usize>) -> StateRows {
        StateRows { store: Arc::default(), dtype, row }
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        match self.row_bytes() {
            0 => 0,
            bytes => self.store.len / bytes,
        }
    }

    /// Adds the rows of `new` behind the others: in place unless a view of an earlier time is still alive.
    pub fn push(&mut self, new: &Tensor) -> Result<()> {
        if new.dtype() != self.dtype || new.shape().get(1..) != Some(self.row.as_slice()) {
            let (dtype, shape, row) = (new.dtype(), new.shape(), &self.row);
            return Err(Error::bug(format!("{dtype}{shape:?} pushed behind rows of {}{row:?}", self.dtype)));
        }
        // Copies everything if a view is alive; see the module of observers.
        Arc::make_mut(&mut self.store).push(new.bytes());
        Ok(())
    }

    /// So many rows of zeros.
    pub fn zeros(dtype: DType, count: usize, row: Vec<usize>) -> StateRows {
        let mut rows = StateRows::new(dtype, row);
        let len = count.saturating_mul(rows.row_bytes());
        rows.store = Arc::new(Store { words: vec![0; len.div_ceil(8)], len });
        rows
    }

    /// Replaces the rows at `slots` by those of `new`, one after another: in place unless a view of an earlier time is still
    /// alive. A slot behind the last row keeps its row nowhere.
    pub fn overwrite(&mut self, new: &Tensor, slots: &[u32]) -> Result<()> {
        let bytes = self.row_bytes();
        if new.dtype() != self.dtype || new.bytes().len() != bytes.saturating_mul(slots.len()) {
            let (dtype, shape, row) = (new.dtype(), new.shape(), &self.row);
            return Err(Error::bug(format!("{dtype}{shape:?} written into rows of {}{row:?}", self.dtype)));
        }
        let count = self.count();
        let store = Arc::make_mut(&mut self.store);
        let all = bytemuck::cast_slice_mut::<u64, u8>(&mut store.words);
        for (slot, row) in slots.iter().zip(new.bytes().chunks_exact(bytes.max(1))) {
            let slot = *slot as usize;
            if slot < count {
                all[slot * bytes..(slot + 1) * bytes].copy_from_slice(row);
            }
        }
        Ok(())
    }

    /// The first `count` rows as a view.
    pub fn view(&self, count: usize) -> Result<Tensor> {
        let shape = std::iter::once(count).chain(self.row.iter().copied()).collect();
        let bytes = Bytes::from_shared(self.store.clone()).slice(0, count.saturating_mul(self.row_bytes()));
        let bytes = bytes.ok_or_else(|| Error::bug(format!("{count} rows asked of {}", self.count())))?;
        Tensor::new(self.dtype, shape, bytes)
    }

    /// 0 if a size is 0.
    fn row_bytes(&self) -> usize {
        self.row.iter().product::<usize>() * self.dtype.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: [f32; 3]) -> Tensor {
        Tensor::from_f32(vec![1, 3], values.to_vec()).unwrap()
    }

    #[test]
    fn rows_grow_in_place_until_somebody_keeps_a_view() {
        let mut rows = StateRows::new(DType::F32, vec![3]);
        for i in 0..200 {
            rows.push(&row([i as f32, 1.0, 2.0])).unwrap();
        }
        let place = rows.view(1).unwrap().bytes().as_ptr();
        rows.push(&row([7.0; 3])).unwrap();
        assert_eq!(rows.view(1).unwrap().bytes().as_ptr(), place);

        let kept = rows.view(201).unwrap();
        rows.push(&row([8.0; 3])).unwrap();
        assert_eq!(kept.to_f32()[600..], [7.0; 3]);
        assert_eq!(rows.view(202).unwrap().to_f32()[600..], [7.0, 7.0, 7.0, 8.0, 8.0, 8.0]);
        assert_eq!((rows.count(), kept.shape()), (202, &[201, 3][..]));
    }

    #[test]
    fn wrong_rows_and_views_are_refused() {
        let mut rows = StateRows::new(DType::F32, vec![3]);
        assert!(rows.push(&Tensor::from_f32(vec![1, 2], vec![0.0; 2]).unwrap()).is_err());
        assert!(rows.push(&Tensor::from_f32_as(DType::F16, vec![1, 3], vec![0.0; 3]).unwrap()).is_err());
        assert!(rows.view(1).is_err());
        assert_eq!(rows.view(0).unwrap().shape(), [0, 3]);
    }
}
