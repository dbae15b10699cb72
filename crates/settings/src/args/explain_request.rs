//! The flags of `explain request`.

use std::net::IpAddr;

use super::{ExplainSource, Listing};

#[derive(Debug, clap::Args)]
pub struct ExplainRequestArgs {
    /// The pod whose application sends it, or `outside` with --gateway
    #[arg(long, value_name = "POD.NAMESPACE")]
    pub from: String,
    /// With `--from outside`: the pod of the gateway, or (with --config) the Gateway object
    #[arg(long, value_name = "NAME.NAMESPACE", required_if_eq("from", "outside"))]
    pub gateway: Option<String>,
    /// Where it goes; without a port 80, or 443 with TLS
    #[arg(long, value_name = "HOST[:PORT]")]
    pub to: String,
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// With its query
    #[arg(long, default_value = "/")]
    pub path: String,
    /// Repeatable; `host=..` if it differs from --to. A header that is not given is not there
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair)]
    pub headers: Vec<(String, String)>,
    /// Bytes that are not HTTP
    #[arg(long)]
    pub tcp: bool,
    /// The application, or the client outside, speaks TLS with this server name [default of --tls: the host]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// The application, or the client outside, speaks TLS
    #[arg(long)]
    pub tls: bool,
    /// The address that the host resolves to [default: as the proxy's listeners show it]
    #[arg(long, value_name = "IP")]
    pub to_ip: Option<IpAddr>,
    /// The address that the request comes from [default: that of the pod]
    #[arg(long, value_name = "IP")]
    pub source_ip: Option<IpAddr>,
    /// The request has a valid JWT with this claim, and no others than these; repeatable. Values may be JSON
    #[arg(long = "jwt-claim", value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "no_jwt")]
    pub jwt_claims: Vec<(String, String)>,
    /// The request has no JWT [default: not known]
    #[arg(long)]
    pub no_jwt: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub source: ExplainSource,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
