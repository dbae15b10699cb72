//! Attacks on a server on this machine, each at a fixed rate: what they are, and the clock that runs them. What a single strike sends is in the modules below.

mod calls;
mod connections;
mod frames;
mod requests;

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// Addresses that attackers have, each of which a server counts by itself.
const SOURCES: usize = 4;

/// What is kept open until the end of an attack.
type Held = Box<dyn Any + Send>;

#[derive(clap::Args)]
pub struct AttackPlan {
    /// Attacks to run, all at once [default: all]
    #[arg(value_enum)]
    attacks: Vec<Attack>,
    /// Print the attacks and their rates, one JSON object per line, and attack nobody
    #[arg(long)]
    list: bool,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[command(flatten)]
    targets: Targets,
}

/// The ports of the server, on this machine only.
#[derive(Debug, Clone, clap::Args)]
struct Targets {
    /// xDS in plaintext
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:15010")]
    xds: SocketAddr,
    /// xDS and certificates over TLS
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:15012")]
    secure: SocketAddr,
    /// Probes and debug pages
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Metrics
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:15014")]
    monitoring: SocketAddr,
    /// The webhook
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:15017")]
    webhook: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// A request of 600 kB with one name on both lists, 100,000 times
    DuplicateNames,
    /// A request with 100,000 names
    ManyNames,
    /// A request with 60,000 made-up initial versions
    InitialVersions,
    /// A stream that subscribes to 3,900 names of 1,000 bytes, and stays
    LongNames,
    /// A node with 9,900 labels
    WideMetadata,
    /// A node whose metadata is a thousand structs deep
    DeepMetadata,
    /// A node with an id of 900 kB
    LongNodeId,
    /// A stream with an IDLE_TIMEOUT that no other has, which ends after its first response
    DistinctClasses,
    /// The same, and it stays
    KeptClasses,
    /// A stream with all of a message of 4 MiB but its last byte
    IncompleteMessages,
    /// A stream that never reads
    UnreadResponses,
    /// A stream that subscribes and unsubscribes 500 times
    SubscriptionChanges,
    /// A connection with 2,000 streams that are reset at once
    RapidResets,
    /// A connection with 20,000 pings whose answers are not read
    Pings,
    /// A connection with 10,000 SETTINGS whose answers are not read
    Settings,
    /// A connection with 20,000 empty DATA frames
    EmptyData,
    /// A connection with a message of 20,000 DATA frames of one byte
    TinyData,
    /// A connection with 10,000 WINDOW_UPDATE and PRIORITY frames
    WindowUpdates,
    /// A connection with headers that do not end
    EndlessHeaders,
    /// A connection whose headers become a thousand times as long by references to the dynamic table
    HeaderBombs,
    /// A socket, on each port in turn, that sends nothing
    IdleSockets,
    /// A request of HTTP/1.1 that does not end
    HalfRequests,
    /// A hundred requests of a page that is not read
    UnreadPages,
    /// A TLS handshake that stops in its first message
    HalfHandshakes,
    /// A TLS handshake and nothing else
    Handshakes,
    /// A stream with a made-up token on the secure port
    JunkTokens,
    /// A debug page with a made-up token
    JunkTokensOfPages,
    /// A signing request without credentials whose body does not end
    SigningRequests,
    /// An AdmissionReview of a made-up kind and operation
    ForgedReviews,
    /// An AdmissionReview of 3 MiB
    LargeReviews,
    /// An AdmissionReview with an object 100,000 levels deep
    DeepReviews,
    /// A body of 1 MiB that says it is compressed
    CompressedReviews,
}

