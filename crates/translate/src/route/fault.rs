//! Fault injection: delays and aborts of a share of the requests.

use config::kinds::virtual_service::{
    AbortError, DelayTime, GRPC_STATUS, HttpFaultAbort, HttpFaultDelay, HttpFaultInjection,
};
use wire::any;
use wire::envoy::extensions::filters::common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier};
use wire::envoy::extensions::filters::http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType};
use wire::google::protobuf::Any;

use crate::fraction;
use crate::proto::duration;

pub(super) const FILTER: &str = "envoy.filters.http.fault";

/// What Envoy does not support (exponential delays, HTTP/2 errors) is left out.
pub(super) fn config(fault: &HttpFaultInjection) -> Any {
    any::pack(&HttpFault {
        delay: fault.delay.as_ref().and_then(delay),
        abort: fault.abort.as_ref().and_then(abort),
        ..HttpFault::default()
    })
}

fn delay(delay: &HttpFaultDelay) -> Option<FaultDelay> {
    let Some(DelayTime::Fixed(time)) = &delay.time else { return None };
    if *time <= config::duration::Duration::ZERO {
        return None;
    }
    let whole = || fraction::whole(u32::try_from(delay.percent).unwrap_or_default());
    Some(FaultDelay {
        percentage: Some(delay.percentage.map_or_else(whole, fraction::precise)),
        fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(time))),
    })
}

fn abort(abort: &HttpFaultAbort) -> Option<FaultAbort> {
    let error = match abort.error.as_ref()? {
        // Envoy rejects the whole route configuration for a status out of this range.
        AbortError::HttpStatus(status) => {
            ErrorType::HttpStatus(u32::try_from(*status).ok().filter(|status| (200..600).contains(status))?)
        }
        AbortError::GrpcStatus(name) => ErrorType::GrpcStatus(grpc_status(name)?),
        AbortError::Http2Error(_) => return None,
    };
    Some(FaultAbort {
        percentage: abort.percentage.map(fraction::precise),
        error_type: Some(error),
        ..FaultAbort::default()
    })
}

fn grpc_status(name: &str) -> Option<u32> {
    GRPC_STATUS.iter().position(|known| *known == name).and_then(|code| u32::try_from(code).ok())
}
