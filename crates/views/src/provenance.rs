//! The texts of the objects and patches that a resource was made from, interned.

use std::fmt::{Display, Write};
use std::sync::Arc;

use config::intern::intern_str;

/// The text of each object, interned.
pub(crate) fn interned_texts<T: Display>(objects: impl IntoIterator<Item = T>) -> Vec<Arc<str>> {
    let mut text = String::new();
    let say = |object: T| {
        text.clear();
        write!(text, "{object}").expect("a String grows as needed");
        intern_str(&text)
    };
    objects.into_iter().map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_interned() {
        let texts = interned_texts(["Service shop/cart", "Service shop/cart"]);
        assert!(Arc::ptr_eq(&texts[0], &texts[1]));
    }
}
