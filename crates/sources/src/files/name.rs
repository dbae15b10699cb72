//! Classification of file names: configuration, temporary files of editors, hidden files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The symbolic link in a ConfigMap mount that points to the current set of files.
pub(super) const CONFIG_MAP_LINK: &str = "..data";

pub(super) fn is_config(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| matches!(extension.as_bytes(), b"yaml" | b"yml" | b"json"))
}

pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

pub(super) fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_bytes();
    // vim creates and removes a file 4913 to test whether it may write.
    name == b"4913"
        || name.ends_with(b"~")
        || name.ends_with(b".swp")
        || name.ends_with(b".swx")
        || name.ends_with(b".tmp")
        || (name.len() > 1 && name.starts_with(b"#") && name.ends_with(b"#"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified() {
        for (name, config, hidden, litter) in [
            ("a.yaml", true, false, false),
            ("a.yml", true, false, false),
            ("a.json", true, false, false),
            ("a.txt", false, false, false),
            ("yaml", false, false, false),
            (".yaml", false, true, false),
            (".a.yaml", true, true, false),
            (".a.yaml.swp", false, true, true),
            (".a.yaml.swx", false, true, true),
            ("a.yaml~", false, false, true),
            ("a.yaml.tmp", false, false, true),
            ("#a.yaml#", false, false, true),
            (".#a.yaml", true, true, false),
            ("4913", false, false, true),
            ("..data", false, true, false),
        ] {
            let name = OsStr::new(name);
            assert_eq!((is_config(name), is_hidden(name), is_temporary(name)), (config, hidden, litter), "{name:?}");
        }
    }
}
