//! The code in Rust: messages by `prost-build`; the shapes that `wire::scan` looks for before anything is decoded; for each
//! `oneof` of a whole message a macro that does the same with whichever message it holds, and one that lists them.

use super::{HEAD, pascal, snake};
use anyhow::{Context, Result, ensure};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

/// The text of `crates/rpc/src/wire/gen/messages.rs`.
pub fn generate(schema: &FileDescriptorProto) -> Result<String> {
    let package = prost_build::Module::from_protobuf_package_name(schema.package());
    let mut config = prost_build::Config::new();
    config.bytes(["."]).type_attribute(".", "#[allow(missing_docs)]");
    let mut made = config.generate(vec![(package.clone(), schema.clone())])?;
    let messages = made.remove(&package).context("the schema gives no code")?;
    // The first line names the generator.
    let messages = messages.split_once('\n').map_or("", |(_, after)| after);
    Ok(format!("// {HEAD}\n\n{messages}{}{}", shapes(schema), macros(schema)?))
}

/// The name of a message of this schema that a field holds.
fn message_of(field: &FieldDescriptorProto) -> Option<&str> {
    let name = field.type_name();
    (field.r#type() == Type::Message).then(|| name.rsplit('.').next().unwrap_or(name))
}

/// Numbers one after the other, without a tag for each.
fn is_packed(field: &FieldDescriptorProto) -> bool {
    let numbers = !matches!(field.r#type(), Type::Message | Type::String | Type::Bytes | Type::Group);
    numbers && field.label() == Label::Repeated
}

fn shapes(schema: &FileDescriptorProto) -> String {
    let mut out = "\n/// The fields of each message that hold messages, or several numbers.\n".to_string();
    out += "pub(crate) mod shapes {\n    use super::scan::Shape;\n\n";
    for message in &schema.message_type {
        let name = snake(message.name()).to_uppercase();
        let inner = |field: &FieldDescriptorProto| {
            let shape = match message_of(field) {
                Some(inner) => snake(inner).to_uppercase(),
                None if is_packed(field) => "Shape::Numbers".into(),
                None => return None,
            };
            Some(format!("({}, &{shape})", field.number()))
        };
        let fields: Vec<String> = message.field.iter().filter_map(inner).collect();
        out += &format!("    pub static {name}: Shape = Shape::Message(&[{}]);\n", fields.join(", "));
    }
    out + "}\n"
}

/// Whether no other message holds this one.
fn is_whole(message: &DescriptorProto, schema: &FileDescriptorProto) -> bool {
    let mut fields = schema.message_type.iter().flat_map(|message| &message.field);
    !fields.any(|field| message_of(field) == Some(message.name()))
}

fn macros(schema: &FileDescriptorProto) -> Result<String> {
    let mut out = String::new();
    for message in schema.message_type.iter().filter(|message| is_whole(message, schema)) {
        let name = message.name();
        ensure!(message.oneof_decl.len() == 1, "{name} is in no message and has no oneof of its own");
        let (module, kind) = (snake(name), pascal(message.oneof_decl[0].name()));
        out += &format!("\n/// Does the same with whichever message a [`{module}::{kind}`] holds.\n");
        out += "#[allow(unused_macros)]\n";
        out += &format!("macro_rules! with_{module} {{\n");
        out += "    ($of:expr, $message:ident => $body:expr) => {\n        match $of {\n";
        let held = || message.field.iter().filter(|field| field.oneof_index.is_some());
        for field in held() {
            let variant = pascal(field.name());
            out += &format!("            $crate::wire::{module}::{kind}::{variant}($message) => $body,\n");
        }
        out += &format!("        }}\n    }};\n}}\n#[allow(unused_imports)]\npub(crate) use with_{module};\n");
        let messages: Vec<&str> = held().filter_map(message_of).collect();
        out += &format!(
            "\n/// Calls a macro with the messages that a [`{module}::{kind}`] may hold, in their order.\n"
        );
        out += &format!("#[allow(unused_macros)]\nmacro_rules! each_{module} {{\n");
        out += &format!("    ($call:ident) => {{\n        $call!({})\n    }};\n}}\n", messages.join(" "));
        out += &format!("#[allow(unused_imports)]\npub(crate) use each_{module};\n");
    }
    Ok(out)
}
