//! A declaration as lines of text: its kind and name, then what users can name of it.

use super::super::modules::Found;
use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, Visibility};

/// The lines of a declaration that users find under this path.
pub fn lines(public: &str, found: &Found<'_>) -> Vec<String> {
    let (head, members) = match found.item {
        Item::Const(item) => (format!("const {public}: {}", text(&item.ty)), Vec::new()),
        Item::Static(item) => (format!("static {public}: {}", text(&item.ty)), Vec::new()),
        Item::Type(item) => (format!("type {public} = {}", text(&item.ty)), Vec::new()),
        Item::Fn(item) => {
            let (_, tail) = split_name(&item.sig);
            (format!("fn {public}{tail}"), Vec::new())
        }
        Item::Struct(item) => {
            (format!("struct {public}{}", text(&item.generics)), public_fields(&item.fields))
        }
        Item::Enum(item) => {
            let variants =
                item.variants.iter().map(|variant| format!("{}{}", variant.ident, text(&variant.fields)));
            (format!("enum {public}{}", text(&item.generics)), variants.collect())
        }
        Item::Trait(item) => {
            let functions = item.items.iter().filter_map(|item| match item {
                TraitItem::Fn(function) => Some(signature(&function.sig)),
                _ => None,
            });
            (format!("trait {public}{}", text(&item.generics)), functions.collect())
        }
        // A macro makes it.
        _ => (format!("made {public}"), Vec::new()),
    };
    let methods = found.members.iter().filter_map(|member| match member {
        ImplItem::Fn(method) => Some(signature(&method.sig)),
        ImplItem::Const(constant) => Some(format!("const {}: {}", constant.ident, text(&constant.ty))),
        _ => None,
    });
    std::iter::once(head)
        .chain(members.into_iter().chain(methods).map(|member| format!("    {member}")))
        .collect()
}

fn public_fields(fields: &Fields) -> Vec<String> {
    let public = fields.iter().enumerate().filter(|(_, field)| matches!(field.vis, Visibility::Public(_)));
    let field = public.map(|(at, field)| {
        let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
        format!("{name}: {}", text(&field.ty))
    });
    field.collect()
}

fn signature(of: &syn::Signature) -> String {
    let (name, tail) = split_name(of);
    format!("fn {name}{tail}")
}

/// The name of a function, and what stands behind it.
fn split_name(of: &syn::Signature) -> (String, String) {
    let whole = text(of);
    let name = of.ident.to_string();
    let tail = whole.split_once(&format!("fn {name}")).map_or(String::new(), |(_, tail)| tail.to_string());
    (name, tail)
}

/// The tokens as people space them; documentation and attributes left out.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = String::new();
    let mut written: Vec<String> = Vec::new();
    flatten(tokens.to_token_stream(), &mut written);
    for (at, token) in written.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| written.get(at)).map_or("", String::as_str);
        if needs_space(before, token) {
            text.push(' ');
        }
        text.push_str(token);
    }
    text
}

fn needs_space(before: &str, token: &str) -> bool {
    let word = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
    match (before, token) {
        ("", _) => false,
        (",", ")" | "]" | ">") => false,
        ("," | ";" | ":" | "->" | "=" | "+" | "|", _)
        | (_, "->" | "=" | "+" | "|" | "{" | "}")
        | ("{" | "}", _) => true,
        (">" | ")" | "]", token) => word(token),
        (before, token) => (word(before) || before.starts_with('\'')) && word(token),
    }
}

/// The tokens in order; punctuation that belongs together is one, attributes are none.
fn flatten(tokens: proc_macro2::TokenStream, out: &mut Vec<String>) {
    use proc_macro2::{Delimiter, Spacing, TokenTree};
    let mut joint = String::new();
    let mut attribute = false;
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => attribute = true,
            TokenTree::Punct(mark) => {
                joint.push(mark.as_char());
                if mark.spacing() == Spacing::Alone || mark.as_char() == '>' && joint == "->" {
                    out.push(std::mem::take(&mut joint));
                }
            }
            TokenTree::Group(group) => {
                if std::mem::take(&mut attribute) && group.delimiter() == Delimiter::Bracket {
                    continue;
                }
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                out.extend(Some(open.to_string()).filter(|open| !open.is_empty()));
                flatten(group.stream(), out);
                out.extend(Some(close.to_string()).filter(|close| !close.is_empty()));
            }
            other => out.push(std::mem::take(&mut joint) + &other.to_string()),
        }
    }
}
