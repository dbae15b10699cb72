//! The explanation of a request: hops with their steps, and how the request can end.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use crate::truth::Truth;

/// The path of one request.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    pub hops: Vec<RequestHop>,
    /// Every way in which it can end, the most likely first.
    pub endings: Vec<RequestEnding>,
    pub verdict: RequestVerdict,
    /// All of it in one line.
    pub answer: String,
}

/// What one proxy does with the request.
#[derive(Debug, Clone, Serialize)]
pub struct RequestHop {
    pub proxy: String,
    pub side: HopSide,
    /// Why this hop is one of several, such as the endpoint that it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    pub steps: Vec<HopStep>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HopSide {
    Client,
    Gateway,
    Server,
}

/// One decision of a proxy.
#[derive(Debug, Clone, Serialize)]
pub struct HopStep {
    /// What decides: `listener`, `route`, `authorization`, ...
    pub subject: &'static str,
    /// The resource, or the part of one.
    pub name: String,
    /// The decision and its reasons, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The objects that it was made from, as `Kind namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
}

/// One way in which the request can end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestEnding {
    /// Of 100 requests of this kind, how many end like this.
    pub percent: f64,
    /// Inputs that are not known: the request ends like this for some values of them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub depends_on: BTreeSet<String>,
    #[serde(flatten)]
    pub outcome: RequestOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum RequestOutcome {
    /// The application answers.
    Served {
        service: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        subset: Option<String>,
        /// Addresses with ports.
        endpoints: Vec<String>,
        /// As the application sees them.
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        authority: Option<String>,
    },
    /// A proxy answers.
    Replied {
        status: u32,
        reason: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        location: Option<String>,
        /// Whether the configuration wants this answer (a redirect, a direct response), or something is denied, missing or failing.
        intended: bool,
    },
    /// It goes to the address that the client has resolved, past the configuration.
    Passthrough { to: String },
    /// It is dropped.
    Blackholed { reason: String },
    /// The connection is closed without an answer.
    Closed { reason: String },
}

/// The kind of the answer as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestVerdict {
    /// An application or the configuration answers.
    Answered,
    /// Every such request is denied, or goes nowhere.
    Failed,
    /// Some are answered and others are not, by chance.
    Partly,
    /// It depends on inputs that are not known.
    Depends,
}

impl HopStep {
    pub(crate) fn new(subject: &'static str, name: impl Into<String>) -> HopStep {
        HopStep { subject, name: name.into(), reasons: Vec::new(), objects: Vec::new() }
    }

    pub(crate) fn because(mut self, reason: impl Into<String>) -> HopStep {
        self.reasons.push(reason.into());
        self
    }

    pub(crate) fn of(mut self, objects: Vec<String>) -> HopStep {
        self.objects = objects;
        self
    }
}

impl RequestOutcome {
    pub(crate) fn failed(status: u32, reason: impl Into<String>) -> RequestOutcome {
        RequestOutcome::Replied { status, reason: reason.into(), location: None, intended: false }
    }

    pub fn is_answer(&self) -> bool {
        match self {
            RequestOutcome::Served { .. } | RequestOutcome::Passthrough { .. } => true,
            RequestOutcome::Replied { intended, .. } => *intended,
            RequestOutcome::Blackholed { .. } | RequestOutcome::Closed { .. } => false,
        }
    }
}

impl fmt::Display for RequestOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestOutcome::Served { service, subset, endpoints, .. } => {
                write!(f, "200-class from ")?;
                match endpoints.as_slice() {
                    [one] => write!(f, "{one} of {service}")?,
                    several => write!(f, "one of {} endpoints of {service}", several.len())?,
                }
                subset.iter().try_for_each(|subset| write!(f, " {subset}"))
            }
            RequestOutcome::Replied { status, reason, location, .. } => {
                write!(f, "{status}: {reason}")?;
                location.iter().try_for_each(|location| write!(f, " to {location}"))
            }
            RequestOutcome::Passthrough { to } => write!(f, "passthrough to {to}"),
            RequestOutcome::Blackholed { reason } => write!(f, "blackholed: {reason}"),
            RequestOutcome::Closed { reason } => write!(f, "connection closed: {reason}"),
        }
    }
}

