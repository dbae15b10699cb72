//! `meltemi token create`: a token of a service account, for proxies of a mesh without a Kubernetes API server.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use ca::Issuer;

use super::{CommandOutcome, print};
use server::settings::NO_STATE;
use settings::args::{Env, TokenCreateArgs};
use settings::{go_duration, state_folder};

pub fn create(args: &TokenCreateArgs, env: &Env) -> Result<CommandOutcome> {
    let Some((namespace, account)) = args.service_account.split_once('/') else {
        bail!("--service-account {:?}: write it as NAMESPACE/NAME", args.service_account);
    };
    for (what, name) in [("namespace", namespace), ("name", account)] {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) {
            bail!("--service-account {:?}: {name:?} is not the {what} of a service account", args.service_account);
        }
    }
    let lifetime = go_duration(&args.lifetime).filter(|lifetime| *lifetime >= Duration::from_secs(1));
    let lifetime = lifetime.with_context(|| format!("--lifetime {:?}: write it like 24h or 30m", args.lifetime))?;
    let issuer = Issuer::of_server(&state_folder(args.state_dir.clone(), &env.identity).context(NO_STATE)?)?;
    let token = issuer.token(namespace, account, &args.audience, lifetime, SystemTime::now())?;
    print(&format!("{token}\n"));
    Ok(CommandOutcome::Done)
}
