//! Command line and environment as the user wrote them: the commands. Their flags are in a file for each subject; settings.rs checks them.

mod ask;
mod demo;
mod env;
mod explain;
mod explain_request;
mod folder;
mod history;
mod inject;
mod plan;
mod proxy;
mod serve;
mod token;
mod values;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

pub use ask::{
    CaCommand, CaRotateArgs, DoctorArgs, FailOn, ProxiesArgs, PushesArgs, RequestArgs, RequestMethod, ScopeCommand,
    ScopeSuggestArgs, ServerArgs,
};
pub use demo::DemoArgs;
pub use env::{
    AdminEnv, ClassEnv, ClusterEnv, DebounceEnv, Env, HistoryEnv, IdentityEnv, InjectionEnv, JwksEnv, MeshEnv,
    StreamEnv,
};
pub use explain::{ExplainCommand, ExplainObjectArgs, ExplainProxyArgs, ExplainSource, NacksArgs};
pub use explain_request::ExplainRequestArgs;
pub use folder::{CheckArgs, InputArgs, MeshArgs, RenderArgs, ServiceEntriesArgs};
pub use history::{BlameArgs, DiffArgs, HistoryArgs};
pub use inject::{CheckInjectArgs, InjectArgs};
pub use plan::{PlanArgs, WaitArgs};
pub use proxy::{AgentArgs, BootstrapArgs, BootstrapCommand, InstallAgentArgs, SdsFrom};
pub use serve::ServeArgs;
pub use token::{TokenCommand, TokenCreateArgs};
pub use values::ValuesArgs;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  ran, and found something wrong (`check`, `values`: an error, or with --strict a warning; `doctor`: as --fail-on says;
     `replicas`: one that differs or is silent; `inject`: a pod that is refused; `check-inject`: a pod that is not injected, or
     whose injection is at fault; `plan`: an object that is invalid, with --check any change, or
     with --envoy a predicted rejection;
     `wait`: a proxy has not acknowledged the object; `explain`: a proxy rejects something, or the object has an error;
     `nacks`: a rejection; `diff`: with --check any difference)
  2  could not run: wrong arguments, unreadable folder, port in use, server not reached

Data goes to stdout, everything else to stderr.";

const EXAMPLES: &str = "\
Examples:
  meltemi serve --config ./mesh            serve a folder of YAML, follow its changes
  meltemi serve --kubeconfig ~/.kube/config
                                           serve the objects of an API server
  meltemi check ./mesh                     check these objects
  meltemi check new.yaml --kubeconfig ~/.kube/config
                                           check this file with the objects of a cluster
  meltemi render ./mesh --proxy cart-1.shop --type cds,eds
                                           the configuration of this proxy
  meltemi plan -f new.yaml                 what this file would change, and for whom
  meltemi proxies                          connected proxies and their sync state
  meltemi explain proxy cart-1.shop        what this proxy has, from which objects, and why
  meltemi nacks                            what proxies reject, and which objects and fields are to blame
  meltemi diff cart-1.shop --from 90m      what changed for this proxy in the last 90 minutes, and why
  meltemi blame cart-1.shop rds/80         which change brought each line of these routes
  meltemi pushes --follow                  pushes as they happen: cause and progress
  meltemi doctor                           what slows this mesh down, and what helps
  meltemi demo --envoy /usr/bin/envoy      a mesh of three services on this machine, to try all of this";

