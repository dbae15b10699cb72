//! The corpus of the fuzz targets, replayed: what once failed does not fail again.

use std::fs;
use std::path::{Path, PathBuf};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz").join(target)
}

#[test]
fn the_corpus_of_every_target_holds() {
    for (target, check) in fuzzing::TARGETS {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{target} has no corpus");
        for file in files {
            // The name of the test's last line, should it panic.
            println!("{}", file.display());
            check(&fs::read(&file).unwrap());
        }
    }
}
