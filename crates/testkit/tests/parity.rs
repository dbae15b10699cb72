//! The parity corpus: claimed cases must be equal, the others are measured, and one that has become equal must be claimed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use anyhow::{Result, anyhow};
use testkit::parity::{AdsSource, Case, Comparison, Corpus, InProcess, ResponsesByProxy, compare, fetch_resources};
use testkit::say;
use testkit::server::MeltemiServer;

/// Lines shown for each case that differs.
const SHOWN: usize = 12;

#[test]
fn claimed_cases_are_equal() {
    let corpus = Corpus::open().unwrap();
    let (results, demanded) = (run(&corpus), corpus.demanded());
    let mut wrong = Vec::new();
    let (mut equal, mut resources, mut later, mut later_same, mut later_total) = (0, 0, 0, 0, 0);
    for (name, result) in &results {
        let claimed = demanded.contains(name);
        match result {
            Ok(found) if found.equal() => {
                equal += 1;
                resources += found.total;
                if corpus.unclaimed.contains(name) {
                    wrong.push(format!("{name}: equal; remove it from unclaimed.txt"));
                }
            }
            Ok(found) if claimed => wrong.push(shown(name, found)),
            Err(e) if claimed => wrong.push(format!("{name}: {e:#}")),
            Ok(found) => {
                later += 1;
                later_same += found.same;
                later_total += found.total;
            }
            Err(_) => later += 1,
        }
    }
    say(&format!("parity: {equal} cases equal, {resources} resources"));
    if later > 0 {
        say(&format!("parity: {later} cases unclaimed, {later_same} of their {later_total} resources equal"));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(!results.is_empty(), "no case has such a name");
}

/// The whole way, through the program and its sockets, for the case that all others stand on.
#[test]
fn base_is_equal_over_the_wire() {
    let corpus = Corpus::open().unwrap();
    if !corpus.wanted().contains("base-only") {
        return;
    }
    let case = corpus.case("base-only").unwrap();
    let folder = tempfile::tempdir().unwrap();
    case.write_objects(folder.path()).unwrap();
    let mut server = MeltemiServer::start(folder.path()).unwrap();
    let ask = |proxy| fetch_resources(&mut AdsSource::new(server.address, proxy)?, proxy);
    let got: Result<ResponsesByProxy> =
        case.proxies.iter().map(|proxy| Ok((proxy.name.clone(), ask(proxy)?))).collect();
    let got = got.unwrap_or_else(|e| panic!("{e:#}\n{}", server.log()));
    let found = compare(&case.name, &case.expected().unwrap(), &got);
    assert!(found.equal() && found.total == 184, "{}", shown(&case.name, &found));
}

const SOUND: &str = "cases panic outside the locks";

/// All wanted cases on all cores, in order of their names.
fn run(corpus: &Corpus) -> Vec<(String, Result<Comparison>)> {
    let waiting = Mutex::new(corpus.wanted().into_iter());
    let done = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some(name) = waiting.lock().expect(SOUND).next() else { return };
                    let result = catch_unwind(AssertUnwindSafe(|| compared(&corpus.case(&name)?)));
                    let result = result.unwrap_or_else(|_| Err(anyhow!("panicked, see above")));
                    done.lock().expect(SOUND).push((name, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect(SOUND);
    done.sort_by(|(a, _), (b, _)| a.cmp(b));
    done
}

fn compared(case: &Case) -> Result<Comparison> {
    let control_plane = InProcess::new(case)?;
    let ask = |proxy| fetch_resources(&mut control_plane.proxy(proxy)?, proxy);
    let got: Result<ResponsesByProxy> =
        case.proxies.iter().map(|proxy| Ok((proxy.name.clone(), ask(proxy)?))).collect();
    Ok(compare(&case.name, &case.expected()?, &got?))
}

fn shown(name: &str, found: &Comparison) -> String {
    let mut out = format!("{name}: {} of {} resources equal", found.same, found.total);
    for line in found.lines.iter().take(SHOWN) {
        out = format!("{out}\n  {line}");
    }
    match found.lines.len().saturating_sub(SHOWN) {
        0 => out,
        more => format!("{out}\n  ... {more} more lines"),
    }
}
