//! After any sequence of changes the state equals that of a first scan.

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
    Scan,
    /// As an event about it would request.
    ScanFile {
        file: usize,
    },
}

const FILES: [&str; 6] = ["a.yaml", "b.yml", "sub/a.yaml", "sub/c.yaml", "sub/deep/a.yaml", "sub.yaml"];
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
        4 => file.prop_map(|file| Step::ScanFile { file }),
        1 => Just(Step::RemoveFolder),
        4 => Just(Step::Scan),
    ]
}

fn text(objects: &[usize], port: i32) -> String {
    let names: Vec<&str> = objects.iter().map(|object| NAMES[*object]).collect();
    format!("# objects\n{}", services(&names, port))
}

/// Steps that do not apply (a file that does not exist) have no effect.
fn apply(fixture: &mut Fixture, step: &Step) {
    match step {
        Step::Write { file, objects, port } => fixture.write(FILES[*file], text(objects, *port)),
        Step::Break { file } => fixture.write(FILES[*file], "kind: [Service\n"),
        Step::Empty { file } => fixture.write(FILES[*file], ""),
        Step::Replace { file, objects } => {
            fixture.write(FILES[*file], "");
            fixture.write("new.tmp", text(objects, 90));
            fs::rename(fixture.path("new.tmp"), fixture.path(FILES[*file])).expect("a rename");
        }
        Step::Move { from, to } => {
            let to = fixture.path(FILES[*to]);
            let _ = fs::create_dir_all(to.parent().expect("a parent"));
            let _ = fs::rename(fixture.path(FILES[*from]), to);
        }
        Step::Remove { file } => {
            let _ = fs::remove_file(fixture.path(FILES[*file]));
        }
        Step::RemoveFolder => {
            let _ = fs::remove_dir_all(fixture.path("sub"));
        }
        Step::Scan => {
            fixture.scan();
        }
        Step::ScanFile { file } => {
            fixture.scan_files(&[FILES[*file]]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_steps_ends_as_a_fresh_scan(steps in prop::collection::vec(step(), 1..30), last in prop::collection::vec(0..NAMES.len(), 0..4)) {
        let mut fixture = Fixture::new(&[]);
        for step in &steps {
            apply(&mut fixture, step);
        }
        fixture.scan();
        // Broken and empty files keep objects that a fresh scan does not see: repair them first.
        for file in FILES {
            if fs::read_to_string(fixture.path(file)).is_ok_and(|text| !text.starts_with('#')) {
                fixture.write(file, text(&last, 99));
            }
        }
        fixture.scan();
        fixture.check_fresh();
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
        prop_assert_eq!(fixture.stored.places(), sorted.stored.places());
    }
}
