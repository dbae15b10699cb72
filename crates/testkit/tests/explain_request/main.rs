//! `meltemi explain request` beside real Envoys: random meshes, random requests; what the explanation predicts and what is answered are equal.

mod app;
mod mesh;
mod random;

use std::time::Instant;

use anyhow::Result;
use explain::{ExplainedRequest, Explanation, HopSide, Payload, RequestEnding, RequestOutcome, RequestVerdict, Token};
use mesh::{EDGE, LiveMesh, Served, address_of, server_at};
use random::RandomRequest;
use testkit::http_client::{HttpRequest, HttpResponse};
use testkit::random::Random;
use testkit::token::JwtIssuer;
use testkit::{environment, netns, say, server, skip};

/// Requests to each random mesh.
const PER_ROUND: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_envoy_answers_as_explained() {
    if let Some(why) = netns::missing() {
        return skip(&format!("explained requests: {why}"));
    }
    if environment::envoy().is_none() {
        return skip("explained requests: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    server::program().unwrap();
    let began = Instant::now();
    let mut mesh = LiveMesh::start().await.unwrap();
    let (wanted, seed) = environment::explained_requests();
    let compared = compare(&mesh, wanted, seed).await.unwrap_or_else(|e| panic!("{e:#}\n{}", mesh.logs()));
    let Compared { requests, certain, answered, wrong } = compared;
    say(&format!(
        "explained requests: {requests}, of which {certain} have one possible answer and {answered} are answered; {} differ ({:.1} s)",
        wrong.len(),
        began.elapsed().as_secs_f32()
    ));
    assert!(wrong.is_empty(), "{} of {requests} differ:\n{}", wrong.len(), wrong[..wrong.len().min(3)].join("\n\n"));
    assert!(
        certain * 2 > requests && answered * 5 > requests && answered < requests,
        "the pools tell nothing: {certain} {answered}"
    );
}

#[derive(Default)]
struct Compared {
    requests: usize,
    certain: usize,
    answered: usize,
    wrong: Vec<String>,
}

async fn compare(mesh: &LiveMesh, wanted: usize, seed: u64) -> Result<Compared> {
    let (mut random, issuer) = (Random::new(seed), JwtIssuer::default());
    let mut compared = Compared::default();
    for number in 0..wanted.div_ceil(PER_ROUND) {
        let round = random::round(&mut random, number, &issuer);
        let served = Served::of(&round.objects)?;
        mesh.apply(&round.objects, number).await?;
        for _ in 0..PER_ROUND {
            let request = random::request(&mut random);
            let explanation = explained(&request, &served);
            let answer = mesh.send(request.from_outside, real(&request, &issuer)).await;
            compared.requests += 1;
            compared.certain += usize::from(explanation.endings.len() == 1);
            compared.answered += usize::from(explanation.verdict == RequestVerdict::Answered);
            let depends = explanation.verdict == RequestVerdict::Depends;
            if depends || !explanation.endings.iter().any(|ending| is_ending(ending, &answer)) {
                let objects: Vec<String> = round.objects.iter().map(ToString::to_string).collect();
                let shown = answer.map(|it| format!("{} {:?} {:?}", it.status, it.body, it.headers));
                let request = format!(
                    "{} {} {} {:?} {:?}",
                    request.method, request.host, request.path, request.headers, request.claims
                );
                compared.wrong.push(format!(
                    "round {number}: {request}\nEnvoy: {shown:?}\nexplained: {}\n{}",
                    explanation.text(),
                    objects.join("\n")
                ));
            }
        }
    }
    Ok(compared)
}

fn explained(request: &RandomRequest, served: &Served) -> Explanation {
    let headers = request.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let host = ("host".to_owned(), request.host.clone());
    let token = match request.claims.as_ref().and_then(|it| it.as_object()) {
        Some(claims) => Token::Valid(claims.clone()),
        None => Token::Absent,
    };
    let explained_request = ExplainedRequest {
        host: request.host.clone(),
        port: if request.from_outside { 8080 } else { 80 },
        address: (!request.from_outside).then(|| address_of(request.service).into()),
        payload: Payload::Http {
            method: request.method.to_owned(),
            path: request.path.clone(),
            headers: headers.chain([host]).collect(),
        },
        token,
        source: request.from_outside.then_some(mesh::OUTSIDE.into()),
        server_name: None,
        certificate: None,
    };
    let (from, side) =
        if request.from_outside { (&served.edge, HopSide::Gateway) } else { (&served.client, HopSide::Client) };
    explain::explain(&explained_request, from, side, &mut |ip| served.at(ip))
}

fn real(request: &RandomRequest, issuer: &JwtIssuer) -> HttpRequest {
    let at = if request.from_outside { (EDGE, 8080) } else { (address_of(request.service), 80) };
    let mut real = HttpRequest::new(at.into(), &request.host, &request.path);
    real.method = request.method.parse().expect("a method");
    real.headers.clone_from(&request.headers);
    if let Some(claims) = &request.claims {
        real = real.with("authorization", format!("Bearer {}", issuer.token(claims)));
    }
    real
}

/// Whether an answer is that of this ending: status, server, and the path and host that the server saw.
fn is_ending(ending: &RequestEnding, answer: &Result<HttpResponse>) -> bool {
    let Ok(answer) = answer else {
        return matches!(ending.outcome, RequestOutcome::Closed { .. } | RequestOutcome::Blackholed { .. });
    };
    let header = |name: &str| answer.headers.get(name).and_then(|it| it.to_str().ok());
    match &ending.outcome {
        RequestOutcome::Served { endpoints, path, authority, .. } => {
            answer.status == 200
                && endpoints.iter().filter_map(|it| server_at(it)).any(|name| name == answer.body)
                && header(app::PATH) == path.as_deref()
                && header(app::HOST) == authority.as_deref()
        }
        RequestOutcome::Replied { status, location, .. } => {
            u32::from(answer.status.as_u16()) == *status
                && header(app::PATH).is_none()
                && (location.is_none() || header("location") == location.as_deref())
        }
        RequestOutcome::Passthrough { .. } => answer.body == "outside",
        RequestOutcome::Blackholed { .. } | RequestOutcome::Closed { .. } => answer.status.is_server_error(),
    }
}
