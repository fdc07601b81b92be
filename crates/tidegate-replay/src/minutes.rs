//! The minutes with the most denials.

use crate::series::Bucket;

/// A minute with many denials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorstMinute {
    /// When it begins, in seconds since 1970.
    pub start_s: u64,
    /// What happened in it.
    pub bucket: Bucket,
}

/// The minutes with the most denials so far.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    now: u64,
    bucket: Bucket,
    worst: Vec<WorstMinute>,
}

impl Minutes {
    #[inline]
    pub(crate) fn add(&mut self, second: u64, what: Bucket) {
        let minute = second / 60;
        if minute != self.now {
            self.end();
            (self.now, self.bucket) = (minute, Bucket::default());
        }
        self.bucket.allowed += what.allowed;
        self.bucket.denied += what.denied;
        self.bucket.shadow_denied += what.shadow_denied;
    }

    /// Adds the minute that is over to the worst ones, if it is one.
    fn end(&mut self) {
        if self.bucket.denied + self.bucket.shadow_denied == 0 {
            return;
        }
        self.worst.push(WorstMinute { start_s: self.now * 60, bucket: self.bucket });
        if self.worst.len() > 2 * MOST_MINUTES {
            sort_minutes(&mut self.worst);
        }
    }

    pub(crate) fn worst(&self) -> Vec<WorstMinute> {
        let mut all = Self { worst: self.worst.clone(), ..*self };
        all.end();
        sort_minutes(&mut all.worst);
        all.worst
    }
}

/// Keeps the worst ones, of equal ones the earliest.
fn sort_minutes(minutes: &mut Vec<WorstMinute>) {
    minutes.sort_by_key(|it| {
        (std::cmp::Reverse((it.bucket.denied, it.bucket.shadow_denied)), it.start_s)
    });
    minutes.truncate(MOST_MINUTES);
}

const MOST_MINUTES: usize = 10;
