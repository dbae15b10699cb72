//! Watches of real folders with real events. Each test waits for an outcome with a timeout.

use std::fs;
use std::os::unix::fs::symlink;

use notify::Event;
use notify::event::{CreateKind, Flag};
use tokio::task::JoinHandle;

use super::*;
use crate::files::tests::{Fixture, StoreState, describe_update, mount, service, write};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A watched folder, and the state of a store.
struct Live {
    fixture: Fixture,
    updates: mpsc::Receiver<Vec<Update>>,
    watching: JoinHandle<Result<(), Error>>,
    stored: StoreState,
    /// One line per batch.
    batches: Vec<String>,
}

impl Live {
    fn new(fixture: Fixture) -> Live {
        Live::at(&INTERVALS, Watches::open, fixture)
    }

    fn at(pace: &'static Intervals, watches: fn(mpsc::Sender<()>) -> Watches, mut fixture: Fixture) -> Live {
        let (out, updates) = mpsc::channel(16);
        let mut stored = StoreState::default();
        stored.apply(fixture.folder.scan().updates);
        let unused = Folder::open(&fixture.root());
        let folder = std::mem::replace(&mut fixture.folder, unused);
        let watching = tokio::spawn(watch_at(pace, watches, folder, out, |_| ()));
        Live { fixture, updates, watching, stored, batches: Vec::new() }
    }

    async fn until(&mut self, outcome: impl Fn(&StoreState) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !outcome(&self.stored) {
            let batch = timeout_at(end, self.updates.recv()).await;
            let batch = batch
                .unwrap_or_else(|_| panic!("not in time: {:?} {:?}", self.stored.names(), self.stored.diagnostics()));
            self.take(batch.expect("the watch goes on"));
        }
    }

    fn take(&mut self, batch: Vec<Update>) {
        // Empty: the folder is busy.
        if batch.is_empty() {
            return;
        }
        self.batches.push(batch.iter().map(describe_update).collect::<Vec<_>>().join(", "));
        self.stored.apply(batch);
    }

    /// The watch works: an edit has been seen.
    async fn ready(mut self) -> Live {
        self.fixture.write("zz-ready.yaml", service("ready", 80));
        self.until(|stored| stored.port("ready") == Some(80)).await;
        self.batches.clear();
        self
    }
}

async fn live(files: &[(&str, &str)]) -> Live {
    Live::new(Fixture::new(files)).ready().await
}

#[tokio::test]
async fn an_edit_in_place_is_seen() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    let began = Instant::now();
    live.fixture.write("a.yaml", service("a", 81));
    live.until(|stored| stored.port("a") == Some(81)).await;
    println!("an edit was seen after {:?}", began.elapsed());
}

#[tokio::test]
async fn an_atomic_rename_is_seen_as_one_change() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    live.fixture.write("a.yaml.tmp", service("a", 81));
    fs::rename(live.fixture.path("a.yaml.tmp"), live.fixture.path("a.yaml")).expect("a rename");
    live.until(|stored| stored.port("a") == Some(81)).await;
    assert_eq!(live.batches, ["put Service shop/a"]);
}

#[tokio::test]
async fn a_deleted_file_is_seen() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    live.fixture.remove("a.yaml");
    live.until(|stored| stored.port("a").is_none()).await;
}

#[tokio::test]
async fn a_swap_of_a_config_map_is_one_batch() {
    let fixture = Fixture::new(&[]);
    let set = |port| [("a.yaml", service("a", port)), ("b.yaml", service("b", port))];
    mount(&fixture.root(), "1", &set(80));
    let mut live = Live::new(fixture).ready().await;
    for (version, port) in [("2", 81), ("3", 82), ("4", 83)] {
        mount(&live.fixture.root(), version, &set(port));
        live.until(|stored| stored.port("a") == u16::try_from(port).ok()).await;
    }
    assert_eq!(live.batches, vec!["put Service shop/a, put Service shop/b"; 3]);
}

