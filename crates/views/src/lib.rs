//! Which resources each class of proxies holds: made once, versioned by content, remembered with when they changed. No sockets, no protocol.

mod admission;
mod compared;
mod ground;
mod layer;
mod member;
mod moulds;
mod news;
mod node;
mod parts;
mod patched;
mod reach;
mod rendered;
mod router;
mod routes;
mod secrets;
mod shelf;
mod shelves;
mod sorted;
mod stock;
mod table;
mod text;
mod version;
mod view;
mod views;

pub use member::served_proxy;
pub use news::News;
pub use node::node_info;
pub use reach::PatchReach;
pub use rendered::{Rendered, render};
pub use secrets::Guard;
pub use views::Views;
