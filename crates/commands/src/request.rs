//! `meltemi request`: one page of a running server as it is, the counterpart of `pilot-discovery request`.

use anyhow::Result;
use hyper::Method;

use super::client::{self, PageClient};
use super::{CommandOutcome, print};
use settings::args::{RequestArgs, RequestMethod};

pub fn run(args: &RequestArgs) -> Result<CommandOutcome> {
    let server = PageClient::new(&args.target)?;
    let method = match args.method {
        RequestMethod::Get => Method::GET,
        RequestMethod::Post => Method::POST,
    };
    let slash = if args.path.starts_with('/') { "" } else { "/" };
    print(&client::run(server.text(method, &format!("{slash}{}", args.path)))?);
    Ok(CommandOutcome::Done)
}
