//! Which attributes of requests are read from a log, and from which fields.

use tidegate::policy::EncodedSlash;
use tidegate::policy::{Policy, Rule};

/// A field that every format of access logs has, if it has it at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandardField {
    Ip,
    User,
    Method,
    Path,
    Host,
    Status,
    Bytes,
    Agent,
    Referer,
}

/// The names of the fields that access logs have: attributes of requests are called the same.
pub const STANDARD_FIELDS: [&str; 9] =
    ["ip", "user", "method", "path", "host", "status", "bytes", "agent", "referer"];

impl StandardField {
    const ALL: [Self; 9] = [
        Self::Ip,
        Self::User,
        Self::Method,
        Self::Path,
        Self::Host,
        Self::Status,
        Self::Bytes,
        Self::Agent,
        Self::Referer,
    ];

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let index = STANDARD_FIELDS.iter().position(|known| *known == name)?;
        Self::ALL.get(index).copied()
    }

    /// Whether a value is a whole number, or there is none.
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Status | Self::Bytes)
    }
}

/// A field of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName {
    /// Its name in JSON or CSV.
    pub(crate) name: Box<str>,
    /// What it is in logs of other formats, if it is in them.
    pub(crate) standard: Option<StandardField>,
    /// Whether the name was given, rather than taken from the attribute.
    pub(crate) is_given: bool,
}

/// An attribute that is read from every line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedAttribute {
    pub(crate) name: Box<str>,
    pub(crate) field: FieldName,
    /// Whether it is the path of a request, which gets its normal form.
    pub(crate) is_path: bool,
}

/// The attributes that are read from every line: those that the rules of a domain read.
#[derive(Clone, Debug)]
pub struct AttributePlan {
    pub(crate) attributes: Vec<PlannedAttribute>,
    pub(crate) encoded_slash: EncodedSlash,
}

impl AttributePlan {
    /// The attributes that rules of these domains read. `given` maps attributes to fields.
    ///
    /// In a domain of descriptors (files of envoyproxy/ratelimit) the given
    /// attributes are the entries of the descriptor, in their order, as they are written.
    #[must_use]
    pub fn new(domains: &[(&Policy, &str)], given: &[(String, String)]) -> Self {
        let encoded_slash =
            domains.last().map_or_else(EncodedSlash::default, |it| it.0.settings().encoded_slash());
        let mut plan = Self { attributes: Vec::new(), encoded_slash };
        for (policy, domain) in domains {
            if policy.reads_descriptors(domain) {
                given.iter().for_each(|(name, field)| plan.add(name, Some(field), false));
                continue;
            }
            for rule in policy.rules().iter().filter(|rule| rule.domain() == *domain) {
                for name in names(rule) {
                    let field = given.iter().find(|(known, _)| known == name);
                    plan.add(name, field.map(|(_, field)| field.as_str()), true);
                }
            }
        }
        plan
    }

    /// Adds the attribute `name` if it is not there.
    fn add(&mut self, name: &str, field: Option<&str>, is_normal: bool) {
        if self.attributes.iter().any(|known| &*known.name == name) {
            return;
        }
        let field_name = field.unwrap_or(name);
        let field = FieldName {
            name: field_name.into(),
            standard: StandardField::by_name(field_name),
            is_given: field.is_some(),
        };
        self.attributes.push(PlannedAttribute {
            name: name.into(),
            field,
            is_path: is_normal && name == "path",
        });
    }

    /// The same, with a field that is the cost of requests; its index among the values.
    #[must_use]
    pub fn with_cost(mut self, field: &str) -> (Self, usize) {
        let standard = StandardField::by_name(field);
        let field = FieldName { name: field.into(), standard, is_given: true };
        // No attribute of a policy has an empty name.
        self.attributes.push(PlannedAttribute { name: "".into(), field, is_path: false });
        let index = self.attributes.len() - 1;
        (self, index)
    }

    /// The names of the attributes, in the order of the values of a record.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.attributes.iter().map(|it| &*it.name)
    }
}

/// The attributes that a rule reads.
fn names(rule: &Rule) -> impl Iterator<Item = &str> {
    let conditions = rule.conditions().iter().map(|condition| condition.attribute());
    let key = rule.key().parts().iter().map(|part| part.attribute());
    let cost = rule.cost().and_then(|cost| cost.attribute());
    conditions.chain(key).chain(cost)
}
