//! Metadata of responses: what was decided, for Envoy's filters after the one for rate limits.

use std::sync::Arc;

use tidegate::Report;
use tidegate::policy::{Metadata, MetadataValue};
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_proto::rls::value::Kind;
use tidegate_proto::rls::{
    ListValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Struct, Value,
};

use super::Entries;
use super::response::status;
use crate::daemon::Daemon;

/// The status of a descriptor, and the metadata of the rule that allowed it.
#[derive(Clone, Debug, Default)]
pub(super) struct DescribedStatus {
    pub(super) status: DescriptorStatus,
    metadata: Option<Arc<Metadata>>,
}

impl DescribedStatus {
    /// Of a descriptor, by its index.
    pub(super) fn new(daemon: &Daemon, report: &Report, index: usize) -> Self {
        Self::of(daemon, report, index, status(report, index))
    }

    pub(super) fn of(
        daemon: &Daemon,
        report: &Report,
        index: usize,
        status: DescriptorStatus,
    ) -> Self {
        let is_wanted = daemon.settings.response_metadata && status.code() == Code::Ok;
        let metadata = || report.details().rules_of(index).find_map(|rule| rule.metadata.cloned());
        Self { metadata: is_wanted.then(metadata).flatten(), status }
    }
}

/// The metadata of all descriptors that are allowed, as the field of a response. Of values with the
/// same name the first counts.
pub(super) fn merged(statuses: &[DescribedStatus]) -> Option<Struct> {
    let mut merged = Metadata::default();
    for metadata in statuses.iter().filter_map(|it| it.metadata.as_deref()) {
        merged.merge(metadata);
    }
    (!merged.is_empty()).then(|| fields([(METADATA, table(&merged))]))
}

/// Adds the call to the metadata of its response.
pub(super) fn complete(
    response: &mut RateLimitResponse,
    call: &RateLimitRequest,
    domain: &str,
    entries: &[Entries<'_>],
) {
    let descriptors = call.descriptors.iter().zip(entries).map(|it| descriptor(it.0, it.1));
    let of_call = [("domain", text(domain)), ("descriptors", list(descriptors))];
    let hits = (call.hits_addend != 0).then(|| (HITS, number(f64::from(call.hits_addend))));
    let added = fields(of_call.into_iter().chain(hits));
    response.dynamic_metadata.get_or_insert_default().fields.extend(added.fields);
}

fn descriptor(descriptor: &RateLimitDescriptor, entries: &Entries<'_>) -> Value {
    let entries = entries.iter().map(|(key, value)| text(&format!("{key}={value}")));
    let limit = descriptor.limit.as_ref().map(|limit| {
        let unit = limit.unit().as_str_name();
        let limit = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        ("limit", text(&limit))
    });
    #[allow(clippy::cast_precision_loss, reason = "protobuf's values have 64-bit floats only")]
    let hits = descriptor.hits_addend.map(|hits| (HITS, number(hits as f64)));
    let all = [("entries", list(entries))].into_iter().chain(limit).chain(hits);
    Kind::StructValue(fields(all)).into()
}

fn table(metadata: &Metadata) -> Value {
    Kind::StructValue(fields(metadata.iter().map(|(name, it)| (name, value(it))))).into()
}

fn value(it: &MetadataValue) -> Value {
    match it {
        MetadataValue::Bool(is_true) => Kind::BoolValue(*is_true).into(),
        MetadataValue::Number(it) => number(it.get()),
        MetadataValue::Text(it) => text(it),
        MetadataValue::List(items) => list(items.iter().map(value)),
        MetadataValue::Table(it) => table(it),
    }
}

fn fields<'n>(values: impl IntoIterator<Item = (&'n str, Value)>) -> Struct {
    Struct { fields: values.into_iter().map(|(name, value)| (name.into(), value)).collect() }
}

fn list(values: impl IntoIterator<Item = Value>) -> Value {
    Kind::ListValue(ListValue { values: values.into_iter().collect() }).into()
}

fn text(text: &str) -> Value {
    Kind::StringValue(text.into()).into()
}

fn number(number: f64) -> Value {
    Kind::NumberValue(number).into()
}

const METADATA: &str = "metadata";
const HITS: &str = "hitsAddend";
