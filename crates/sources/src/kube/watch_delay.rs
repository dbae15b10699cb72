//! How long events take from the API server to here, by the times that objects carry: when they were last written.

use std::time::{Duration, SystemTime};

use protobuf::{Error, Fields};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::encoded_page::event_object;

/// Upper bounds of the buckets, in seconds. Objects tell whole seconds, so that an event that arrives at once has a delay of up to one.
pub const DELAY_BUCKETS: [u32; 8] = [1, 2, 3, 5, 10, 30, 60, 300];

/// The delays of the events of one watch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WatchDelays {
    /// Events in each bucket, and in no lower one.
    pub buckets: [u64; DELAY_BUCKETS.len()],
    pub count: u64,
    pub seconds: f64,
}

impl WatchDelays {
    pub(super) fn record(&mut self, delay: Duration) {
        let bucket = DELAY_BUCKETS.iter().position(|bound| delay.as_secs_f64() <= f64::from(*bound));
        if let Some(bucket) = bucket {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.seconds += delay.as_secs_f64();
    }

    pub fn add(&mut self, other: &WatchDelays) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.count += other.count;
        self.seconds += other.seconds;
    }
}

/// When the object of an event was last written. `None`: the event does not tell, as that of an object that is being deleted, whose last writer
/// was there before. Each event is read once more for this: microseconds, which lists do not pay.
pub(super) fn written(event: &[u8], encoded: bool) -> Option<SystemTime> {
    let seconds = if encoded { encoded_time(event).ok()? } else { json_time(event) };
    // Writers may claim any time: one before 1970 is a huge number here.
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds?))
}

#[derive(Deserialize)]
struct Written {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Metadata {
    deletion_timestamp: Option<IgnoredAny>,
    managed_fields: Vec<ManagedField>,
}

#[derive(Deserialize)]
struct ManagedField {
    #[serde(default)]
    time: String,
}

fn json_time(event: &[u8]) -> Option<u64> {
    let Written { object: Object { metadata } } = serde_json::from_slice(event).ok()?;
    let seconds = |field: &ManagedField| u64::try_from(field.time.parse::<jiff::Timestamp>().ok()?.as_second()).ok();
    metadata.managed_fields.iter().filter_map(seconds).max().filter(|_| metadata.deletion_timestamp.is_none())
}

/// Fields of ObjectMeta and of ManagedFieldsEntry, and the seconds of a time.
const METADATA: u32 = 1;
const DELETION_TIMESTAMP: u32 = 9;
const MANAGED_FIELDS: u32 = 17;
const TIME: u32 = 4;
const SECONDS_TAG: u32 = 0x08;

fn encoded_time(event: &[u8]) -> Result<Option<u64>, Error> {
    let mut newest = None;
    let mut object = Fields::new(event_object(event)?);
    while let Some(field) = object.next_field()? {
        let (METADATA, Some(metadata)) = (field.number, field.content) else { continue };
        let mut metadata = Fields::new(metadata);
        while let Some(field) = metadata.next_field()? {
            match (field.number, field.content) {
                (DELETION_TIMESTAMP, _) => return Ok(None),
                (MANAGED_FIELDS, Some(entry)) => newest = newest.max(entry_time(entry)?),
                _ => {}
            }
        }
    }
    Ok(newest)
}

fn entry_time(entry: &[u8]) -> Result<Option<u64>, Error> {
    let mut entry = Fields::new(entry);
    while let Some(field) = entry.next_field()? {
        let (TIME, Some(time)) = (field.number, field.content) else { continue };
        let mut time = Fields::new(time);
        while let Some(tag) = time.tag()? {
            if tag == SECONDS_TAG {
                return Ok(Some(time.varint()?));
            }
            time.skip(tag)?;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use protobuf::Writer;

    use super::super::encoded_page::tests::event;
    use super::*;

    fn at(seconds: u64) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn the_newest_write_counts() {
        let line = |metadata: &str| format!(r#"{{"type":"MODIFIED","object":{{"metadata":{{{metadata}}}}}}}"#);
        let fields =
            r#""managedFields":[{"time":"1970-01-01T00:01:00Z"},{"time":"1970-01-01T00:02:00Z"},{"manager":"old"}]"#;
        assert_eq!(written(line(fields).as_bytes(), false), at(120));
        let deleting = format!(r#"{fields},"deletionTimestamp":"1970-01-01T00:03:00Z""#);
        assert_eq!(written(line(&deleting).as_bytes(), false), None, "nobody wrote a field");
        assert_eq!(written(line("").as_bytes(), false), None);
        assert_eq!(written(b"{}", false), None);
    }

    #[test]
    fn encoded_events_tell_the_same() {
        let time = |out: &mut Writer, field: u32, seconds: u64| out.nested(field, |out| out.number(1, seconds));
        let managed = |out: &mut Writer, seconds: u64| out.nested(MANAGED_FIELDS, |out| time(out, TIME, seconds));
        let modified = event("MODIFIED", |out| {
            out.nested(METADATA, |out| {
                managed(out, 60);
                managed(out, 120);
                out.text(1, "a");
            });
        });
        assert_eq!(written(&modified, true), at(120));
        let deleting = event("MODIFIED", |out| {
            out.nested(METADATA, |out| {
                managed(out, 120);
                time(out, DELETION_TIMESTAMP, 180);
            });
        });
        assert_eq!(written(&deleting, true), None);
        let before_1970 = event("MODIFIED", |out| out.nested(METADATA, |out| managed(out, (-1_i64).cast_unsigned())));
        assert_eq!(written(&before_1970, true), None);
        assert_eq!(written(&modified[..modified.len() - 1], true), None, "it is cut");
    }

    #[test]
    fn delays_are_counted_in_one_bucket_each() {
        let mut delays = WatchDelays::default();
        for seconds in [0.5, 1.0, 1.5, 4.0, 1000.0] {
            delays.record(Duration::from_secs_f64(seconds));
        }
        let mut twice = delays.clone();
        twice.add(&delays);
        assert_eq!(twice, WatchDelays { buckets: [4, 2, 0, 2, 0, 0, 0, 0], count: 10, seconds: 2014.0 });
    }
}