#[tokio::test]
async fn a_half_written_file_removes_nothing_and_recovers() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    for broken in ["", "kind: [", "kind: Service\nmetadata: {name: \"a"] {
        live.fixture.write("a.yaml", broken);
        live.until(|stored| stored.diagnostics().iter().any(|diagnostic| diagnostic.contains("stays in force"))).await;
        assert_eq!(live.stored.port("a"), Some(80));
        live.fixture.write("a.yaml", service("a", 80));
        live.until(|stored| stored.diagnostics().is_empty()).await;
    }
    live.fixture.write("a.yaml", service("a", 81));
    live.until(|stored| stored.port("a") == Some(81)).await;
    assert!(!live.batches.iter().any(|batch| batch.contains("delete")), "{:?}", live.batches);
}

#[tokio::test]
async fn files_in_folders_made_just_now_are_seen() {
    let mut live = live(&[]).await;
    for round in 0..10 {
        let folder = format!("new{round}/deep/er");
        live.fixture.write(&format!("{folder}/a.yaml"), service(&format!("a{round}"), 80));
        live.until(|stored| stored.port(&format!("a{round}")) == Some(80)).await;
        live.fixture.write(&format!("{folder}/a.yaml"), service(&format!("a{round}"), 81));
        live.until(|stored| stored.port(&format!("a{round}")) == Some(81)).await;
    }
}

#[tokio::test]
async fn a_replaced_folder_is_watched_again() {
    let mut live = live(&[("sub/a.yaml", &service("a", 80))]).await;
    for round in 1..10 {
        let new = live.fixture.aside(&format!("new{round}"));
        write(&new.join("a.yaml"), service("a", 80 + round));
        fs::rename(live.fixture.path("sub"), live.fixture.aside(&format!("old{round}"))).expect("a rename");
        fs::rename(new, live.fixture.path("sub")).expect("a rename");
        live.until(|stored| stored.port("a").map(i32::from) == Some(80 + round)).await;
        live.fixture.write("sub/a.yaml", service("a", 180 + round));
        live.until(|stored| stored.port("a").map(i32::from) == Some(180 + round)).await;
    }
}

#[tokio::test]
async fn a_recreated_root_is_watched_again() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    fs::rename(live.fixture.root(), live.fixture.aside("gone")).expect("a rename");
    live.until(|stored| !stored.diagnostics().is_empty()).await;
    assert_eq!(live.stored.names(), ["Service shop/a", "Service shop/ready"]);
    live.fixture.write("b.yaml", service("b", 80));
    live.until(|stored| stored.names() == ["Service shop/b"] && stored.diagnostics().is_empty()).await;
    live.fixture.write("b.yaml", service("b", 81));
    live.until(|stored| stored.port("b") == Some(81)).await;
}

#[tokio::test]
async fn a_link_on_the_way_to_the_root_can_be_turned() {
    let mut fixture = Fixture::new(&[]);
    for version in 1..4 {
        write(&fixture.aside(&format!("v{version}/mesh/a.yaml")), service("a", 80 + version));
    }
    symlink("v1", fixture.aside("current")).expect("a link");
    fixture.folder = Folder::open(&fixture.aside("current/mesh"));
    let mut live = Live::new(fixture);
    assert_eq!(live.stored.port("a"), Some(81));
    for version in 2..4 {
        symlink(format!("v{version}"), live.fixture.aside("next")).expect("a link");
        fs::rename(live.fixture.aside("next"), live.fixture.aside("current")).expect("a rename");
        live.until(|stored| stored.port("a") == Some(80 + version)).await;
    }
}

#[tokio::test]
async fn the_target_of_a_linked_file_is_watched() {
    let fixture = Fixture::new(&[]);
    write(&fixture.aside("far/a.yaml"), service("a", 80));
    symlink(fixture.aside("far/a.yaml"), fixture.path("a.yaml")).expect("a link");
    let mut live = Live::new(fixture).ready().await;
    write(&live.fixture.aside("far/a.yaml"), service("a", 81));
    live.until(|stored| stored.port("a") == Some(81)).await;
}

