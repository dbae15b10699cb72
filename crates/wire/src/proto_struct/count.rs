//! Limits the number of values in a Struct, at all levels, before it is decoded: a decoded value takes fifty times its encoded size.

use protobuf::Fields;

use super::read::{LIST, STRUCT};
use super::{Error, FIELD_1, FIELD_2};

/// Istio's agents send a few hundred: labels, annotations, proxy config.
pub(super) const MAX_VALUES: usize = 10_000;

pub(super) fn check_count(message: &[u8], levels: u8) -> Result<(), Error> {
    count_struct(message, &mut MAX_VALUES.clone(), levels)
}

/// `left`: the remaining number of values.
fn count_struct(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => count_entry(fields.delimited()?, left, levels)?,
            other => fields.skip_unknown(other, 1)?,
        }
    }
    Ok(())
}

fn count_entry(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    take_one(left)?;
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => drop(fields.delimited()?),
            FIELD_2 => count_value(fields.delimited()?, left, levels)?,
            other => fields.skip_unknown(other, 2)?,
        }
    }
    Ok(())
}

fn count_value(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    let levels = levels.checked_sub(1).ok_or(Error::TooDeep)?;
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            STRUCT => count_struct(fields.delimited()?, left, levels)?,
            LIST => count_list(fields.delimited()?, left, levels)?,
            other => fields.skip(other)?,
        }
    }
    Ok(())
}

fn count_list(message: &[u8], left: &mut usize, levels: u8) -> Result<(), Error> {
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            FIELD_1 => {
                take_one(left)?;
                count_value(fields.delimited()?, left, levels)?;
            }
            other => fields.skip_unknown(other, 1)?,
        }
    }
    Ok(())
}

fn take_one(left: &mut usize) -> Result<(), Error> {
    *left = left.checked_sub(1).ok_or(Error::TooMany)?;
    Ok(())
}
