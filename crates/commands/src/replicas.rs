//! `meltemi replicas`: the replicas of a revision, their proxies, and whether they hold the same objects, as one of them reports it.

use anyhow::Result;
use comfy_table::{Table, presets};

use super::client::{self, PageClient};
use super::{CommandOutcome, print};
use server::{ReplicaState, ReplicaStatus};
use settings::args::{Listing, ProxiesArgs};

pub fn run(args: &ProxiesArgs) -> Result<CommandOutcome> {
    let server = PageClient::new(&args.target)?;
    let replicas: Vec<ReplicaStatus> = client::run(server.page("/debug/replicas", "a list of replicas"))?;
    match args.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&replicas)?)),
        Listing::Text => print(&table(&replicas)),
    }
    Ok(if replicas.iter().any(|it| is_wrong(it.state)) { CommandOutcome::Found } else { CommandOutcome::Done })
}

fn is_wrong(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Differs | ReplicaState::Silent | ReplicaState::CutOff)
}

fn table(replicas: &[ReplicaStatus]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["REPLICA", "VERSION", "PROXIES", "INPUTS", "STATE", "DIFFERS IN"]);
    for it in replicas {
        let state = match it.state {
            ReplicaState::Silent => format!("silent for {} s", it.silent_seconds),
            ReplicaState::CutOff => format!("cut off from the API server for {} s", it.silent_seconds),
            state => state.name().to_owned(),
        };
        let name = if it.own { format!("{} (asked)", it.name) } else { it.name.clone() };
        let differs = if it.differs_in.is_empty() { "-".to_owned() } else { it.differs_in.join(", ") };
        table.add_row([name, it.version.clone(), it.streams.to_string(), it.inputs.clone(), state, differs]);
    }
    table.lines().map(|line| format!("{}\n", line.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_per_replica_with_its_state() {
        let replica = |name: &str, state, differs_in: &[&str]| ReplicaStatus {
            name: name.into(),
            own: name == "a",
            version: "1".into(),
            streams: 7,
            inputs: "ab".into(),
            state,
            differs_in: differs_in.iter().map(ToString::to_string).collect(),
            silent_seconds: 40,
            secure: String::new(),
            monitoring: String::new(),
        };
        let shown = table(&[
            replica("a", ReplicaState::InStep, &[]),
            replica("b", ReplicaState::Differs, &["Pod", "Node"]),
            replica("c", ReplicaState::Silent, &[]),
            replica("d", ReplicaState::CutOff, &[]),
        ]);
        let rows: Vec<String> =
            shown.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            rows,
            [
                "a (asked) 1 7 ab in step -",
                "b 1 7 ab differs Pod, Node",
                "c 1 7 ab silent for 40 s -",
                "d 1 7 ab cut off from the API server for 40 s -"
            ]
        );
        assert!(is_wrong(ReplicaState::Silent) && !is_wrong(ReplicaState::Settling));
    }
}
