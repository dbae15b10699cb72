//! What was different before: a bounded journal of pushes, their causes, and the versions of resources that they replaced. No clock, no files,
//! no sockets: whoever keeps it gives it the bytes of its journal files, and takes those of the next. Versions that are in force are not stored: they are the server's own. Older ones are stored as the difference from the next.

mod bytes_difference;
mod file_format;
mod file_loader;
mod file_writer;
mod journal;
mod line_blame;
mod past_proxies;
mod past_resource;
mod point;
mod state;
mod timeline;

pub use file_loader::SavedReader;
pub use file_writer::JournalSink;
pub use journal::{HistoryLimits, HistoryUse, PastPush, ResourceHistory, VersionChange};
pub use line_blame::{BlamedLine, blame_lines};
pub use past_resource::PastResource;
pub use point::{Point, PointError, UnknownPoint};
pub use state::{PastState, state_changes};
pub use timeline::PastVersion;
