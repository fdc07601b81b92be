//! A recipe of tollgate.

fn main() {}
