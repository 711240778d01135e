//! Writes GGUF files for tests: sound ones, and those that lie.

/// A file in the making; [`Writer::file`] gives its bytes.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Version of the format.
    pub version: u32,
    /// Tensors begin at multiples of so many bytes.
    pub alignment: u64,
    pairs: Vec<Vec<u8>>,
    entries: Vec<Vec<u8>>,
    data: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { version: 3, alignment: 32, pairs: Vec::new(), entries: Vec::new(), data: Vec::new() }
    }
}

impl Writer {
    /// An empty file.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Adds a metadata pair of a type by its number in the format; `value` is what follows it.
    pub fn pair(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Writer {
        self.pairs.push([text(key.as_bytes()), kind.to_le_bytes().to_vec(), value.to_vec()].concat());
        self
    }

    /// Adds a u32.
    pub fn whole(&mut self, key: &str, value: u32) -> &mut Writer {
        self.pair(key, 4, &value.to_le_bytes())
    }

    /// Adds an f32.
    pub fn number(&mut self, key: &str, value: f32) -> &mut Writer {
        self.pair(key, 6, &value.to_le_bytes())
    }

    /// Adds a truth value.
    pub fn flag(&mut self, key: &str, value: bool) -> &mut Writer {
        self.pair(key, 7, &[u8::from(value)])
    }

    /// Adds a text.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Writer {
        self.pair(key, 8, &text(value.as_bytes()))
    }

    /// Adds an array of texts.
    pub fn texts(&mut self, key: &str, values: &[impl AsRef<str>]) -> &mut Writer {
        let items: Vec<u8> = values.iter().flat_map(|value| text(value.as_ref().as_bytes())).collect();
        self.array(key, 8, values.len(), &items)
    }

    /// Adds an array of f32.
    pub fn numbers(&mut self, key: &str, values: &[f32]) -> &mut Writer {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.array(key, 6, values.len(), &items)
    }

    /// Adds an array of i32.
    pub fn wholes(&mut self, key: &str, values: &[i32]) -> &mut Writer {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.array(key, 5, values.len(), &items)
    }

    /// Adds an array of `count` items of a type by its number.
    pub fn array(&mut self, key: &str, kind: u32, count: usize, items: &[u8]) -> &mut Writer {
        let head = [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
        self.pair(key, 9, &[head, items.to_vec()].concat())
    }

    /// Adds a tensor of a type by its number, sizes outermost first, behind those that are there.
    pub fn tensor(&mut self, name: &str, shape: &[u64], kind: u32, bytes: &[u8]) -> &mut Writer {
        let offset = self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(self.alignment.max(1) as usize), 0);
        self.entry(name, shape, kind, offset)
    }

    /// Adds a tensor entry without bytes.
    pub fn entry(&mut self, name: &str, shape: &[u64], kind: u32, offset: u64) -> &mut Writer {
        let mut entry = [text(name.as_bytes()), (shape.len() as u32).to_le_bytes().to_vec()].concat();
        entry.extend(shape.iter().rev().flat_map(|size| size.to_le_bytes()));
        entry.extend(kind.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        self.entries.push(entry);
        self
    }

    /// The whole file.
    pub fn file(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend((self.entries.len() as u64).to_le_bytes());
        file.extend((self.pairs.len() as u64).to_le_bytes());
        file.extend(self.pairs.concat());
        file.extend(self.entries.concat());
        file.resize(file.len().next_multiple_of(self.alignment.max(1) as usize), 0);
        file.extend_from_slice(&self.data);
        file
    }
}

/// A length and the bytes of a text.
fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}