#[tokio::test]
async fn a_storm_of_changes_ends_in_what_is_there() {
    let mut live = live(&[]).await;
    let root = live.fixture.root();
    let storm = std::thread::spawn(move || {
        for n in 0..4000 {
            let file = root.join(format!("{}/{}.yaml", n % 7, n % 50));
            if n % 11 == 10 {
                let _ = fs::remove_file(file);
            } else {
                write(&file, service(&format!("s{}", n % 50), 1000 + n));
            }
        }
        write(&root.join("end.yaml"), service("end", 80));
    });
    live.until(|stored| stored.port("end") == Some(80)).await;
    storm.join().expect("the storm");
    let mut fresh = StoreState::default();
    fresh.apply(Folder::open(&live.fixture.root()).scan().updates);
    live.until(|stored| stored.objects == fresh.objects && stored.diagnostics() == fresh.diagnostics()).await;
}

#[tokio::test]
async fn without_events_the_folder_is_polled() {
    const QUICK: Intervals = Intervals { poll: Duration::from_millis(20), ..INTERVALS };
    let mut live = Live::at(&QUICK, Watches::disabled, Fixture::new(&[("a.yaml", &service("a", 80))]));
    live.fixture.write("sub/a.yaml", service("b", 80));
    live.until(|stored| stored.port("b") == Some(80)).await;
}

#[tokio::test]
async fn a_lost_event_is_made_up_for() {
    const QUICK: Intervals = Intervals { full_scan: Duration::from_millis(20), ..INTERVALS };
    let deaf = |tick| Watches { incomplete: false, ..Watches::disabled(tick) };
    let mut live = Live::at(&QUICK, deaf, Fixture::new(&[("a.yaml", &service("a", 80))]));
    live.fixture.write("a.yaml", service("a", 81));
    live.until(|stored| stored.port("a") == Some(81)).await;
}

#[tokio::test]
async fn the_watch_ends_when_nobody_listens() {
    let live = live(&[]).await;
    drop(live.updates);
    let ended = timeout(TIMEOUT, live.watching).await.expect("in time").expect("no panic");
    assert!(ended.is_ok());
}

fn watch_state(path: &str, interest: Interest) -> WatchState {
    let mut state = WatchState::default();
    state.want(&WatchedDirs::from([(path.into(), super::super::tree::WatchedDir { identity: (1, 1), interest })]));
    state
}

#[test]
fn an_overflow_triggers_a_full_scan_and_new_watches() {
    let overflow = Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan));
    for lost in [overflow, Err(notify::Error::generic("lost"))] {
        let mut state = watch_state("/conf", Interest::All);
        assert!(state.want(&state.wanted.clone()).1.is_empty());
        assert!(state.concerns(&lost));
        assert_eq!(state.want(&state.wanted.clone()).1, [PathBuf::from("/conf")]);
    }
}

#[test]
fn ignores_events_of_reads_temporary_files_and_siblings() {
    let created = |path: &str| Ok(Event::new(EventKind::Create(CreateKind::File)).add_path(path.into()));
    let mut all = watch_state("/conf", Interest::All);
    assert!(all.concerns(&created("/conf/a.yaml")));
    assert!(all.concerns(&created("/conf/..data")));
    assert!(!all.concerns(&created("/conf/4913")));
    assert!(!all.concerns(&created("/conf/.a.yaml.swp")));
    let opened = Event::new(EventKind::Access(AccessKind::Open(AccessMode::Any))).add_path("/conf/a.yaml".into());
    assert!(!all.concerns(&Ok(opened)));
    let mut one = watch_state("/srv", Interest::Names(["conf".into()].into()));
    assert!(one.concerns(&created("/srv/conf")));
    assert!(!one.concerns(&created("/srv/other")));
}

#[test]
fn half_a_rename_does_not_delete_a_file() {
    let renamed = |mode, path: &str| {
        Ok(Event::new(EventKind::Modify(ModifyKind::Name(mode))).set_tracker(7).add_path(path.into()))
    };
    let mut state = watch_state("/conf", Interest::All);
    assert!(state.concerns(&renamed(RenameMode::From, "/conf/a.yaml")));
    assert_eq!(state.take_changed_paths(), ChangedPaths::Anything);
    assert!(state.concerns(&renamed(RenameMode::From, "/conf/a.yaml")));
    assert!(state.concerns(&renamed(RenameMode::To, "/conf/b.yaml")));
    let both = ["/conf/a.yaml", "/conf/b.yaml"].map(PathBuf::from);
    assert_eq!(state.take_changed_paths(), ChangedPaths::Paths(both.into()));
}
