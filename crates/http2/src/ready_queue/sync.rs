//! The synchronisation types of the ready queue: those of std, and in the loom model those of loom. `Arc` is std's in both, because
//! `std::task::Wake` asks for it.

#[cfg(not(all(test, loom)))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};

#[cfg(all(test, loom))]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicBool};
