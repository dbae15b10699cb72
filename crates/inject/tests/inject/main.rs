//! Injection as a user of the crate sees it: the recorded answers of istiod, hostile input, and Go's template engine beside ours.

mod corpus;
mod hostile;
mod recorded;
