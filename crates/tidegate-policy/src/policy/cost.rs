use super::Pattern;
use crate::attributes::Attributes;

/// The cost of a request: by the value of an attribute, or fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    /// The attribute; empty where the cost is fixed (no attribute has an empty name).
    pub(crate) by: Box<str>,
    pub(crate) rows: Vec<(Pattern, u64)>,
}

impl CostTable {
    /// The same cost for every request, in place of the request's own.
    #[must_use]
    pub fn fixed(cost: u64) -> Self {
        Self { by: "".into(), rows: vec![(Pattern::Glob("*".into()), cost)] }
    }

    /// A cost by the value of an attribute. Rows are added with [`row`](Self::row).
    #[must_use]
    pub fn by(attribute: &str) -> Self {
        Self { by: attribute.into(), rows: Vec::new() }
    }

    /// The same table with one more row. The first row that matches a value counts.
    #[must_use]
    pub fn row(mut self, pattern: Pattern, cost: u64) -> Self {
        self.rows.push((pattern, cost));
        self
    }

    /// The attribute that decides; `None` where the cost is fixed.
    #[must_use]
    pub fn attribute(&self) -> Option<&str> {
        Some(&*self.by).filter(|by| !by.is_empty())
    }

    /// The cost for a value; `None` if no row covers it.
    #[must_use]
    pub fn cost(&self, value: &str) -> Option<u64> {
        self.rows.iter().find(|(pattern, _)| pattern.matches(value)).map(|(_, cost)| *cost)
    }

    /// The cost of a request; `None` if the attribute is absent or no row covers its value.
    #[must_use]
    pub fn cost_of(&self, attributes: &Attributes<'_>) -> Option<u64> {
        match self.attribute() {
            Some(attribute) => self.cost(attributes.get(attribute)?),
            None => self.cost(""),
        }
    }
}
