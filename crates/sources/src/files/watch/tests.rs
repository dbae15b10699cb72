//! Watching real folders with real events. Each test waits for an outcome, at most ten seconds.

use std::fs;
use std::os::unix::fs::symlink;

use notify::Event;
use notify::event::{CreateKind, Flag};
use tokio::task::JoinHandle;

use super::*;
use crate::files::tests::{Bed, Held, mount, service, told, write};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that is being watched, and what a store would hold.
struct Live {
    bed: Bed,
    updates: mpsc::Receiver<Vec<Update>>,
    watching: JoinHandle<Result<(), Error>>,
    held: Held,
    /// One line per batch.
    batches: Vec<String>,
}

impl Live {
    fn new(bed: Bed) -> Live {
        Live::at(&PACE, Eyes::open, bed)
    }

    fn at(pace: &'static Pace, eyes: fn(mpsc::Sender<()>) -> Eyes, mut bed: Bed) -> Live {
        let (out, updates) = mpsc::channel(16);
        let mut held = Held::default();
        held.apply(bed.folder.scan().updates);
        let unused = Folder::open(&bed.root());
        let folder = std::mem::replace(&mut bed.folder, unused);
        let watching = tokio::spawn(watch_at(pace, eyes, folder, out, |_| ()));
        Live { bed, updates, watching, held, batches: Vec::new() }
    }

    async fn until(&mut self, outcome: impl Fn(&Held) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !outcome(&self.held) {
            let batch = timeout_at(end, self.updates.recv()).await;
            let batch =
                batch.unwrap_or_else(|_| panic!("not in time: {:?} {:?}", self.held.names(), self.held.notes()));
            self.take(batch.expect("the watch goes on"));
        }
    }

    fn take(&mut self, batch: Vec<Update>) {
        // The folder is busy, no more.
        if batch.is_empty() {
            return;
        }
        self.batches.push(batch.iter().map(told).collect::<Vec<_>>().join(", "));
        self.held.apply(batch);
    }

    /// The watch is up: an edit has been seen.
    async fn ready(mut self) -> Live {
        self.bed.write("zz-ready.yaml", service("ready", 80));
        self.until(|held| held.port("ready") == Some(80)).await;
        self.batches.clear();
        self
    }
}

async fn live(files: &[(&str, &str)]) -> Live {
    Live::new(Bed::new(files)).ready().await
}

#[tokio::test]
async fn an_edit_in_place_is_seen() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    let began = Instant::now();
    live.bed.write("a.yaml", service("a", 81));
    live.until(|held| held.port("a") == Some(81)).await;
    println!("an edit was seen after {:?}", began.elapsed());
}

#[tokio::test]
async fn an_atomic_rename_is_seen_as_one_change() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    live.bed.write("a.yaml.tmp", service("a", 81));
    fs::rename(live.bed.path("a.yaml.tmp"), live.bed.path("a.yaml")).expect("a rename");
    live.until(|held| held.port("a") == Some(81)).await;
    assert_eq!(live.batches, ["put Service shop/a"]);
}

#[tokio::test]
async fn a_deleted_file_is_seen() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    live.bed.remove("a.yaml");
    live.until(|held| held.port("a").is_none()).await;
}

#[tokio::test]
async fn a_swap_of_a_config_map_is_one_batch() {
    let bed = Bed::new(&[]);
    let set = |port| [("a.yaml", service("a", port)), ("b.yaml", service("b", port))];
    mount(&bed.root(), "1", &set(80));
    let mut live = Live::new(bed).ready().await;
    for (version, port) in [("2", 81), ("3", 82), ("4", 83)] {
        mount(&live.bed.root(), version, &set(port));
        live.until(|held| held.port("a") == u16::try_from(port).ok()).await;
    }
    assert_eq!(live.batches, vec!["put Service shop/a, put Service shop/b"; 3]);
}

#[tokio::test]
async fn a_half_written_file_removes_nothing_and_recovers() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    for broken in ["", "kind: [", "kind: Service\nmetadata: {name: \"a"] {
        live.bed.write("a.yaml", broken);
        live.until(|held| held.notes().iter().any(|note| note.contains("stays in force"))).await;
        assert_eq!(live.held.port("a"), Some(80));
        live.bed.write("a.yaml", service("a", 80));
        live.until(|held| held.notes().is_empty()).await;
    }
    live.bed.write("a.yaml", service("a", 81));
    live.until(|held| held.port("a") == Some(81)).await;
    assert!(!live.batches.iter().any(|batch| batch.contains("delete")), "{:?}", live.batches);
}

#[tokio::test]
async fn files_in_folders_made_just_now_are_seen() {
    let mut live = live(&[]).await;
    for round in 0..10 {
        let folder = format!("new{round}/deep/er");
        live.bed.write(&format!("{folder}/a.yaml"), service(&format!("a{round}"), 80));
        live.until(|held| held.port(&format!("a{round}")) == Some(80)).await;
        live.bed.write(&format!("{folder}/a.yaml"), service(&format!("a{round}"), 81));
        live.until(|held| held.port(&format!("a{round}")) == Some(81)).await;
    }
}

