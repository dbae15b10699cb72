//! One field of a message or oneof, by its prost attribute.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, Error, LitStr, Token, meta::ParseNestedMeta};

pub(crate) struct Field {
    /// Of a oneof, the lowest number.
    pub(crate) number: u32,
    kind: Kind,
    label: Label,
    packed: bool,
}

enum Kind {
    Message,
    /// Strings and bytes.
    Bytes,
    /// A number of this protobuf type, which is also the name of prost's module for it.
    Number(String),
    Map {
        key: String,
        value: String,
    },
    Oneof,
}

#[derive(PartialEq)]
enum Label {
    /// Left out if it has the default value.
    Plain,
    Optional,
    Repeated,
    Required,
}

impl Field {
    pub(crate) fn of(attributes: &[Attribute], location: &impl ToTokens) -> Result<Field, Error> {
        let (mut number, mut kind) = (None, None);
        let (mut label, mut packed) = (Label::Plain, true);
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("prost")) {
            attribute.parse_nested_meta(|meta| {
                let text = attribute_value(&meta)?;
                let word = meta.path.require_ident()?.to_string();
                match word.as_str() {
                    "tag" | "tags" => number = lowest(&text),
                    "optional" => label = Label::Optional,
                    "repeated" => label = Label::Repeated,
                    "required" => label = Label::Required,
                    "packed" => packed = text == "true",
                    "boxed" | "default" => {}
                    "message" => kind = Some(Kind::Message),
                    "string" | "bytes" => kind = Some(Kind::Bytes),
                    "oneof" => kind = Some(Kind::Oneof),
                    "enumeration" => kind = Some(Kind::Number("int32".into())),
                    "btree_map" => kind = map(&text),
                    _ => kind = Some(Kind::Number(word)),
                }
                Ok(())
            })?;
        }
        match (number, kind) {
            (Some(number), Some(kind)) => Ok(Field { number, kind, label, packed }),
            _ => Err(Error::new_spanned(location, "no attribute of prost's with a number and a kind")),
        }
    }

    /// Code that writes the whole field, if present.
    pub(crate) fn write_field(&self, location: &TokenStream) -> TokenStream {
        let value = quote!(value);
        let write_one = self.write_one(&value);
        match (&self.kind, &self.label) {
            (Kind::Oneof, _) => {
                quote!(if let Some(value) = &#location { ::protobuf::Encode::write(value, out); })
            }
            (Kind::Map { key, value }, _) => self.entries(location, key, value),
            (Kind::Number(kind), Label::Repeated) => self.numbers(location, kind),
            (_, Label::Repeated) => quote!(for value in #location.iter().rev() { #write_one }),
            (_, Label::Optional) => quote!(if let Some(value) = &#location { #write_one }),
            (_, Label::Required) | (Kind::Message, Label::Plain) => quote!({ let value = &#location; #write_one }),
            (Kind::Bytes, Label::Plain) => unless_default("string", self.number, location),
            (Kind::Number(kind), Label::Plain) => unless_default(kind, self.number, location),
        }
    }

    /// Code that writes one value of the field.
    pub(crate) fn write_one(&self, value: &TokenStream) -> TokenStream {
        match &self.kind {
            Kind::Message => write_one("message", self.number, value),
            Kind::Bytes => write_one("string", self.number, value),
            Kind::Number(kind) => write_one(kind, self.number, value),
            Kind::Map { .. } | Kind::Oneof => TokenStream::new(),
        }
    }

    fn numbers(&self, location: &TokenStream, kind: &str) -> TokenStream {
        let (number, module) = (self.number, format_ident!("{kind}"));
        let encode = if self.packed { quote!(encode_packed) } else { quote!(encode_repeated) };
        quote!(out.forward(|buf| ::prost::encoding::#module::#encode(#number, &#location, buf));)
    }

    /// A map entry is a message of two fields.
    fn entries(&self, location: &TokenStream, key: &str, value: &str) -> TokenStream {
        let number = self.number;
        let value = match value {
            "message" => quote!(out.some_message(2, value);),
            kind => unless_default(kind, 2, &quote!(*value)),
        };
        let key = unless_default(key, 1, &quote!(*key));
        quote! {
            for (key, value) in #location.iter().rev() {
                let end = out.written();
                #value
                #key
                out.close(#number, end);
            }
        }
    }
}

fn unless_default(kind: &str, number: u32, location: &TokenStream) -> TokenStream {
    let write_one = write_one(kind, number, &quote!(value));
    let is_set = match kind {
        "string" | "bytes" => quote!(!value.is_empty()),
        "bool" => quote!(*value),
        "float" | "double" => quote!(*value != 0.0),
        _ => quote!(*value != 0),
    };
    quote!({ let value = &#location; if #is_set { #write_one } })
}

fn write_one(kind: &str, number: u32, value: &TokenStream) -> TokenStream {
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

/// The text after `=`; empty if there is none.
fn attribute_value(meta: &ParseNestedMeta<'_>) -> Result<String, Error> {
    if meta.input.peek(Token![=]) { Ok(meta.value()?.parse::<LitStr>()?.value()) } else { Ok(String::new()) }
}

fn lowest(numbers: &str) -> Option<u32> {
    numbers.split(',').filter_map(|number| number.trim().parse().ok()).min()
}

fn map(text: &str) -> Option<Kind> {
    let (key, value) = text.split_once(',')?;
    Some(Kind::Map { key: key.trim().to_owned(), value: value.trim().to_owned() })
}
