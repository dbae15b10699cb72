//! What `meltemi check-inject` found, as text and as JSON.

use comfy_table::{Table, presets};
use config::store::Name;
use inject::{Fault, Injection, InjectionOutcome, Selection, WebhookConfiguration};
use serde_json::{Value, json};

use super::super::{print, print_document};
use settings::args::{Format, Listing};

pub(super) struct InjectionCheck {
    pub(super) kind: &'static str,
    pub(super) name: Name,
    /// In the order in which an API server asks them.
    pub(super) webhooks: Vec<CheckedWebhook>,
    pub(super) verdict: InjectionVerdict,
    /// `None`: the pod as it is was not injected.
    pub(super) injected_by: Option<String>,
}

pub(super) struct CheckedWebhook {
    pub(super) configuration: WebhookConfiguration,
    pub(super) selection: Selection,
}

pub(super) enum InjectionVerdict {
    NoWebhooks,
    NotAsked,
    /// The control plane that is asked has no valid configuration.
    NotConfigured(String),
    Answered(Box<Injection>),
}

impl InjectionCheck {
    /// The pod is injected, and nothing is wrong with that.
    pub(super) fn is_right(&self) -> bool {
        self.is_injected() && self.problems().is_empty()
    }

    fn is_injected(&self) -> bool {
        matches!(&self.verdict, InjectionVerdict::Answered(it) if matches!(it.outcome, Ok(InjectionOutcome::Injected { .. })))
    }

    /// The webhooks that an API server asks.
    fn asked(&self) -> impl Iterator<Item = (&WebhookConfiguration, &str, &[String])> {
        self.webhooks.iter().filter_map(|it| match &it.selection {
            Selection::Asked { webhook, because } => Some((&it.configuration, webhook.as_str(), because.as_slice())),
            Selection::NotAsked(_) => None,
        })
    }

    fn faults(&self) -> &[Fault] {
        match &self.verdict {
            InjectionVerdict::Answered(injection) => &injection.faults,
            _ => &[],
        }
    }

    /// The rule that decides, by id and in words.
    fn rule(&self) -> (&'static str, String) {
        let no_webhook = "no-webhook";
        match &self.verdict {
            InjectionVerdict::NoWebhooks => {
                (no_webhook, "there is no MutatingWebhookConfiguration of an injector".to_owned())
            }
            InjectionVerdict::NotAsked => (no_webhook, "no webhook is asked for these labels".to_owned()),
            InjectionVerdict::NotConfigured(problem) => ("no-configuration", problem.clone()),
            InjectionVerdict::Answered(injection) => match &injection.outcome {
                Ok(InjectionOutcome::Skipped(reason) | InjectionOutcome::Injected { reason, .. }) => {
                    (reason.id(), reason.to_string())
                }
                Err(error) => ("refused", error.trim().to_owned()),
            },
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let asked: Vec<&str> = self.asked().map(|(configuration, ..)| configuration.name.as_str()).collect();
        if asked.len() > 1 {
            problems.push(format!("more than one webhook is asked, and each injects: {}", asked.join(", ")));
        }
        if let InjectionVerdict::Answered(injection) = &self.verdict {
            problems.extend(injection.warnings.iter().cloned());
        }
        problems.extend(self.faults().iter().map(|fault| format!("{}: {fault}", fault.id())));
        problems
    }

    fn verdict(&self) -> &'static str {
        match &self.verdict {
            InjectionVerdict::NoWebhooks | InjectionVerdict::NotAsked => "not injected",
            InjectionVerdict::NotConfigured(_) => "refused",
            InjectionVerdict::Answered(injection) => match injection.outcome {
                Ok(InjectionOutcome::Injected { .. }) => "injected",
                Ok(InjectionOutcome::Skipped(_)) => "not injected",
                Err(_) => "refused",
            },
        }
    }

    pub(super) fn print(&self, output: Listing) {
        match output {
            Listing::Text => print(&self.text()),
            Listing::Json => print_document(&self.document(), Format::Json),
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![format!("{} {}/{}: {}", self.kind, self.name.namespace, self.name.name, self.verdict())];
        for (configuration, webhook, because) in self.asked() {
            lines.push(format!("  asked    {} ({webhook}), {}", configuration.name, plane(configuration)));
            let because = if because.is_empty() { "it is asked for every pod".to_owned() } else { because.join(", ") };
            lines.push(format!("  because  {because}"));
        }
        lines.push(format!("  rule     {}", self.rule().1.replace('\n', "\n           ")));
        lines.extend(self.injected_by.iter().map(|revision| format!("  now      injected by revision {revision}")));
        lines.extend(self.problems().iter().map(|problem| format!("  problem  {problem}")));
        let mut text = lines.join("\n") + "\n";
        if !self.webhooks.is_empty() {
            text += "\n";
            text.extend(self.table().lines().map(|line| format!("{}\n", line.trim())));
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["WEBHOOK", "REVISION", "TAG", "ASKED", "WHY"]);
        for CheckedWebhook { configuration, selection } in &self.webhooks {
            let (asked, why) = match selection {
                Selection::Asked { because, .. } => ("yes", because.join(", ")),
                Selection::NotAsked(why) => ("no", why.join("; ")),
            };
            let tag = configuration.tag.as_deref().unwrap_or("-");
            table.add_row([configuration.name.as_str(), configuration.revision.as_str(), tag, asked, why.as_str()]);
        }
        table
    }

    fn document(&self) -> Value {
        let webhooks = self.webhooks.iter().map(|CheckedWebhook { configuration, selection }| {
            let WebhookConfiguration { name, revision, tag, .. } = configuration;
            let (webhook, why) = match selection {
                Selection::Asked { webhook, because } => (Some(webhook), because),
                Selection::NotAsked(why) => (None, why),
            };
            json!({ "name": name, "revision": revision, "tag": tag, "asked": webhook.is_some(), "webhook": webhook, "why": why })
        });
        let faults = self.faults().iter().map(|fault| json!({ "fault": fault.id(), "what": fault.to_string() }));
        let (rule, reason) = self.rule();
        json!({
            "kind": self.kind, "namespace": *self.name.namespace, "name": *self.name.name,
            "injected": self.is_injected(), "verdict": self.verdict(), "rule": rule, "reason": reason,
            "webhooks": webhooks.collect::<Vec<_>>(), "faults": faults.collect::<Vec<_>>(), "problems": self.problems(),
            "injectedBy": self.injected_by,
        })
    }
}

fn plane(configuration: &WebhookConfiguration) -> String {
    match &configuration.tag {
        Some(tag) => format!("revision {} by tag {tag}", configuration.revision),
        None => format!("revision {}", configuration.revision),
    }
}
