//! Why requests are denied: explanations, usage, recent denials.

use serde_json::Value;
use tidegate::{CheckError, Request};

use super::edits::{attributes, domain, named, nothing_else};
use super::{AdminError, Payload, plain};
use crate::body::DecisionId;
use crate::body::explanation::explained_request;
use crate::body::usage::UsageBody;
use crate::daemon::Daemon;
use crate::traffic::DenialFilter;

/// `POST explain`
pub(super) async fn explain(daemon: &Daemon, payload: Payload) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let cost = match table.remove("cost") {
        None => 1,
        Some(cost) => {
            cost.as_u64().ok_or_else(|| AdminError::unfit("`cost` is not a whole number"))?
        }
    };
    let (domain, attributes) = (domain(&mut table)?, attributes(&mut table)?);
    nothing_else(&table)?;
    let named = named(&attributes);
    let request = Request::with_attributes(&domain, named.attributes()).cost(cost);
    let now = daemon.engine.clock().wall();
    let explanation = daemon.engine.explain(&request).await.map_err(undecided)?;
    Ok(explained_request(&request, cost, &explanation, now).into())
}

/// `POST usage`
pub(super) async fn usage(daemon: &Daemon, payload: Payload) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let (domain, attributes) = (domain(&mut table)?, attributes(&mut table)?);
    nothing_else(&table)?;
    let named = named(&attributes);
    let request = Request::with_attributes(&domain, named.attributes());
    let usage = daemon.engine.usage(&request).await.map_err(undecided)?;
    Ok(serde_json::to_value(UsageBody::new(&usage)).unwrap_or_default())
}

/// `GET denials`
pub(super) fn denials(daemon: &Daemon, query: &str) -> Result<Value, AdminError> {
    let (filter, limit) = parse_denials(query)?;
    Ok(daemon.traffic.denials.list(&filter, limit.unwrap_or(DEFAULT_LIMIT)))
}

fn parse_denials(query: &str) -> Result<(DenialFilter, Option<usize>), AdminError> {
    let (mut filter, mut limit) = (DenialFilter::default(), None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let unfit = |what: &str| {
            AdminError::unfit(format!("{}: {value:?} is not {what}", name.escape_debug()))
        };
        let value = plain(value).ok_or_else(|| unfit("text in percent encoding"))?;
        if value.is_empty() && PARAMETERS.contains(&name) {
            continue;
        }
        match name {
            "decision_id" => {
                let id = DecisionId::of_digits(value.trim());
                filter.id = Some(id.ok_or_else(|| unfit("16 hexadecimal digits"))?);
            }
            "domain" => filter.domain = Some(value),
            "rule" => filter.rule = Some(value),
            "text" => filter.text = Some(value),
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=MOST_LIMIT).contains(limit));
                limit = Some(number.ok_or_else(|| unfit("a number from 1 to 1000"))?);
            }
            _ => {
                let known = PARAMETERS.join(", ");
                return Err(AdminError::unfit(format!("unknown parameter {pair:?}; use {known}")));
            }
        }
    }
    Ok((filter, limit))
}

fn undecided(error: CheckError) -> AdminError {
    match error {
        CheckError::Outage(_) => AdminError::new(503, "Service Unavailable", error.to_string()),
        other => AdminError::unfit(other.to_string()),
    }
}

const PARAMETERS: [&str; 5] = ["decision_id", "domain", "rule", "text", "limit"];
const DEFAULT_LIMIT: usize = 100;
const MOST_LIMIT: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::{DecisionId, parse_denials};

    #[test]
    fn a_query_of_denials_is_read_strictly() {
        let query = "decision_id=00000000000000ff&domain=a%26b&text=&limit=7";
        let (filter, limit) = parse_denials(query).unwrap();
        assert_eq!(filter.id, DecisionId::of_digits("00000000000000ff"));
        assert_eq!((filter.domain.as_deref(), filter.text, limit), (Some("a&b"), None, Some(7)));
        for wrong in ["decision_id=ff", "decision_id=+0000000000000ff", "limit=0", "limit=x", "x=1"]
        {
            assert!(parse_denials(wrong).is_err(), "{wrong}");
        }
    }
}
