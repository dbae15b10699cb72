//! The objects of the shop, of examples/shop and examples/shop-later: they are part of the program, which needs no clone of the project.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

type ExampleFile = (&'static str, &'static str);

macro_rules! example {
    ($folder:literal, $name:literal) => {
        ($name, include_str!(concat!("../../../examples/", $folder, "/", $name)))
    };
}

/// What is served from the start.
pub(crate) const LIVE: [ExampleFile; 7] = [
    example!("shop", "cart-v1.yaml"),
    example!("shop", "front-v1.yaml"),
    example!("shop", "mesh.yaml"),
    example!("shop", "services.yaml"),
    example!("shop", "sidecars.yaml"),
    example!("shop", "stock-v1.yaml"),
    example!("shop", "supplier.yaml"),
];

/// What is served once somebody copies it.
pub(crate) const LATER: [ExampleFile; 3] = [
    example!("shop-later", "cart-canary.yaml"),
    example!("shop-later", "cart-v2.yaml"),
    example!("shop-later", "cart-versions.yaml"),
];

/// Into a folder that is made for them.
pub(crate) fn write(files: &[ExampleFile], to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("make the folder {}", to.display()))?;
    files.iter().try_for_each(|(name, text)| {
        fs::write(to.join(name), text).with_context(|| format!("write {}", to.join(name).display()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_files_of_the_examples_are_there() {
        for (folder, files) in [("shop", LIVE.as_slice()), ("shop-later", &LATER)] {
            let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(folder);
            let there: BTreeSet<String> =
                fs::read_dir(there).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            assert_eq!(files.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), there);
        }
    }
}
