//! What was different before: a bounded journal of pushes, their causes, and the versions of resources that they replaced. No clock, no files,
//! no sockets. Versions that are in force are not stored: they are the server's own. Older ones are stored as the difference from the next.

mod bytes_difference;
mod journal;
mod line_blame;
mod past_proxies;
mod past_resource;
mod point;
mod state;
mod timeline;

pub use journal::{HistoryLimits, HistoryUse, PastPush, ResourceHistory, VersionChange};
pub use line_blame::{BlamedLine, blame_lines};
pub use past_resource::PastResource;
pub use point::{Point, PointError, UnknownPoint};
pub use state::{PastState, state_changes};
pub use timeline::PastVersion;
