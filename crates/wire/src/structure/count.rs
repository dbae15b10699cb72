//! How many values a Struct holds, at all levels. Counted before it is read: each takes fifty times its bytes in memory.

use super::Error;
use super::fields::{FIRST, Fields, SECOND};
use super::read::{LIST, STRUCT};

/// Istio's agents send some hundred: labels, annotations, the settings of the proxy.
pub(super) const MAX_VALUES: usize = 10_000;

pub(super) fn check(structure: &[u8], levels: u8) -> Result<(), Error> {
    in_struct(structure, &mut MAX_VALUES.clone(), levels)
}

/// `left`: so many more may be there.
fn in_struct(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => in_entry(fields.delimited()?, left, levels)?,
            other => fields.pass(other, 1)?,
        }
    }
    Ok(())
}

fn in_entry(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    take(left)?;
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => drop(fields.delimited()?),
            SECOND => in_value(fields.delimited()?, left, levels)?,
            other => fields.pass(other, 2)?,
        }
    }
    Ok(())
}

fn in_value(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    let levels = levels.checked_sub(1).ok_or(Error::TooDeep)?;
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            STRUCT => in_struct(fields.delimited()?, left, levels)?,
            LIST => in_list(fields.delimited()?, left, levels)?,
            other => fields.skip(other)?,
        }
    }
    Ok(())
}

fn in_list(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(key) = fields.key()? {
        match key {
            FIRST => {
                take(left)?;
                in_value(fields.delimited()?, left, levels)?;
            }
            other => fields.pass(other, 1)?,
        }
    }
    Ok(())
}

fn take(left: &mut usize) -> Result<(), Error> {
    *left = left.checked_sub(1).ok_or(Error::TooMany)?;
    Ok(())
}
