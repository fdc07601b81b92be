//! Several requests, decided one after the other: all of them are planned first, so that the memory
//! of all their keys is on its way before the first is decided.

use std::array;

use super::decide::{Verb, When};
use super::plain::{PlainRequest, decide_list};
use super::report::Report;
use super::ruleset::Ruleset;
use super::{CheckError, StoreEngine};
use crate::periods::Times;
use crate::plan::ChargeList;
use crate::request::Request;
use crate::store::Answer;

impl StoreEngine {
    /// Decides requests independently, in their order.
    pub(super) fn check_each(
        &self,
        requests: &[Request<'_>],
        when: When,
    ) -> Vec<Answer<Result<Report, CheckError>>> {
        let mut decided = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            self.check_batch(batch, when, &mut decided);
        }
        decided
    }

    /// Decides up to [`BATCH`] requests.
    fn check_batch(
        &self,
        batch: &[Request<'_>],
        when: When,
        decided: &mut Vec<Answer<Result<Report, CheckError>>>,
    ) {
        let rules = self.shared.rules.load();
        let times = self.times_when(&rules, when);
        // A request that is not plain has an empty list.
        let mut lists: [ChargeList; BATCH] = array::from_fn(|_| array::from_fn(|_| None));
        for (list, request) in lists.iter_mut().zip(batch) {
            let plain = PlainRequest::new(self, &rules, request, Some(times));
            if plain.is_some_and(|mut plain| !plain.plan(list)) {
                list.fill(None);
            }
        }
        for (list, request) in lists.iter().zip(batch) {
            decided.push(self.check_planned(request, &rules, list, when, times));
        }
    }

    /// Decides a request with its charges, if it is plain, under these rules.
    #[inline(always)]
    fn check_planned(
        &self,
        request: &Request<'_>,
        rules: &Ruleset,
        list: &ChargeList,
        when: When,
        times: Times,
    ) -> Answer<Result<Report, CheckError>> {
        let requests = std::slice::from_ref(request);
        let mut report = Report::new(&self.shared.rules);
        let parts = report.body.plain_parts();
        // An edit may have come since it was planned.
        let parts = parts.filter(|parts| std::ptr::eq(parts.rules, rules));
        let table = self.shared.store.fast_table();
        match table.zip(parts).map(|(table, parts)| decide_list(table, parts, list, times)) {
            Some(Ok(is_allowed)) => {
                if !is_allowed {
                    self.correct_wait(&mut report, requests, Verb::Check, when, times);
                }
                Answer::Ready(Ok(report))
            }
            _ => {
                report.body.decisions.clear();
                self.decide_planned(report, requests, Verb::Check, when)
            }
        }
    }
}

/// As many keys as memory is fetched for at once.
const BATCH: usize = 16;