/// A control plane for Istio meshes.
#[derive(Debug, Parser)]
#[command(name = "meltemi", version, before_help = EXAMPLES, after_help = EXIT_CODES, args_override_self = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve configuration to proxies (also as `discovery`, with istiod's flags; unknown flags only warn)
    #[command(visible_alias = "discovery", after_help = EXIT_CODES, args_override_self = true)]
    Serve(Box<ServeArgs>),
    /// Check the objects of a folder, a file or a cluster and print diagnostics
    #[command(after_help = EXIT_CODES)]
    Check(CheckArgs),
    /// Print the configuration of a proxy, computed from a folder, a file or a cluster without a server
    #[command(after_help = EXIT_CODES)]
    Render(RenderArgs),
    /// Show what objects would change if they were applied: for which proxies, in which resources, for which requests
    #[command(after_help = EXIT_CODES)]
    Plan(Box<PlanArgs>),
    /// Wait until every proxy that an object concerns has acknowledged it, at all replicas
    #[command(after_help = EXIT_CODES)]
    Wait(WaitArgs),
    /// Inject sidecars into the workloads of a file, by the configuration in a folder
    #[command(after_help = EXIT_CODES)]
    Inject(InjectArgs),
    /// Find out whether a workload's pods are injected, by which webhook, and which rule decides
    #[command(after_help = EXIT_CODES)]
    CheckInject(CheckInjectArgs),
    /// Print a bootstrap that connects an Envoy to a server
    #[command(after_help = EXIT_CODES)]
    Bootstrap(Box<BootstrapCommand>),
    /// Run beside one Envoy: certificates, SDS, bootstrap, drain
    #[command(after_help = EXIT_CODES)]
    Agent(Box<AgentArgs>),
    /// Copy this program to a file, where the Envoy container of a pod runs it as its agent
    #[command(after_help = EXIT_CODES)]
    InstallAgent(InstallAgentArgs),
    /// Run a shop of three services on this machine, with real Envoys, and show what to try: no cluster, no root
    #[command(after_help = EXIT_CODES)]
    Demo(DemoArgs),
    /// List the connected proxies and the sync state of each type
    #[command(after_help = EXIT_CODES)]
    Proxies(ProxiesArgs),
    /// List what proxies reject at the moment, with the objects and fields to blame
    #[command(after_help = EXIT_CODES)]
    Nacks(NacksArgs),
    /// Explain what a proxy has, or what became of an object
    #[command(subcommand)]
    Explain(Box<ExplainCommand>),
    /// List recorded pushes, or those that changed a proxy, and what
    #[command(after_help = EXIT_CODES)]
    History(HistoryArgs),
    /// Show what differs for a proxy between two pushes or times
    #[command(after_help = EXIT_CODES)]
    Diff(DiffArgs),
    /// Show which push brought each line of a resource
    #[command(after_help = EXIT_CODES)]
    Blame(BlameArgs),
    /// List the replicas of a control plane in Kubernetes: their proxies, and whether they hold the same objects
    #[command(after_help = EXIT_CODES)]
    Replicas(ProxiesArgs),
    /// List the last pushes: cause, proxies, ACKs, NACKs and times
    #[command(after_help = EXIT_CODES)]
    Pushes(PushesArgs),
    /// Print a page of a running server, as curl would: the image has no curl
    #[command(after_help = EXIT_CODES)]
    Request(RequestArgs),
    /// Show and advance the rotation of the root certificate
    #[command(subcommand)]
    Ca(CaCommand),
    /// Find what slows a mesh down, and what to do about it
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArgs),
    /// Find out what namespaces need to know of each other
    #[command(subcommand)]
    Scope(ScopeCommand),
    /// Create tokens of service accounts, for proxies without a Kubernetes API server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print a ValidatingAdmissionPolicy for each kind whose checks an API server can evaluate by itself
    #[command(after_help = EXIT_CODES)]
    AdmissionPolicy,
    /// Print ServiceEntries for the services of namespaces that another control plane (a shard) does not read
    #[command(after_help = EXIT_CODES)]
    ServiceEntries(ServiceEntriesArgs),
    /// Convert an IstioOperator to values of the Helm chart, and report the fields that have none
    #[command(after_help = EXIT_CODES)]
    Values(ValuesArgs),
    /// Print the version
    Version(VersionArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProxyType {
    Sidecar,
    Router,
}

#[derive(Debug, clap::Args)]
pub struct VersionArgs {
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}

/// The arguments, and the unknown flags of `serve`, which are ignored.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<(Args, Vec<String>), clap::Error> {
    let (known, ignored) = without_unknown_flags(words.into_iter().collect());
    Args::try_parse_from(known).map(|args| (args, ignored))
}

