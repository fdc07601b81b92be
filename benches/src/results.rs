//! The results of a run.

use crate::contenders::Who;
use crate::measure::Cell;

/// The unit of a row's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds per decision and thread.
    Nanos,
    /// Microseconds of the slowest single call.
    Micros,
    /// Bytes of resident memory per key.
    Bytes,
    /// Mebibytes of resident memory.
    Mebibytes,
    /// A plain number.
    Count,
}

impl Unit {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Nanos => "ns",
            Unit::Micros => "µs",
            Unit::Bytes => "B/key",
            Unit::Mebibytes => "MiB",
            Unit::Count => "",
        }
    }
}

/// One measured row.
#[derive(Clone, Debug)]
pub struct Row {
    /// A short name, which `--only` and the targets use.
    pub id: String,
    /// The title.
    pub title: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The values of the contenders.
    pub cells: Vec<Cell>,
}

impl Row {
    /// A contender's value.
    pub fn value(&self, who: Who) -> Option<f64> {
        self.cells.iter().find(|cell| cell.who == who).map(|cell| cell.value)
    }

    /// How many times smaller the value of `who` is than that of `than`.
    pub fn ratio(&self, who: Who, than: Who) -> Option<f64> {
        let (mine, theirs) = (self.value(who)?, self.value(than)?);
        (mine > 0.0).then(|| theirs / mine)
    }
}

/// All rows of a run.
#[derive(Debug, Default)]
pub struct Results {
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
}

impl Results {
    /// The row with that short name.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_how_many_times_faster() {
        let cells = vec![Cell::single(Who::Growing, 20.0), Cell::single(Who::Governor, 50.0)];
        let row = Row { id: "r".into(), title: "row".into(), unit: Unit::Nanos, cells };
        assert_eq!(row.ratio(Who::Growing, Who::Governor), Some(2.5));
        assert_eq!(row.ratio(Who::Growing, Who::Quota), None);
    }
}