#[tokio::test]
async fn a_replaced_folder_is_watched_again() {
    let mut live = live(&[("sub/a.yaml", &service("a", 80))]).await;
    for round in 1..10 {
        let new = live.bed.aside(&format!("new{round}"));
        write(&new.join("a.yaml"), service("a", 80 + round));
        fs::rename(live.bed.path("sub"), live.bed.aside(&format!("old{round}"))).expect("a rename");
        fs::rename(new, live.bed.path("sub")).expect("a rename");
        live.until(|held| held.port("a").map(i32::from) == Some(80 + round)).await;
        live.bed.write("sub/a.yaml", service("a", 180 + round));
        live.until(|held| held.port("a").map(i32::from) == Some(180 + round)).await;
    }
}

#[tokio::test]
async fn a_root_removed_and_made_anew_is_watched_again() {
    let mut live = live(&[("a.yaml", &service("a", 80))]).await;
    fs::rename(live.bed.root(), live.bed.aside("gone")).expect("a rename");
    live.until(|held| !held.notes().is_empty()).await;
    assert_eq!(live.held.names(), ["Service shop/a", "Service shop/ready"]);
    live.bed.write("b.yaml", service("b", 80));
    live.until(|held| held.names() == ["Service shop/b"] && held.notes().is_empty()).await;
    live.bed.write("b.yaml", service("b", 81));
    live.until(|held| held.port("b") == Some(81)).await;
}

#[tokio::test]
async fn a_link_on_the_way_to_the_root_can_be_turned() {
    let mut bed = Bed::new(&[]);
    for version in 1..4 {
        write(&bed.aside(&format!("v{version}/mesh/a.yaml")), service("a", 80 + version));
    }
    symlink("v1", bed.aside("current")).expect("a link");
    bed.folder = Folder::open(&bed.aside("current/mesh"));
    let mut live = Live::new(bed);
    assert_eq!(live.held.port("a"), Some(81));
    for version in 2..4 {
        symlink(format!("v{version}"), live.bed.aside("next")).expect("a link");
        fs::rename(live.bed.aside("next"), live.bed.aside("current")).expect("a rename");
        live.until(|held| held.port("a") == Some(80 + version)).await;
    }
}

#[tokio::test]
async fn the_target_of_a_linked_file_is_watched() {
    let bed = Bed::new(&[]);
    write(&bed.aside("far/a.yaml"), service("a", 80));
    symlink(bed.aside("far/a.yaml"), bed.path("a.yaml")).expect("a link");
    let mut live = Live::new(bed).ready().await;
    write(&live.bed.aside("far/a.yaml"), service("a", 81));
    live.until(|held| held.port("a") == Some(81)).await;
}

#[tokio::test]
async fn a_storm_of_changes_ends_in_what_is_there() {
    let mut live = live(&[]).await;
    let root = live.bed.root();
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
    live.until(|held| held.port("end") == Some(80)).await;
    storm.join().expect("the storm");
    let mut fresh = Held::default();
    fresh.apply(Folder::open(&live.bed.root()).scan().updates);
    live.until(|held| held.objects == fresh.objects && held.notes() == fresh.notes()).await;
}

#[tokio::test]
async fn without_events_the_folder_is_polled() {
    const QUICK: Pace = Pace { poll: Duration::from_millis(20), ..PACE };
    let mut live = Live::at(&QUICK, Eyes::shut, Bed::new(&[("a.yaml", &service("a", 80))]));
    live.bed.write("sub/a.yaml", service("b", 80));
    live.until(|held| held.port("b") == Some(80)).await;
}

#[tokio::test]
async fn a_lost_event_is_made_up_for() {
    const QUICK: Pace = Pace { safety: Duration::from_millis(20), ..PACE };
    let deaf = |tick| Eyes { dim: false, ..Eyes::shut(tick) };
    let mut live = Live::at(&QUICK, deaf, Bed::new(&[("a.yaml", &service("a", 80))]));
    live.bed.write("a.yaml", service("a", 81));
    live.until(|held| held.port("a") == Some(81)).await;
}

#[tokio::test]
async fn the_watch_ends_when_nobody_listens() {
    let live = live(&[]).await;
    drop(live.updates);
    let ended = timeout(PATIENCE, live.watching).await.expect("in time").expect("no panic");
    assert!(ended.is_ok());
}

fn view(path: &str, interest: Interest) -> View {
    let mut view = View::default();
    view.want(&Places::from([(path.into(), super::super::tree::Place { identity: (1, 1), interest })]));
    view
}

#[test]
fn after_an_overflow_all_is_looked_at_and_watched_again() {
    let overflow = Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan));
    for lost in [overflow, Err(notify::Error::generic("lost"))] {
        let mut view = view("/conf", Interest::All);
        assert!(view.want(&view.wanted.clone()).1.is_empty());
        assert!(view.concerns(&lost));
        assert_eq!(view.want(&view.wanted.clone()).1, [PathBuf::from("/conf")]);
    }
}

#[test]
fn own_reading_litter_and_neighbours_are_no_reason_to_look() {
    let created = |path: &str| Ok(Event::new(EventKind::Create(CreateKind::File)).add_path(path.into()));
    let mut all = view("/conf", Interest::All);
    assert!(all.concerns(&created("/conf/a.yaml")));
    assert!(all.concerns(&created("/conf/..data")));
    assert!(!all.concerns(&created("/conf/4913")));
    assert!(!all.concerns(&created("/conf/.a.yaml.swp")));
    let opened = Event::new(EventKind::Access(AccessKind::Open(AccessMode::Any))).add_path("/conf/a.yaml".into());
    assert!(!all.concerns(&Ok(opened)));
    let mut one = view("/srv", Interest::Names(["conf".into()].into()));
    assert!(one.concerns(&created("/srv/conf")));
    assert!(!one.concerns(&created("/srv/other")));
}
