//! The messages of a Struct, read into whatever form is wanted.

use super::Error;
use super::fields::{FIRST, Fields, SECOND};

pub(super) const NULL: u32 = 1 << 3;
pub(super) const NUMBER: u32 = 2 << 3 | 1;
pub(super) const TEXT: u32 = 3 << 3 | 2;
pub(super) const TRUTH: u32 = 4 << 3;
pub(super) const STRUCT: u32 = 5 << 3 | 2;
pub(super) const LIST: u32 = 6 << 3 | 2;

/// What a Value is read into; by default nothing is set.
pub(super) trait Form<'a>: Default {
    type Fields;

    fn null(number: i32) -> Self;
    fn number(number: f64) -> Self;
    fn text(text: &'a str) -> Self;
    fn truth(truth: bool) -> Self;
    /// Those of the struct that it is, or is from now on.
    fn fields(&mut self) -> &mut Self::Fields;
    /// Those of the list that it is, or is from now on.
    fn values(&mut self) -> &mut Vec<Self>;
    /// Of those of one name the last one counts.
    fn add(fields: &mut Self::Fields, entries: Vec<(&'a str, Self)>);
}

/// `levels`: so many more messages may be inside each other.
pub(super) fn structure<'a, F: Form<'a>>(message: &'a [u8], into: &mut F::Fields, levels: u8) -> Result<(), Error> {
    let mut entries = Vec::new();
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => entries.push(entry(fields.delimited()?, inside(levels)?)?),
            other => fields.pass(other, 1)?,
        }
    }
    F::add(into, entries);
    Ok(())
}

pub(super) fn entry<'a, F: Form<'a>>(message: &'a [u8], levels: u8) -> Result<(&'a str, F), Error> {
    let (mut name, mut value) = ("", F::default());
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => name = fields.text()?,
            SECOND => merge(fields.delimited()?, &mut value, inside(levels)?)?,
            other => fields.pass(other, 2)?,
        }
    }
    Ok((name, value))
}

/// That of an entry, whose value is not looked at.
pub(super) fn name(entry: &[u8]) -> Result<&[u8], Error> {
    let mut name: &[u8] = &[];
    let mut fields = Fields::new(entry);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => name = fields.delimited()?,
            SECOND => drop(fields.delimited()?),
            other => fields.pass(other, 2)?,
        }
    }
    Ok(name)
}

pub(super) fn merge<'a, F: Form<'a>>(message: &'a [u8], into: &mut F, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            // Cut as prost does it.
            NULL => *into = F::null(fields.varint()? as i32),
            NUMBER => *into = F::number(fields.double()?),
            TEXT => *into = F::text(fields.text()?),
            TRUTH => *into = F::truth(fields.varint()? != 0),
            STRUCT => structure::<F>(fields.delimited()?, into.fields(), inside(levels)?)?,
            LIST => list(fields.delimited()?, into.values(), inside(levels)?)?,
            other => fields.pass(other, 6)?,
        }
    }
    Ok(())
}

fn list<'a, F: Form<'a>>(message: &'a [u8], into: &mut Vec<F>, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => {
                let mut value = F::default();
                merge(fields.delimited()?, &mut value, inside(levels)?)?;
                into.push(value);
            }
            other => fields.pass(other, 1)?,
        }
    }
    Ok(())
}

fn inside(levels: u8) -> Result<u8, Error> {
    levels.checked_sub(1).ok_or(Error::TooDeep)
}
