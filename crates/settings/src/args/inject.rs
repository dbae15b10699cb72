//! The flags of `meltemi inject` and `meltemi check-inject`.

use std::path::PathBuf;

use super::Listing;

#[derive(Debug, clap::Args)]
pub struct InjectArgs {
    /// Folder with the injector's ConfigMap, the mesh config and what else a control plane reads
    pub dir: PathBuf,
    /// File with workloads to inject; `-` for stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub filename: PathBuf,
    /// Revision whose ConfigMaps are used [default: $REVISION]
    #[arg(long = "revision", value_name = "NAME")]
    pub revision: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct CheckInjectArgs {
    /// The workload: a Pod, else a Deployment of that name; deployment/NAME, statefulset/NAME, job/NAME and the like for others
    #[arg(value_name = "[KIND/]NAME[.NAMESPACE]")]
    pub workload: String,
    /// Namespace of the workload [default: the one in its name, else `default`]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Folder with the workload, its Namespace, the MutatingWebhookConfigurations and the ConfigMaps of the control planes
    /// [default: ask the API server]
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    pub config: Option<PathBuf>,
    /// How to reach the API server [default: $KUBECONFIG or the user's own, else the account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the control plane
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    pub istio_namespace: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}