/// `serve` ignores unknown flags, as istiod does, so that a chart that is newer or older than the image does not stop the pod. The command has
/// no positional arguments: a bare word after an unknown flag can only be that flag's value.
fn without_unknown_flags(words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut root = Args::command();
    root.build();
    let Some(serve) = words.get(1).and_then(|word| root.find_subcommand(word)).filter(|it| it.get_name() == "serve")
    else {
        return (words, Vec::new());
    };
    let mut known = Vec::new();
    let mut ignored = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let is_flag = text.len() > 1 && text.starts_with('-') && text != "--";
        if !is_flag || known.len() < 2 || is_known(serve, &text) {
            known.push(word);
            continue;
        }
        ignored.push(text.split('=').next().unwrap_or_default().to_owned());
        if !text.contains('=') {
            words.next_if(|next| !next.to_string_lossy().starts_with('-'));
        }
    }
    (known, ignored)
}

fn is_known(command: &clap::Command, flag: &str) -> bool {
    let name = flag.split('=').next().unwrap_or_default();
    if let Some(long) = name.strip_prefix("--") {
        return command.get_arguments().any(|arg| {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        });
    }
    let short = name.chars().nth(1);
    command.get_arguments().any(|arg| short.is_some() && arg.get_short() == short)
}

/// A boolean in any of the spellings that istiod's flags and variables take.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(words: &[&str]) -> (ServeArgs, Vec<String>) {
        let words = ["meltemi"].iter().chain(words).map(OsString::from);
        let (args, ignored) = parse(words).unwrap();
        let Command::Serve(serve) = args.command else { panic!("not serve") };
        (*serve, ignored)
    }

    #[test]
    fn both_names_of_the_command_and_of_the_folder() {
        for command in ["serve", "discovery"] {
            for folder in [&["--config", "d"][..], &["--configDir", "d"], &["--config=d"], &["--configDir=d"]] {
                let (serve, ignored) = serve(&[&[command], folder].concat());
                assert_eq!(serve.config.as_deref(), Some(std::path::Path::new("d")));
                assert!(ignored.is_empty());
            }
        }
    }

    #[test]
    fn unknown_flags_are_ignored_with_their_values() {
        let (serve, ignored) = serve(&[
            "discovery",
            "--registries",
            "/x",
            "--grpcAddr",
            ":1",
            "--profile",
            "--cniNamespace=istio-system",
            "-z",
            "9",
            "--config",
            "d",
        ]);
        assert_eq!(ignored, ["--registries", "--profile", "--cniNamespace", "-z"]);
        assert_eq!(serve.grpc_addr, ":1");
        assert_eq!(serve.config.as_deref(), Some(std::path::Path::new("d")));
    }

    #[test]
    fn empty_address_in_both_spellings() {
        let (serve, _) = serve(&["serve", "--grpcAddr=", "--httpAddr", ""]);
        assert_eq!((serve.grpc_addr.as_str(), serve.http_addr.as_str()), ("", ""));
        assert_eq!(serve.monitoring_addr, ":15014");
    }

    #[test]
    fn booleans_as_istiod_writes_them() {
        assert!(serve(&["serve", "--log_as_json"]).0.log_as_json);
        assert!(serve(&["serve", "--log_as_json=T"]).0.log_as_json);
        assert!(!serve(&["serve", "--log_as_json=false"]).0.log_as_json);
    }

    #[test]
    fn the_last_of_a_repeated_flag_wins() {
        assert_eq!(serve(&["serve", "--domain=a", "--domain", "b"]).0.domain, "b");
    }

    #[test]
    fn other_commands_reject_unknown_flags() {
        let words = ["meltemi", "check", ".", "--nope"].map(OsString::from);
        assert_eq!(parse(words).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn help_of_serve_is_not_an_unknown_flag() {
        let words = ["meltemi", "serve", "--help"].map(OsString::from);
        assert_eq!(parse(words).unwrap_err().kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn the_command_definitions_are_consistent() {
        Args::command().debug_assert();
    }
}
