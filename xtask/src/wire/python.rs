//! The module in Python: the schema as bytes, from which the protobuf package makes the classes.

use super::HEAD;
use prost_types::FileDescriptorProto;

/// Bytes of the schema on one line.
const LINE: usize = 32;

/// The text of `bindings/python/python/tapml/agents/gen/tapml_pb2.py`, as `protoc` writes it but for its check that the
/// protobuf package is of its own release.
pub fn generate(schema: &FileDescriptorProto) -> String {
    let bytes = super::bytes_of(schema);
    let line = |bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("    \"{hex}\"\n")
    };
    let schema: String = bytes.chunks(LINE).map(line).collect();
    format!(
        "\"\"\"{HEAD}\"\"\"

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

_SCHEMA = bytes.fromhex(
{schema})

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_SCHEMA)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
"
    )
}
