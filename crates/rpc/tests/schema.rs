//! The schema file and the code's structs are one contract: every message, field, type and number agrees, and so does the
//! table of nested messages that is looked at before anything is decoded.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

const PROTO: &str = include_str!("../proto/tapml.proto");
const CODE: [&str; 4] = [
    include_str!("../src/wire/session.rs"),
    include_str!("../src/wire/commands.rs"),
    include_str!("../src/wire/nodes.rs"),
    include_str!("../src/wire/hub.rs"),
];
const SCAN: &str = include_str!("../src/wire/scan.rs");

/// A field: its type with `repeated` or `optional`, by its number.
type Fields = BTreeMap<u32, (String, String)>;

/// Words and signs of a text without comments.
fn tokens(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap();
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                all.push(std::mem::take(&mut word));
            }
            if !c.is_whitespace() {
                all.push(c.to_string());
            }
        }
    }
    all
}

/// Messages and enums of the schema.
fn of_proto() -> (BTreeMap<String, Fields>, BTreeMap<String, Fields>) {
    let (mut messages, mut enums) = (BTreeMap::new(), BTreeMap::new());
    let all = tokens(PROTO);
    let mut at = 0;
    while at < all.len() {
        let kind = all[at].as_str();
        if kind != "message" && kind != "enum" {
            at += 1;
            continue;
        }
        let (name, mut fields, mut depth) = (all[at + 1].clone(), Fields::new(), 1);
        at += 3;
        let mut statement: Vec<&str> = Vec::new();
        while depth > 0 {
            match all[at].as_str() {
                "{" => {
                    depth += 1;
                    statement.clear();
                }
                "}" => depth -= 1,
                ";" if statement[0] == "reserved" => statement.clear(),
                ";" => {
                    let (number, field) = (statement[statement.len() - 1], statement[statement.len() - 3]);
                    let ty = statement[..statement.len() - 3].join(" ");
                    let old = fields.insert(number.parse().unwrap(), (field.to_string(), ty));
                    assert_eq!(old, None, "{name}: number {number} is used twice");
                    statement.clear();
                }
                word => statement.push(word),
            }
            at += 1;
        }
        let place: &mut BTreeMap<_, _> = if kind == "message" { &mut messages } else { &mut enums };
        assert!(place.insert(name, fields).is_none());
    }
    (messages, enums)
}

/// A field's type as the schema writes it, from its attribute.
fn type_of(attribute: &str, rust: &str) -> String {
    let parts: Vec<&str> = attribute.split(',').map(str::trim).collect();
    let inner = rust.trim_start_matches("Vec<").trim_start_matches("Option<").trim_end_matches('>');
    let base = match parts[0] {
        "message" => inner.to_string(),
        p if p.starts_with("enumeration") => p.split('"').nth(1).unwrap().to_string(),
        p if p.starts_with("bytes") => "bytes".into(),
        p => p.to_string(),
    };
    let repeated = parts.contains(&"repeated");
    // A message is always optional; only of a number does the schema say so.
    let optional = parts.contains(&"optional") && parts[0] != "message";
    format!(
        "{}{base}",
        if repeated {
            "repeated "
        } else if optional {
            "optional "
        } else {
            ""
        }
    )
}

