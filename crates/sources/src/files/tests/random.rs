//! After any sequence of changes, scanned path by path, the state equals that of a first scan.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Write {
        file: usize,
        objects: Vec<usize>,
        port: i32,
    },
    Break {
        file: usize,
    },
    Empty {
        file: usize,
    },
    Replace {
        file: usize,
        objects: Vec<usize>,
    },
    Move {
        from: usize,
        to: usize,
    },
    Remove {
        file: usize,
    },
    RemoveFolder,
    MoveFolder,
    /// Of the paths that changed since the last scan.
    ScanPaths,
    /// As when an event came early, or was about something else.
    ScanFile {
        file: usize,
    },
    Scan,
}

const FILES: [&str; 8] =
    ["a.yaml", "b.yml", "sub/a.yaml", "sub/c.yaml", "sub/deep/a.yaml", "sub.yaml", "moved/a.yaml", "moved/deep/a.yaml"];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn step() -> impl Strategy<Value = Step> {
    let file = 0..FILES.len();
    let objects = prop::collection::vec(0..NAMES.len(), 0..4);
    prop_oneof![
        4 => (file.clone(), objects.clone(), 80..83).prop_map(|(file, objects, port)| Step::Write { file, objects, port }),
        1 => file.clone().prop_map(|file| Step::Break { file }),
        1 => file.clone().prop_map(|file| Step::Empty { file }),
        2 => (file.clone(), objects).prop_map(|(file, objects)| Step::Replace { file, objects }),
        2 => (file.clone(), file.clone()).prop_map(|(from, to)| Step::Move { from, to }),
        2 => file.clone().prop_map(|file| Step::Remove { file }),
        2 => file.prop_map(|file| Step::ScanFile { file }),
        1 => Just(Step::RemoveFolder),
        1 => Just(Step::MoveFolder),
        5 => Just(Step::ScanPaths),
        1 => Just(Step::Scan),
    ]
}

fn text(objects: &[usize], port: i32) -> String {
    let names: Vec<&str> = objects.iter().map(|object| NAMES[*object]).collect();
    format!("# objects\n{}", services(&names, port))
}

/// The folder, and the paths that changed since the last scan.
struct Edited {
    fixture: Fixture,
    changed: BTreeSet<&'static str>,
}

impl Edited {
    /// A file, and a folder that may be new.
    fn touch(&mut self, file: &'static str) {
        let folders =
            ["sub", "sub/deep", "moved", "moved/deep"].into_iter().filter(|folder| Path::new(file).starts_with(folder));
        self.changed.extend(folders.chain([file]));
    }

    fn write(&mut self, file: usize, text: impl AsRef<[u8]>) {
        self.fixture.write(FILES[file], text);
        self.touch(FILES[file]);
    }

    fn rename(&mut self, from: &'static str, to: &'static str) {
        let target = self.fixture.path(to);
        let _ = fs::create_dir_all(target.parent().expect("a parent"));
        let _ = fs::rename(self.fixture.path(from), target);
        self.touch(from);
        self.touch(to);
    }

    /// Steps that do not apply (a file that does not exist) have no effect.
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write { file, objects, port } => self.write(*file, text(objects, *port)),
            Step::Break { file } => self.write(*file, "kind: [Service\n"),
            Step::Empty { file } => self.write(*file, ""),
            Step::Replace { file, objects } => {
                self.fixture.write("new.tmp", text(objects, 90));
                self.rename("new.tmp", FILES[*file]);
            }
            Step::Move { from, to } => self.rename(FILES[*from], FILES[*to]),
            Step::Remove { file } => {
                let _ = fs::remove_file(self.fixture.path(FILES[*file]));
                self.touch(FILES[*file]);
            }
            Step::RemoveFolder => {
                let _ = fs::remove_dir_all(self.fixture.path("sub"));
                self.touch("sub");
            }
            Step::MoveFolder => {
                let _ = fs::remove_dir_all(self.fixture.path("moved"));
                self.rename("sub", "moved");
            }
            Step::Scan => {
                self.changed.clear();
                self.fixture.scan();
            }
            Step::ScanPaths => self.scan_paths(),
            Step::ScanFile { file } => {
                self.fixture.scan_paths(&[FILES[*file]]);
            }
        }
    }

    fn scan_paths(&mut self) {
        let paths: Vec<&str> = std::mem::take(&mut self.changed).into_iter().collect();
        assert!(self.fixture.scan_paths(&paths).is_some(), "a full scan was needed for {paths:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_steps_ends_as_a_fresh_scan(steps in prop::collection::vec(step(), 1..30), last in prop::collection::vec(0..NAMES.len(), 0..4)) {
        let mut edited = Edited { fixture: Fixture::loaded(&[]), changed: BTreeSet::new() };
        for step in &steps {
            edited.apply(step);
        }
        edited.scan_paths();
        // Broken and empty files keep objects that a fresh scan does not see: repair them first.
        for (number, file) in FILES.into_iter().enumerate() {
            if fs::read_to_string(edited.fixture.path(file)).is_ok_and(|text| !text.starts_with('#')) {
                edited.write(number, text(&last, 99));
            }
        }
        edited.scan_paths();
        edited.fixture.check_fresh();
    }

    #[test]
    fn any_order_of_creation_gives_the_same_updates(order in Just(FILES.to_vec()).prop_shuffle()) {
        let mut fixture = Fixture::new(&[]);
        for file in &order {
            fixture.write(file, text(&[0, file.len() % 4], 80));
        }
        let mut sorted = Fixture::new(&[]);
        for file in FILES {
            sorted.write(file, text(&[0, file.len() % 4], 80));
        }
        prop_assert_eq!(fixture.scan(), sorted.scan());
        prop_assert_eq!(fixture.diagnostics(), sorted.diagnostics());
        prop_assert_eq!(fixture.stored.locations(), sorted.stored.locations());
    }
}
