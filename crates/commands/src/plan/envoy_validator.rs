//! Runs `envoy --mode validate` on a static bootstrap, a bounded number of times.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::offline::EnvoyBuild;
use super::static_bootstrap;

pub(super) struct EnvoyValidator {
    file: PathBuf,
    /// Such as `1.40.0`.
    pub(super) version: String,
    /// Starts that are left.
    remaining: usize,
}

/// What Envoy says to a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    /// With its text.
    Rejected(String),
    /// It was started as often as it may be.
    NotAsked,
}

/// A large configuration takes a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a reason. Of a message that it cannot read, Envoy prints the whole.
const REASON: usize = 1000;

impl EnvoyValidator {
    pub(super) fn new(file: &Path, validations: usize) -> Result<EnvoyValidator> {
        let mut validator = EnvoyValidator { file: file.to_owned(), version: String::new(), remaining: validations };
        let (status, stdout, stderr) = validator.run(&["--version"])?;
        // `envoy  version: HASH/1.40.0/Clean/RELEASE/BoringSSL`.
        let version = stdout.split('/').nth_back(3).filter(|it| it.starts_with(|first: char| first.is_ascii_digit()));
        let version = version.filter(|_| status.success());
        let version = version.with_context(|| format!("{} --version printed {stdout}{stderr}", file.display()))?;
        validator.version = version.to_owned();
        Ok(validator)
    }

    /// Whether it has Istio's filters: of those in a configuration that it has not, it can only say that it does not know them.
    pub(super) fn build(&mut self) -> Result<EnvoyBuild> {
        let mut probe = static_bootstrap::document("probe", &Vec::new());
        let config = json!({"@type": "type.googleapis.com/istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"});
        probe["static_resources"]["clusters"][0]["metadata"] = json!({"typed_filter_metadata": {"probe": config}});
        Ok(if self.validate(&probe)? == Answer::Accepted { EnvoyBuild::Istio } else { EnvoyBuild::Stock })
    }

    pub(super) fn validate(&mut self, bootstrap: &Value) -> Result<Answer> {
        let Some(remaining) = self.remaining.checked_sub(1) else { return Ok(Answer::NotAsked) };
        self.remaining = remaining;
        // Only its owner can read it.
        let mut file = tempfile::Builder::new().suffix(".json").tempfile().context("a temporary file")?;
        serde_json::to_writer(&mut file, bootstrap).context("cannot write a temporary file")?;
        let path = file.path().to_string_lossy();
        // As with what comes over xDS, an unknown field is no error.
        let fixed = ["--mode", "validate", "--allow-unknown-static-fields", "--log-level", "critical"];
        let (status, stdout, stderr) =
            self.run(&[&fixed[..], &["--log-format", "%v", "--config-path", &path]].concat())?;
        if status.success() {
            return Ok(Answer::Accepted);
        }
        match reason(&stderr, &path) {
            Some(reason) => Ok(Answer::Rejected(reason)),
            None => bail!("{} --mode validate ended with {status}: {stdout}{stderr}", self.file.display()),
        }
    }

    fn run(&self, arguments: &[&str]) -> Result<(ExitStatus, String, String)> {
        let name = self.file.display();
        let mut command = Command::new(&self.file);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let readers = (reader(child.stdout.take()), reader(child.stderr.take()));
        let status = wait(&mut child)?;
        let text = |it: thread::JoinHandle<String>| it.join().unwrap_or_default();
        let (stdout, stderr) = (text(readers.0), text(readers.1));
        match status {
            Some(status) => Ok((status, stdout, stderr)),
            None => bail!("{name} did not end within {TIMEOUT:?}"),
        }
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is all that there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// `None`: it did not end in time, and was killed.
fn wait(child: &mut Child) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// `None`: the text is about something else than the configuration.
fn reason(stderr: &str, path: &str) -> Option<String> {
    let (_, reason) = stderr.split_once("error initializing configuration '")?;
    let reason = reason.strip_prefix(path)?.strip_prefix("': ")?;
    // What follows a text in parentheses is the whole file.
    let reason = reason.split_once("): {").map_or(reason, |(reason, _)| reason);
    let reason = reason.strip_prefix("Unable to parse JSON as proto (").unwrap_or(reason);
    let end = reason.char_indices().nth(REASON).map_or(reason.len(), |(end, _)| end);
    Some(reason[..end].trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_envoy_says_without_the_file() {
        let of = |text: &str| reason(&format!("error initializing configuration '/tmp/a.json': {text}"), "/tmp/a.json");
        assert_eq!(of("script load error: x\n").as_deref(), Some("script load error: x"));
        let unread = "Unable to parse JSON as proto (INVALID_ARGUMENT: could not find @type 'x'): {\n \"node\": {}}";
        assert_eq!(of(unread).as_deref(), Some("INVALID_ARGUMENT: could not find @type 'x'"));
        assert_eq!(reason("Segmentation fault", "/tmp/a.json"), None);
    }

    #[test]
    fn a_program_that_is_no_envoy_is_an_error() {
        let error = |file: &str| format!("{:#}", EnvoyValidator::new(Path::new(file), 1).err().expect("no Envoy"));
        assert!(error("/bin/true").contains("/bin/true --version printed"), "{}", error("/bin/true"));
        assert!(error("/nowhere/envoy").contains("cannot start /nowhere/envoy"));
    }
}
