//! One field of a message or of a oneof, as prost's attribute says it.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, Error, LitStr, Token, meta::ParseNestedMeta};

pub(crate) struct Field {
    /// Of several that exclude each other, the lowest.
    pub(crate) number: u32,
    kind: Kind,
    label: Label,
    packed: bool,
}

enum Kind {
    Message,
    /// Text and bytes.
    Bytes,
    /// A number of this type of protobuf's, which is the name of prost's module for it too.
    Number(String),
    Map {
        key: String,
        value: String,
    },
    Oneof,
}

#[derive(PartialEq)]
enum Label {
    /// Not written where it is what it would be anyway.
    Plain,
    Optional,
    Repeated,
    Required,
}

impl Field {
    pub(crate) fn of(attributes: &[Attribute], place: &impl ToTokens) -> Result<Field, Error> {
        let (mut number, mut kind) = (None, None);
        let (mut label, mut packed) = (Label::Plain, true);
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("prost")) {
            attribute.parse_nested_meta(|meta| {
                let said = said(&meta)?;
                let word = meta.path.require_ident()?.to_string();
                match word.as_str() {
                    "tag" | "tags" => number = lowest(&said),
                    "optional" => label = Label::Optional,
                    "repeated" => label = Label::Repeated,
                    "required" => label = Label::Required,
                    "packed" => packed = said == "true",
                    "boxed" | "default" => {}
                    "message" => kind = Some(Kind::Message),
                    "string" | "bytes" => kind = Some(Kind::Bytes),
                    "oneof" => kind = Some(Kind::Oneof),
                    "enumeration" => kind = Some(Kind::Number("int32".into())),
                    "btree_map" => kind = map(&said),
                    _ => kind = Some(Kind::Number(word)),
                }
                Ok(())
            })?;
        }
        match (number, kind) {
            (Some(number), Some(kind)) => Ok(Field { number, kind, label, packed }),
            _ => Err(Error::new_spanned(place, "no attribute of prost's with a number and a kind")),
        }
    }

    /// The whole field, as far as it is there.
    pub(crate) fn written(&self, place: &TokenStream) -> TokenStream {
        let value = quote!(value);
        let one = self.one(&value);
        match (&self.kind, &self.label) {
            (Kind::Oneof, _) => quote!(if let Some(value) = &#place { crate::backward::Backward::write(value, out); }),
            (Kind::Map { key, value }, _) => self.entries(place, key, value),
            (Kind::Number(kind), Label::Repeated) => self.numbers(place, kind),
            (_, Label::Repeated) => quote!(for value in #place.iter().rev() { #one }),
            (_, Label::Optional) => quote!(if let Some(value) = &#place { #one }),
            (_, Label::Required) | (Kind::Message, Label::Plain) => quote!({ let value = &#place; #one }),
            (Kind::Bytes, Label::Plain) => unless_default("string", self.number, place),
            (Kind::Number(kind), Label::Plain) => unless_default(kind, self.number, place),
        }
    }

    /// One value, whatever it is.
    pub(crate) fn one(&self, value: &TokenStream) -> TokenStream {
        match &self.kind {
            Kind::Message => one("message", self.number, value),
            Kind::Bytes => one("string", self.number, value),
            Kind::Number(kind) => one(kind, self.number, value),
            Kind::Map { .. } | Kind::Oneof => TokenStream::new(),
        }
    }

    fn numbers(&self, place: &TokenStream, kind: &str) -> TokenStream {
        let (number, module) = (self.number, format_ident!("{kind}"));
        let encode = if self.packed { quote!(encode_packed) } else { quote!(encode_repeated) };
        quote!(out.forward(|buf| ::prost::encoding::#module::#encode(#number, &#place, buf));)
    }

    /// An entry is a message of two fields.
    fn entries(&self, place: &TokenStream, key: &str, value: &str) -> TokenStream {
        let number = self.number;
        let value = match value {
            "message" => quote!(out.some_message(2, value);),
            kind => unless_default(kind, 2, &quote!(*value)),
        };
        let key = unless_default(key, 1, &quote!(*key));
        quote! {
            for (key, value) in #place.iter().rev() {
                let end = out.written();
                #value
                #key
                out.close(#number, end);
            }
        }
    }
}

fn unless_default(kind: &str, number: u32, place: &TokenStream) -> TokenStream {
    let one = one(kind, number, &quote!(value));
    let is_said = match kind {
        "string" | "bytes" => quote!(!value.is_empty()),
        "bool" => quote!(*value),
        "float" | "double" => quote!(*value != 0.0),
        _ => quote!(*value != 0),
    };
    quote!({ let value = &#place; if #is_said { #one } })
}

fn one(kind: &str, number: u32, value: &TokenStream) -> TokenStream {
    match kind {
        "message" => quote!(out.message(#number, #value);),
        "string" | "bytes" => quote!(out.bytes(#number, #value.as_ref());),
        "bool" | "int32" | "int64" | "uint32" | "uint64" => quote!(out.number(#number, *#value as u64);),
        kind => {
            let module = format_ident!("{kind}");
            quote!(out.forward(|buf| ::prost::encoding::#module::encode(#number, #value, buf));)
        }
    }
}

/// The text after `=`, or within brackets; empty where there is none.
fn said(meta: &ParseNestedMeta<'_>) -> Result<String, Error> {
    if meta.input.peek(Token![=]) { Ok(meta.value()?.parse::<LitStr>()?.value()) } else { Ok(String::new()) }
}

fn lowest(numbers: &str) -> Option<u32> {
    numbers.split(',').filter_map(|number| number.trim().parse().ok()).min()
}

fn map(said: &str) -> Option<Kind> {
    let (key, value) = said.split_once(',')?;
    Some(Kind::Map { key: key.trim().to_owned(), value: value.trim().to_owned() })
}
