//! Coverage across replicas: a workload may have its stream at one replica and its certificate from another. Each replica asks for uncovered
//! workloads of its own, a window at a time, and the others answer for which of them they have signed. Pure: `reports` carries it.

use std::collections::BTreeMap;

use super::evidence::{CoverageReport, SignedAnswer};
use super::issued::IssuedCertificates;

/// Workloads in one question: with eight bytes in hex each, a report stays below 10 kB, and five replicas stay far below the 256 KiB
/// that an object may have in annotations.
const WINDOW: usize = 512;
const DIGITS: usize = 16;

#[derive(Default)]
pub(crate) struct Exchange {
    /// The current question, in order.
    question: Vec<u64>,
}

impl Exchange {
    /// One round: records the answers of others, answers their questions, and asks the next one. `uncovered`: in order; `others`: those
    /// that are not silent. Returns the question and the answers, for the report.
    pub(crate) fn round(
        &mut self,
        (own, stage): (&str, &str),
        others: &[(&str, &CoverageReport)],
        uncovered: &[u64],
        issued: &IssuedCertificates,
    ) -> (String, BTreeMap<String, SignedAnswer>) {
        // A replica at another stage has signed with other roots.
        let others = || others.iter().filter(|(_, report)| report.stage == stage);
        let digest = digest(&text(&self.question));
        let answers = others().map(|(_, report)| report.answers.get(own).filter(|answer| answer.to == digest));
        let answers: Vec<_> = answers.collect();
        for answer in answers.iter().flatten() {
            for workload in signed_workloads(&self.question, &answer.signed) {
                issued.record_signed_by_other_replica(workload);
            }
        }
        if others().next().is_none() {
            self.question.clear();
        } else if self.question.is_empty() || answers.iter().all(Option::is_some) {
            self.question = next(uncovered, self.question.last().copied());
        }
        let answered = others().filter(|(_, report)| !report.asks.is_empty());
        let answered = answered.map(|(name, report)| ((*name).to_owned(), answer(&report.asks, issued))).collect();
        (text(&self.question), answered)
    }
}

/// The window after the last workload; from the beginning again after the end.
fn next(uncovered: &[u64], last: Option<u64>) -> Vec<u64> {
    let from = last.map_or(0, |last| uncovered.partition_point(|workload| *workload <= last));
    let from = if from == uncovered.len() { 0 } else { from };
    uncovered.iter().skip(from).take(WINDOW).copied().collect()
}

fn text(workloads: &[u64]) -> String {
    workloads.iter().map(|workload| format!("{workload:016x}")).collect()
}

fn digest(asks: &str) -> String {
    format!("{:016x}", ca::digest(&[asks.as_bytes()]))
}

fn answer(asks: &str, issued: &IssuedCertificates) -> SignedAnswer {
    let question = asks.as_bytes().chunks(DIGITS).take(WINDOW);
    let is_signed = |digits: &[u8]| {
        let number = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.is_some_and(|workload| issued.holds(workload))
    };
    let bits: Vec<bool> = question.map(is_signed).collect();
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0_u8, |byte, (at, bit)| byte | u8::from(*bit) << at);
    SignedAnswer { to: digest(asks), signed: bits.chunks(8).map(|bits| format!("{:02x}", byte(bits))).collect() }
}

/// The workloads whose bit is set.
fn signed_workloads<'a>(question: &'a [u64], bits: &str) -> impl Iterator<Item = u64> + 'a {
    let digits = bits.as_bytes().chunks(2).map(|digits| std::str::from_utf8(digits).unwrap_or_default());
    let bytes: Vec<u8> = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap_or_default()).collect();
    let is_set = move |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    question.iter().enumerate().filter(move |(at, _)| is_set(*at)).map(|(_, workload)| *workload)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const STAGE: &str = "announced-a-b";

    struct Replica {
        name: &'static str,
        exchange: Exchange,
        issued: IssuedCertificates,
        report: CoverageReport,
        connected: Vec<u64>,
    }

    impl Replica {
        fn new(name: &'static str, connected: &[u64]) -> Replica {
            let issued = IssuedCertificates::default();
            issued.reset(true);
            let report = CoverageReport { stage: STAGE.into(), ..CoverageReport::default() };
            let mut connected = connected.to_vec();
            connected.sort_unstable();
            Replica { name, exchange: Exchange::default(), issued, report, connected }
        }

        fn uncovered(&self) -> Vec<u64> {
            self.connected.iter().copied().filter(|workload| !self.issued.holds(*workload)).collect()
        }

        fn round(&mut self, other: &Replica) {
            let uncovered = self.uncovered();
            let others = [(other.name, &other.report)];
            let (asks, answers) = self.exchange.round((self.name, STAGE), &others, &uncovered, &self.issued);
            assert!(asks.len() <= WINDOW * DIGITS);
            (self.report.asks, self.report.answers) = (asks, answers);
        }
    }

    fn workloads(count: u32) -> Vec<(String, std::net::IpAddr)> {
        (0..count).map(|n| (format!("spiffe://{n}"), std::net::Ipv4Addr::from(n).into())).collect()
    }

    #[test]
    fn certificates_from_another_replica_count() {
        let all = workloads(2000);
        let keys: Vec<u64> = all.iter().map(|(identity, address)| ca::workload(identity, *address)).collect();
        let (mut one, mut two) = (Replica::new("one", &keys), Replica::new("two", &[]));
        let now = Instant::now();
        for (index, (identity, address)) in all.iter().enumerate() {
            let signer = if index % 2 == 0 { &one } else { &two };
            // The last one never renews.
            if index + 1 < all.len() {
                signer.issued.record(identity, *address, now, None);
            }
        }
        for _ in 0..20 {
            one.round(&two);
            two.round(&one);
        }
        assert_eq!(one.uncovered(), [keys[1999]]);
    }

    #[test]
    fn answers_of_a_replica_at_another_stage_are_ignored() {
        let [(identity, address)] = &workloads(1)[..] else { panic!() };
        let key = ca::workload(identity, *address);
        let (mut one, mut two) = (Replica::new("one", &[key]), Replica::new("two", &[]));
        two.issued.record(identity, *address, Instant::now(), None);
        two.report.stage = "settled-a".into();
        for _ in 0..4 {
            one.round(&two);
            let asks = one.report.asks.clone();
            two.report.answers = BTreeMap::from([("one".to_owned(), answer(&asks, &two.issued))]);
        }
        assert_eq!(one.uncovered(), [key]);
    }

    #[test]
    fn an_unreadable_answer_covers_no_workload() {
        for bits in ["", "zz", "é", "f"] {
            assert!(signed_workloads(&[1, 2, 3, 4, 5], bits).count() <= 5);
        }
        assert_eq!(signed_workloads(&[1, 2, 3], "05").collect::<Vec<_>>(), [1, 3]);
        let odd = answer("xyz", &IssuedCertificates::default());
        assert_eq!(odd.signed, "00");
    }
}