/// The share of requests that is still on its way, and the endings of the others.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    pub(crate) steps: Vec<HopStep>,
    pub(crate) endings: Vec<RequestEnding>,
    percent: f64,
    depends_on: BTreeSet<String>,
}

impl Course {
    pub(crate) fn new() -> Course {
        Course { steps: Vec::new(), endings: Vec::new(), percent: 100.0, depends_on: BTreeSet::new() }
    }

    /// Of this one, with so many of 100 requests; its steps and endings begin empty.
    pub(crate) fn branch(&self, percent: f64) -> Course {
        Course { percent: self.percent * percent / 100.0, depends_on: self.depends_on.clone(), ..Course::new() }
    }

    pub(crate) fn step(&mut self, step: HopStep) {
        self.steps.push(step);
    }

    /// All requests that are left end like this.
    pub(crate) fn end(&mut self, outcome: RequestOutcome) {
        if self.percent > 0.0 {
            let (percent, depends_on) = (self.percent, self.depends_on.clone());
            self.endings.push(RequestEnding { percent, depends_on, outcome });
            self.percent = 0.0;
        }
    }

    /// Ends if it is true; if it is unknown, both ways are followed.
    pub(crate) fn end_if(&mut self, truth: Truth, outcome: RequestOutcome) -> ControlFlow<()> {
        match truth {
            Truth::No => return ControlFlow::Continue(()),
            Truth::Yes => self.end(outcome),
            Truth::Unknown(inputs) => {
                self.depends_on.extend(inputs);
                let (percent, depends_on) = (self.percent, self.depends_on.clone());
                self.endings.push(RequestEnding { percent, depends_on, outcome });
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Break(())
    }

    /// So many of 100 of the requests that are left end like this.
    pub(crate) fn end_share(&mut self, percent: f64, outcome: RequestOutcome) -> ControlFlow<()> {
        let ended = self.percent * percent / 100.0;
        if ended > 0.0 {
            self.endings.push(RequestEnding { percent: ended, depends_on: self.depends_on.clone(), outcome });
        }
        self.percent -= ended;
        if self.percent < 1e-9 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// What follows is so only for some values of these.
    pub(crate) fn assume(&mut self, inputs: BTreeSet<String>) {
        self.depends_on.extend(inputs);
    }
}

/// Equal outcomes are put together, and the answer is put into one line.
pub(crate) fn concluded(hops: Vec<RequestHop>, endings: Vec<RequestEnding>) -> Explanation {
    let mut merged: Vec<RequestEnding> = Vec::new();
    for ending in endings {
        match merged.iter_mut().find(|it| it.outcome == ending.outcome && it.depends_on == ending.depends_on) {
            Some(same) => same.percent += ending.percent,
            None => merged.push(ending),
        }
    }
    merged.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let verdict = verdict(&merged);
    let answer = one_line(&merged, verdict);
    Explanation { hops, endings: merged, verdict, answer }
}

fn verdict(endings: &[RequestEnding]) -> RequestVerdict {
    let answered = endings.iter().filter(|it| it.outcome.is_answer()).count();
    let depends = endings.iter().any(|it| !it.depends_on.is_empty());
    match (answered, depends) {
        (0, _) => RequestVerdict::Failed,
        (all, false) if all == endings.len() => RequestVerdict::Answered,
        (_, false) => RequestVerdict::Partly,
        (_, true) => RequestVerdict::Depends,
    }
}

fn one_line(endings: &[RequestEnding], verdict: RequestVerdict) -> String {
    let several = endings.len() > 1;
    let part = |ending: &RequestEnding| {
        let share = if several && verdict != RequestVerdict::Depends && ending.percent < 99.995 {
            format!("{} %: ", (ending.percent * 100.0).round() / 100.0)
        } else {
            String::new()
        };
        format!("{share}{}", ending.outcome)
    };
    let parts: Vec<String> = endings.iter().map(part).collect();
    if verdict != RequestVerdict::Depends {
        return parts.join("; ");
    }
    let inputs: BTreeSet<&String> = endings.iter().flat_map(|it| &it.depends_on).collect();
    let inputs: Vec<&str> = inputs.into_iter().map(String::as_str).collect();
    format!("depends on {}: {}", inputs.join(", "), parts.join(" or "))
}
