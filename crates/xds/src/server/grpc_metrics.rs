//! The metrics of gRPC calls, under the names of go-grpc-prometheus, which istiod uses.

use std::sync::OnceLock;

use prometheus::{IntCounter, IntCounterVec};

use crate::{Register, Variant, server::stream_error::Code};

const SERVICE: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

pub(crate) struct GrpcMetrics {
    started: IntCounterVec,
    handled: IntCounterVec,
    received: IntCounterVec,
    sent: IntCounterVec,
    /// Series that every message updates: a lookup by label takes longer than the update.
    received_by_variant: [OnceLock<IntCounter>; 2],
    sent_by_variant: [OnceLock<IntCounter>; 2],
}

impl GrpcMetrics {
    pub(crate) fn new(on: &Register) -> Result<GrpcMetrics, prometheus::Error> {
        let call = ["grpc_type", "grpc_service", "grpc_method"];
        let handled = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
        Ok(GrpcMetrics {
            started: on.counters("grpc_server_started_total", "gRPC calls started", &call)?,
            handled: on.counters("grpc_server_handled_total", "gRPC calls completed, by status code", &handled)?,
            received: on.counters("grpc_server_msg_received_total", "gRPC messages received", &call)?,
            sent: on.counters("grpc_server_msg_sent_total", "gRPC messages sent", &call)?,
            received_by_variant: Default::default(),
            sent_by_variant: Default::default(),
        })
    }

    pub(crate) fn count_started(&self, variant: Variant) {
        self.started.with_label_values(&call_labels(variant)).inc();
    }

    pub(crate) fn count_handled(&self, variant: Variant, code: Code) {
        let [kind, service, method] = call_labels(variant);
        self.handled.with_label_values(&[kind, service, method, code.label()]).inc();
    }

    pub(crate) fn count_received(&self, variant: Variant) {
        let received = || self.received.with_label_values(&call_labels(variant));
        self.received_by_variant[variant as usize].get_or_init(received).inc();
    }

    pub(crate) fn count_sent(&self, variant: Variant) {
        let sent = || self.sent.with_label_values(&call_labels(variant));
        self.sent_by_variant[variant as usize].get_or_init(sent).inc();
    }
}

fn call_labels(variant: Variant) -> [&'static str; 3] {
    let method = match variant {
        Variant::Sotw => "StreamAggregatedResources",
        Variant::Delta => "DeltaAggregatedResources",
    };
    ["bidi_stream", SERVICE, method]
}
