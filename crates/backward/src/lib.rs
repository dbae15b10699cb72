//! `#[derive(Backward)]` for messages that prost generated: how their fields are written from the last to the first. Reads prost's own
//! attributes. What is written to, and why backwards, is in `wire/src/backward.rs`.

mod field;

use field::Field;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DataEnum, DataStruct, DeriveInput, Error, parse_macro_input};

#[proc_macro_derive(Backward)]
pub fn backward(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let written = match &input.data {
        Data::Struct(message) => of_message(message)?,
        Data::Enum(oneof) => of_oneof(oneof)?,
        Data::Union(_) => return Err(Error::new_spanned(&input.ident, "prost generates no unions")),
    };
    // An enumeration is a number where it is used.
    let Some(written) = written else { return Ok(TokenStream::new()) };
    let name = &input.ident;
    Ok(quote! {
        impl crate::backward::Backward for #name {
            fn write(&self, out: &mut crate::backward::Writer) {
                #written
            }
        }
    })
}

fn of_message(message: &DataStruct) -> Result<Option<TokenStream>, Error> {
    let fields = message.fields.iter().map(|field| Ok((Field::of(&field.attrs, field)?, &field.ident)));
    let mut fields = fields.collect::<Result<Vec<_>, Error>>()?;
    // prost writes them by number.
    fields.sort_by_key(|(field, _)| std::cmp::Reverse(field.number));
    let written = fields.iter().map(|(field, name)| field.written(&quote!(self.#name)));
    Ok(Some(quote!(#(#written)*)))
}

fn of_oneof(oneof: &DataEnum) -> Result<Option<TokenStream>, Error> {
    if oneof.variants.iter().all(|variant| variant.fields.is_empty()) {
        return Ok(None);
    }
    let mut arms = Vec::new();
    for variant in &oneof.variants {
        let (name, field) = (&variant.ident, Field::of(&variant.attrs, variant)?);
        let one = field.one(&quote!(value));
        arms.push(quote!(Self::#name(value) => { #one }));
    }
    Ok(Some(quote!(match self { #(#arms)* })))
}
