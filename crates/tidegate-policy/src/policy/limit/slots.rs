//! `slots`: a maximum in flight at once.

use std::fmt::Write;
use std::time::Duration;

use toml::de::DeValue;

use super::written::{WrittenNumber, fixed_value, none, optional_number, required_number};
use super::{Algorithm, Limit, LimitRead};
use crate::policy::Charging;
use crate::policy::fields::{
    COUNT, MOST_QUEUE, QUEUE, Section, ValueKind, WAIT, optional, required,
};
use crate::policy::parse::reader::TableReader;
use crate::policy::text::{LONGEST, format_duration};
use crate::policy::write::values::{duration, text};

/// A maximum in flight, and a queue for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    pub(crate) max: u64,
    pub(crate) queue: usize,
    pub(crate) wait: Option<Duration>,
    pub(crate) expires: Duration,
    pub(crate) priority: Option<Box<str>>,
}

impl Slots {
    /// The default length of the queue.
    pub const DEFAULT_QUEUE: usize = 1_024;

    /// The default time after which an unrenewed slot expires.
    pub const DEFAULT_EXPIRES: Duration = Duration::from_secs(600);

    /// At most `max` in flight. Zero is rejected when the policy is built.
    #[must_use]
    pub const fn new(max: u64) -> Self {
        let (queue, expires) = (Self::DEFAULT_QUEUE, Self::DEFAULT_EXPIRES);
        Self { max, queue, wait: None, expires, priority: None }
    }

    /// The same slots with another length of the queue; 0: no queue.
    #[must_use]
    pub fn queue(self, queue: usize) -> Self {
        Self { queue, ..self }
    }

    /// The same slots with a longest wait in the queue; 584 years at most.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait.min(LONGEST)), ..self }
    }

    /// The same slots, which expire when they are not renewed for this long; 584 years at most.
    #[must_use]
    pub fn expires(self, expires: Duration) -> Self {
        Self { expires: expires.min(LONGEST), ..self }
    }

    /// The same slots, for which the higher integer in this attribute goes first.
    #[must_use]
    pub fn priority(self, attribute: &str) -> Self {
        Self { priority: Some(attribute.into()), ..self }
    }

    /// The maximum in flight.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The length of the queue.
    #[must_use]
    pub const fn queue_len(&self) -> usize {
        self.queue
    }

    /// The longest wait in the queue, unless the caller sets one.
    #[must_use]
    pub const fn longest_wait(&self) -> Option<Duration> {
        self.wait
    }

    /// The time after which an unrenewed slot expires.
    #[must_use]
    pub const fn expiry(&self) -> Duration {
        self.expires
    }

    /// The attribute whose higher integer goes first.
    #[must_use]
    pub fn priority_attribute(&self) -> Option<&str> {
        self.priority.as_deref()
    }
}

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    field: optional("slots", ValueKind::Table(&SECTION)).about("A maximum in flight at once."),
    overridable: &["max", "queue", "wait", "expires"],
    read,
};

static SECTION: Section = Section {
    name: "slots",
    fields: &[
        required("max", COUNT).about("The maximum in flight."),
        optional("queue", QUEUE).about("The length of the queue. Default: 1024."),
        optional("wait", WAIT)
            .about("The longest wait in the queue. Default: \"none\", no deadline."),
        optional("expires", ValueKind::Duration)
            .about("When an unrenewed slot expires. Default: \"10m\"."),
        optional("priority", ValueKind::Text).about("An attribute: the higher integer goes first."),
    ],
};

fn read(numbers: &mut TableReader<'_, '_>, _: Charging) -> LimitRead {
    let (max, queue) = (numbers.integer("max"), numbers.integer("queue"));
    let wait = match numbers.value("wait").map(|it| it.get_ref()) {
        Some(DeValue::String(text)) if text == "none" => None,
        _ => numbers.duration("wait"),
    };
    let expires = numbers.duration("expires").unwrap_or(Slots::DEFAULT_EXPIRES);
    let priority = numbers.of_rule().text("priority").map(Into::into);
    let queue = queue.map_or(Slots::DEFAULT_QUEUE, |it| usize::try_from(it).unwrap_or(usize::MAX));
    Some(Ok(Limit::Slots(Slots { max: max?, queue, wait, expires, priority })))
}

pub(super) fn numbers(slots: &Slots) -> Vec<WrittenNumber> {
    let mut numbers = vec![
        required_number("max", slots.max.to_string()),
        optional_number("queue", slots.queue.to_string(), Slots::DEFAULT_QUEUE.to_string()),
        optional_number("wait", slots.wait.map_or_else(none, duration), none()),
        optional_number("expires", duration(slots.expires), duration(Slots::DEFAULT_EXPIRES)),
    ];
    numbers.extend(slots.priority.as_ref().map(|it| fixed_value("priority", text(it))));
    numbers
}

pub(super) fn describe(slots: &Slots) -> String {
    let mut text = format!("At most {} in flight at once.", slots.max);
    if slots.queue == 0 {
        text += " There is no queue.";
    } else {
        let order = match &slots.priority {
            Some(attribute) => format!("the higher `{attribute}` first, then in order of arrival"),
            None => "in order of arrival".into(),
        };
        let wait = match slots.wait {
            Some(wait) => format!("for at most {}", format_duration(wait)),
            None => "without a deadline".into(),
        };
        let _ = write!(text, " Up to {} wait in the queue, {order}, {wait}.", slots.queue);
    }
    let _ =
        write!(text, " A slot that is not renewed for {} expires.", format_duration(slots.expires));
    text
}

/// Why a file cannot have it.
pub(super) fn unwritable(slots: &Slots) -> Option<&'static str> {
    if u64::try_from(slots.queue).is_ok_and(|it| it > MOST_QUEUE) {
        return Some("`queue` is above 4294967295");
    }
    let priority = slots.priority.as_ref().filter(|name| name.trim().is_empty());
    priority.map(|_| "the name of the attribute for `priority` is empty")
}
