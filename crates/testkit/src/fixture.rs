//! A fixture that the tests of one program share: made by the first test that needs it, dropped by the last that holds it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

pub struct SharedFixture<T>(Mutex<Weak<T>>);

impl<T> SharedFixture<T> {
    #[expect(clippy::new_without_default, reason = "it is made in statics, which Default cannot")]
    pub const fn new() -> SharedFixture<T> {
        SharedFixture(Mutex::new(Weak::new()))
    }

    /// `make` returns `None` where the fixture cannot run, after `skip`.
    pub fn get(&self, make: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fixture) = current.upgrade() {
            return Some(fixture);
        }
        let fixture = Arc::new(make()?);
        *current = Arc::downgrade(&fixture);
        Some(fixture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_while_somebody_holds_it() {
        let fixture = SharedFixture::new();
        let first = fixture.get(|| Some(1)).unwrap();
        assert_eq!(*fixture.get(|| Some(2)).unwrap(), 1);
        drop(first);
        assert_eq!(*fixture.get(|| Some(3)).unwrap(), 3);
        assert!(SharedFixture::<i32>::new().get(|| None).is_none());
    }
}
