//! Decodes the messages of a Struct into a builder.

use protobuf::Fields;

use super::{Error, FIELD_1, FIELD_2};

pub(super) const NULL: u32 = 1 << 3;
pub(super) const NUMBER: u32 = 2 << 3 | 1;
pub(super) const STRING: u32 = 3 << 3 | 2;
pub(super) const BOOL: u32 = 4 << 3;
pub(super) const STRUCT: u32 = 5 << 3 | 2;
pub(super) const LIST: u32 = 6 << 3 | 2;

/// What a Value is decoded into; the default is an unset Value.
pub(super) trait ValueBuilder<'a>: Default {
    type Fields;

    fn null(number: i32) -> Self;
    fn number(number: f64) -> Self;
    fn text(text: &'a str) -> Self;
    fn boolean(value: bool) -> Self;
    /// The fields of the Struct; turns another kind into an empty Struct.
    fn fields(&mut self) -> &mut Self::Fields;
    /// The values of the list; turns another kind into an empty list.
    fn values(&mut self) -> &mut Vec<Self>;
    /// Of duplicate names the last one counts.
    fn add(fields: &mut Self::Fields, entries: Vec<(&'a str, Self)>);
}

/// `levels`: the remaining nesting depth.
pub(super) fn read_struct<'a, F: ValueBuilder<'a>>(
    message: &'a [u8],
    into: &mut F::Fields,
    levels: u8,
) -> Result<(), Error> {
    let mut entries = Vec::new();
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => entries.push(read_entry(fields.delimited()?, descend(levels)?)?),
            other => fields.skip_unknown(other, 1)?,
        }
    }
    F::add(into, entries);
    Ok(())
}

pub(super) fn read_entry<'a, F: ValueBuilder<'a>>(message: &'a [u8], levels: u8) -> Result<(&'a str, F), Error> {
    let (mut name, mut value) = ("", F::default());
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => name = fields.text()?,
            FIELD_2 => merge(fields.delimited()?, &mut value, descend(levels)?)?,
            other => fields.skip_unknown(other, 2)?,
        }
    }
    Ok((name, value))
}

/// The name of an entry, whose value is not decoded.
pub(super) fn entry_name(entry: &[u8]) -> Result<&[u8], Error> {
    let mut name: &[u8] = &[];
    let mut fields = Fields::new(entry);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => name = fields.delimited()?,
            FIELD_2 => drop(fields.delimited()?),
            other => fields.skip_unknown(other, 2)?,
        }
    }
    Ok(name)
}

pub(super) fn merge<'a, F: ValueBuilder<'a>>(message: &'a [u8], into: &mut F, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            // Truncated like prost does.
            NULL => *into = F::null(fields.varint()? as i32),
            NUMBER => *into = F::number(fields.double()?),
            STRING => *into = F::text(fields.text()?),
            BOOL => *into = F::boolean(fields.varint()? != 0),
            STRUCT => read_struct::<F>(fields.delimited()?, into.fields(), descend(levels)?)?,
            LIST => list(fields.delimited()?, into.values(), descend(levels)?)?,
            other => fields.skip_unknown(other, 6)?,
        }
    }
    Ok(())
}

fn list<'a, F: ValueBuilder<'a>>(message: &'a [u8], into: &mut Vec<F>, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => {
                let mut value = F::default();
                merge(fields.delimited()?, &mut value, descend(levels)?)?;
                into.push(value);
            }
            other => fields.skip_unknown(other, 1)?,
        }
    }
    Ok(())
}

fn descend(levels: u8) -> Result<u8, Error> {
    levels.checked_sub(1).ok_or(Error::TooDeep)
}
