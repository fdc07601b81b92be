use core::error::Error;
use core::fmt;

/// Why a limit could not be built: which number is wrong, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LimitError {
    field: &'static str,
    problem: LimitErrorKind,
}

/// What is wrong with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitErrorKind {
    /// It is zero. Zero never means "unlimited".
    Zero,
    /// It is above the largest value that this field can have.
    AboveMax {
        /// The largest value that is accepted.
        max: u128,
    },
    /// Exact arithmetic on it would not fit the state; the hint is what has to be smaller.
    NotExact {
        /// What to change.
        hint: &'static str,
    },
    /// It is a text that is not a decimal number.
    NotDecimal,
    /// It is a text that is not a count per time.
    NotRate,
}

impl LimitError {
    pub(crate) const fn new(field: &'static str, problem: LimitErrorKind) -> Self {
        Self { field, problem }
    }

    /// The name of the offending field, as in a policy file.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// What is wrong with it.
    #[must_use]
    pub const fn problem(&self) -> LimitErrorKind {
        self.problem
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match self.problem {
            LimitErrorKind::Zero => {
                write!(f, "{field} must be at least 1 (zero does not mean unlimited)")
            }
            LimitErrorKind::AboveMax { max } => write!(f, "{field} must be at most {max}"),
            LimitErrorKind::NotExact { hint } => {
                write!(f, "{field} cannot be represented exactly: {hint}")
            }
            LimitErrorKind::NotDecimal => {
                write!(f, "{field} must be a decimal number above zero, such as 10, 1.5 or 2e-3")
            }
            LimitErrorKind::NotRate => {
                write!(f, "{field} must be a count per time, such as 10/s, 100 per 15m or 5/day")
            }
        }
    }
}

crate::debug_as_displayed!(LimitError);

impl Error for LimitError {}

/// Implements `Debug` of an error as its message, for those who read `expect`, `unwrap` and the result of `main`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_displayed {
    ($error:ident) => {
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// The value of a result, or a return with its error: `?` for a `const fn`.
macro_rules! valid {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Err(error),
        }
    };
}

pub(crate) use valid;

/// The value of a constant. A wrong constant does not compile; where it is none, this panics.
#[track_caller]
pub(crate) const fn constant<T: Copy>(result: Result<T, LimitError>) -> T {
    match result {
        Ok(value) => value,
        Err(LimitError { problem: LimitErrorKind::NotExact { hint }, .. }) => panic!("{}", hint),
        Err(LimitError { problem: LimitErrorKind::Zero, .. }) => {
            panic!("a number of a limit is zero (zero does not mean unlimited)")
        }
        Err(_) => panic!("a number of a limit is too large"),
    }
}

/// The value, unless it is zero.
pub(crate) const fn nonzero(field: &'static str, value: u64) -> Result<u64, LimitError> {
    if value == 0 { Err(LimitError::new(field, LimitErrorKind::Zero)) } else { Ok(value) }
}

/// The value, unless it is above `max`.
pub(crate) const fn at_most(field: &'static str, value: u64, max: u64) -> Result<u64, LimitError> {
    if value > max {
        Err(LimitError::new(field, LimitErrorKind::AboveMax { max: max as u128 }))
    } else {
        Ok(value)
    }
}
