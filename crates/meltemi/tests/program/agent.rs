//! `meltemi agent` where there is no server, and the commands beside it. With real Envoys: `testkit::identity` and `testkit::gateway`.

use std::process::Command;

use testkit::process::Process;
use testkit::wait::eventually_blocking;

use crate::run::{PROGRAM, folder, path, run};

#[test]
fn a_log_in_a_file_has_no_colours() {
    let dir = folder(&[]);
    let log = dir.path().join("log");
    let mut command = Command::new(PROGRAM);
    command
        .args(["agent", "--proxy=a.b", "--ip=10.0.0.1", "--server=127.0.0.1:1", "--workdir", path(&dir)])
        .env_clear();
    let _agent = Process::start(&mut command, &log).expect("the agent starts");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually_blocking("a line of the log", || Ok(read().contains('\n'))).expect("the agent says why it waits");
    assert!(!read().contains('\u{1b}'), "{}", read());
}

#[test]
fn a_token_of_a_folder_that_no_server_has_used_is_refused() {
    let dir = folder(&[]);
    let ran = run(&["token", "create", "--service-account=shop/cart", "--stateDir", path(&dir)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("no server has used the state folder") && ran.stderr.contains("--stateDir"), "{ran:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder").count(), 0, "it makes no key");
}
