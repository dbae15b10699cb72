//! What resources say they were made from, each text once in memory.

use std::fmt::{Display, Write};
use std::sync::Arc;

use config::shared::shared_text;

/// What each of these says of itself.
pub(crate) fn spoken<T: Display>(objects: impl IntoIterator<Item = T>) -> Vec<Arc<str>> {
    let mut text = String::new();
    let say = |object: T| {
        text.clear();
        write!(text, "{object}").expect("a String grows as needed");
        shared_text(&text)
    };
    objects.into_iter().map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_in_memory() {
        let said = spoken(["Service shop/cart", "Service shop/cart"]);
        assert!(Arc::ptr_eq(&said[0], &said[1]));
    }
}
