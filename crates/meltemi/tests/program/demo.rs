//! `meltemi demo`: the downloaded program and an Envoy are all that it needs.

use testkit::netns::NetworkNamespace;
use testkit::{environment, netns, skip};

use crate::run::{PROGRAM, run};

#[test]
fn runs_in_an_empty_folder_with_no_other_program_at_hand() {
    let Some(envoy) = environment::envoy() else { return skip("no Envoy (`cargo xtask setup`)") };
    if let Some(why) = netns::missing() {
        return skip(&why);
    }
    // Its addresses and ports are fixed: another demo may run.
    let namespace = NetworkNamespace::new("demo").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, temporary) =
        (format!("PATH={}", folder.path().display()), format!("TMPDIR={}", folder.path().display()));
    let mut command = namespace.command("env");
    command.args(["-i", &path, &temporary, PROGRAM, "demo", "--check", "--envoy"]).arg(envoy);
    let out = command.current_dir(folder.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("requests during the edits, none failed"), "{stdout}");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "something is left in its temporary folder");
}

#[test]
fn an_envoy_that_is_not_there_is_named() {
    let ran = run(&["demo", "--envoy", "/nowhere/envoy"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("there is no /nowhere/envoy; --envoy names Envoy's program"), "{}", ran.stderr);
}
