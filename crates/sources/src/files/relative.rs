//! A path relative to the folder, compared byte by byte: the order of precedence of files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A file is `a/b.yaml`, a folder `a/`, the folder itself is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RelativePath(Arc<[u8]>);

impl RelativePath {
    pub(super) fn top() -> RelativePath {
        RelativePath(Arc::from([]))
    }

    /// From the path of a file below the top.
    pub(super) fn of_file(path: &Path) -> RelativePath {
        RelativePath(path.as_os_str().as_bytes().into())
    }

    pub(super) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    pub(super) fn file(&self, name: &OsStr) -> RelativePath {
        RelativePath([&self.0, name.as_bytes()].concat().into())
    }

    pub(super) fn folder(&self, name: &OsStr) -> RelativePath {
        RelativePath([&self.0, name.as_bytes(), b"/"].concat().into())
    }

    pub(super) fn is_below(&self, folder: &RelativePath) -> bool {
        self.0.starts_with(&folder.0)
    }

    /// The ancestors, outermost first, without the top.
    pub(super) fn folders(&self) -> impl Iterator<Item = RelativePath> {
        let ends = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        ends.map(|(end, _)| RelativePath(self.0[..=end].into()))
    }

    /// The parent folder and the name.
    pub(super) fn split(&self) -> (RelativePath, &OsStr) {
        let path = self.0.strip_suffix(b"/").unwrap_or(&self.0);
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        (RelativePath(path[..start].into()), OsStr::from_bytes(&path[start..]))
    }

    /// For display: control characters and bytes that are not UTF-8 are escaped, so that a file name cannot forge a log line.
    pub(super) fn shown(&self) -> Arc<str> {
        if self.0.is_empty() {
            return ".".into();
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.contains(char::is_control) => text.into(),
            _ => self.0.escape_ascii().to_string().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath(text.as_bytes().into())
    }

    #[test]
    fn bytes_decide_the_order_not_folders() {
        assert!(path("a.yaml") < path("a/x.yaml"));
        assert!(path("a/z.yaml") < path("a0.yaml"));
    }

    #[test]
    fn a_path_is_below_each_of_its_folders() {
        assert_eq!(path("a/b/c.yaml").folders().collect::<Vec<_>>(), [path("a/"), path("a/b/")]);
        assert_eq!(path("a/b.yaml").split(), (path("a/"), OsStr::new("b.yaml")));
        assert_eq!(path("a/b/").split(), (path("a/"), OsStr::new("b")));
        assert_eq!(path("b.yaml").split(), (RelativePath::top(), OsStr::new("b.yaml")));
        assert_eq!(RelativePath::top().folder(OsStr::new("a")).file(OsStr::new("b.yaml")), path("a/b.yaml"));
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        assert_eq!(&*path("a\nerror: b.yaml").shown(), "a\\nerror: b.yaml");
        assert_eq!(&*RelativePath(b"\xff.yaml".as_slice().into()).shown(), "\\xff.yaml");
        assert_eq!(&*path("caf\u{e9}.yaml").shown(), "caf\u{e9}.yaml");
    }
}