/// Messages of the code. Variants of a `oneof` belong to the message that holds it.
fn of_code() -> (BTreeMap<String, Fields>, BTreeMap<String, Fields>) {
    let (mut messages, mut enums): (BTreeMap<String, Fields>, BTreeMap<String, Fields>) = Default::default();
    let mut oneofs: BTreeMap<String, Fields> = BTreeMap::new();
    let mut holders: Vec<(String, String)> = Vec::new();
    for text in CODE {
        let (mut derive, mut name, mut attribute) = (String::new(), String::new(), String::new());
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[derive(") {
                derive = line.into();
            } else if let Some(rest) = line.strip_prefix("pub struct ").or(line.strip_prefix("pub enum ")) {
                name = rest.split([' ', '{']).next().unwrap().into();
                let place = match &derive {
                    d if d.contains("Oneof") => &mut oneofs,
                    d if d.contains("Enumeration") => &mut enums,
                    _ => &mut messages,
                };
                place.entry(name.clone()).or_default();
            } else if line.starts_with("#[prost(") || !attribute.is_empty() && !attribute.ends_with(")]") {
                attribute.push_str(line);
            } else if attribute.ends_with(")]") && !line.starts_with("#[") {
                let inner = attribute.trim_start_matches("#[prost(").trim_end_matches(")]").to_string();
                attribute.clear();
                if inner.starts_with("oneof") {
                    holders.push((name.clone(), inner.split('"').nth(1).unwrap().into()));
                    continue;
                }
                let number =
                    inner.split("tag = \"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
                if derive.contains("Oneof") {
                    let (variant, ty) = line.trim_end_matches("),").split_once('(').unwrap();
                    oneofs.get_mut(&name).unwrap().insert(number, (snake(variant), ty.into()));
                } else {
                    let (field, ty) =
                        line.strip_prefix("pub ").unwrap().trim_end_matches(',').split_once(": ").unwrap();
                    let row = (field.to_string(), type_of(&inner, ty));
                    messages.get_mut(&name).unwrap().insert(number, row);
                }
            } else if derive.contains("Enumeration") && line.contains(" = ") {
                let (variant, number) = line.trim_end_matches(',').split_once(" = ").unwrap();
                let full = format!("{}_{}", snake(&name), snake(variant)).to_uppercase();
                enums.get_mut(&name).unwrap().insert(number.parse().unwrap(), (full, String::new()));
            }
        }
    }
    for (message, oneof) in holders {
        let fields = oneofs[&oneof].clone();
        messages.get_mut(&message).unwrap().extend(fields);
    }
    (messages, enums)
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

#[test]
fn the_schema_and_the_structs_agree() {
    let ((messages, enums), (coded, coded_enums)) = (of_proto(), of_code());
    assert!(messages.len() > 45 && enums.len() == 5, "{} {}", messages.len(), enums.len());
    assert_eq!(messages.keys().collect::<Vec<_>>(), coded.keys().collect::<Vec<_>>());
    for (name, fields) in &messages {
        assert_eq!(fields, &coded[name], "message {name}");
    }
    assert_eq!(enums, coded_enums);
}

#[test]
fn the_table_of_nested_messages_is_that_of_the_schema() {
    let (messages, _) = of_proto();
    let shape = |name: &str| snake(name).to_uppercase();
    let nested = |fields: &Fields| -> Vec<(u32, String)> {
        let message = |(number, (_, ty)): (&u32, &(String, String))| {
            let ty = match ty.strip_prefix("repeated ") {
                Some("uint32" | "uint64" | "bool") => return Some((*number, "packed".to_string())),
                other => other.unwrap_or(ty),
            };
            messages.contains_key(ty).then(|| (*number, ty.to_string()))
        };
        fields.iter().filter_map(message).collect()
    };
    let all = tokens(SCAN);
    let mut rows = 0;
    for (name, fields) in &messages {
        let inner = nested(fields);
        if inner.is_empty() {
            continue;
        }
        rows += 1;
        let at = all.windows(4).position(|w| w[0] == "static" && w[1] == shape(name) && w[3] == "Shape");
        let at = at.unwrap_or_else(|| panic!("no shape of {name}"));
        let end = at + all[at..].iter().position(|t| t == ";").unwrap();
        let pairs: Vec<(u32, String)> = all[at..end]
            .windows(4)
            .filter(|w| w[1] == "," && w[2] == "&")
            .map(|w| (w[0].parse().unwrap(), w[3].clone()))
            .collect();
        let expected: Vec<(u32, String)> = inner
            .iter()
            .map(|(n, ty)| match messages.get(ty) {
                None => (*n, shape(ty)),
                Some(fields) if nested(fields).is_empty() => (*n, "LEAF".into()),
                Some(_) => (*n, shape(ty)),
            })
            .collect();
        assert_eq!(pairs, expected, "shape of {name}");
    }
    assert!(rows > 12, "{rows}");
}

#[test]
fn every_message_and_enum_of_the_schema_is_explained() {
    let blocks = PROTO
        .split("\n\n")
        .filter(|b| b.lines().any(|l| l.starts_with("message ") || l.starts_with("enum ")));
    for block in blocks {
        assert!(block.starts_with("//"), "{block}");
    }
}