impl Attack {
    /// Strikes: all attacks together take less than one core of the attacker.
    fn per_second(self) -> u32 {
        match self {
            Attack::ManyNames | Attack::InitialVersions | Attack::LargeReviews => 1,
            Attack::DuplicateNames | Attack::LongNames | Attack::LongNodeId | Attack::IncompleteMessages => 2,
            Attack::WideMetadata | Attack::DeepMetadata | Attack::DeepReviews | Attack::CompressedReviews => 2,
            Attack::RapidResets | Attack::Pings | Attack::Settings | Attack::EmptyData | Attack::TinyData => 2,
            Attack::WindowUpdates | Attack::EndlessHeaders | Attack::HeaderBombs | Attack::SubscriptionChanges => 2,
            Attack::UnreadPages | Attack::KeptClasses | Attack::UnreadResponses => 5,
            Attack::DistinctClasses | Attack::Handshakes | Attack::JunkTokens | Attack::SigningRequests => 20,
            Attack::ForgedReviews => 20,
            Attack::IdleSockets | Attack::HalfRequests | Attack::HalfHandshakes | Attack::JunkTokensOfPages => 50,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().expect("no variant is hidden").get_name().to_owned()
    }

    fn help(self) -> String {
        self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// An error: the server ended it, which is its right.
    async fn strike(self, to: &Targets, number: usize) -> Result<Option<Held>> {
        match self {
            Attack::IdleSockets
            | Attack::HalfRequests
            | Attack::UnreadPages
            | Attack::HalfHandshakes
            | Attack::Handshakes => connections::strike(self, to, number).await,
            Attack::RapidResets
            | Attack::Pings
            | Attack::Settings
            | Attack::EmptyData
            | Attack::TinyData
            | Attack::WindowUpdates
            | Attack::EndlessHeaders
            | Attack::HeaderBombs => frames::strike(self, to, number).await,
            Attack::JunkTokens
            | Attack::JunkTokensOfPages
            | Attack::SigningRequests
            | Attack::ForgedReviews
            | Attack::LargeReviews
            | Attack::DeepReviews
            | Attack::CompressedReviews => calls::strike(self, to, number).await,
            _ => requests::strike(self, to, number).await,
        }
    }
}

impl AttackPlan {
    /// Prints a line for each attack: strikes that went through, and those that the server ended.
    pub async fn run(&self, mut print: impl FnMut(Value)) -> Result<()> {
        let attacks = if self.attacks.is_empty() { Attack::value_variants() } else { &self.attacks };
        if self.list {
            for attack in attacks {
                print(json!({ "attack": attack.name(), "per_second": attack.per_second(), "what": attack.help() }));
            }
            return Ok(());
        }
        let Targets { xds, secure, http, monitoring, webhook } = &self.targets;
        if let Some(other) = [xds, secure, http, monitoring, webhook].into_iter().find(|it| !it.ip().is_loopback()) {
            bail!("{other} is not on this machine; attacks go to loopback only");
        }
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut running = JoinSet::new();
        for attack in attacks {
            running.spawn(until(end, *attack, Arc::new(self.targets.clone())));
        }
        while let Some(done) = running.join_next().await {
            print(done?);
        }
        Ok(())
    }
}

/// Strikes at its rate; all that is held is let go at the end.
async fn until(end: Instant, attack: Attack, to: Arc<Targets>) -> Value {
    let mut clock = interval(Duration::from_secs(1) / attack.per_second());
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut strikes, mut number) = (JoinSet::new(), 0);
    while timeout_at(end, clock.tick()).await.is_ok() {
        let to = Arc::clone(&to);
        strikes.spawn(async move {
            let struck = timeout_at(end, attack.strike(&to, number)).await;
            let refused = matches!(struck, Ok(Err(_)));
            let _held = struck;
            tokio::time::sleep_until(end).await;
            refused
        });
        number += 1;
    }
    let ended = strikes.join_all().await.into_iter().filter(|refused| *refused).count();
    json!({ "attack": attack.name(), "per_second": attack.per_second(), "strikes": number, "ended_by_server": ended })
}

/// From one of the attackers' addresses.
async fn dial(to: SocketAddr, number: usize) -> Result<TcpStream> {
    let SocketAddr::V4(_) = to else { return TcpStream::connect(to).await.context("connect") };
    let socket = TcpSocket::new_v4()?;
    let host = u8::try_from(1 + number % SOURCES)?;
    socket.bind((Ipv4Addr::new(127, 200, 0, host), 0).into())?;
    let stream = socket.connect(to).await.context("connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_says_what_it_does() {
        assert!(Attack::value_variants().iter().all(|attack| !attack.help().is_empty()));
    }

    #[tokio::test]
    async fn attacks_go_to_loopback_only() {
        let there: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let here: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let targets = Targets { xds: here, secure: here, http: here, monitoring: there, webhook: here };
        let plan = AttackPlan { attacks: Vec::new(), list: false, seconds: 0, targets };
        let error = plan.run(|_| panic!("nothing to print")).await.unwrap_err();
        assert!(error.to_string().starts_with("192.0.2.1:80 is not on this machine"), "{error}");
    }
}
