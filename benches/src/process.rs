//! Measurements that need a separate process: this binary, started again.
//!
//! Resident memory is read in a process that has done nothing else, and the slowest call is
//! searched in one whose heap contains nothing else. The child prints `name value` lines.

use std::collections::HashMap;
use std::process::{Command, Stdio};

/// The numbers a child printed, by name.
pub type Numbers = HashMap<String, f64>;

/// Starts this binary again with `--child` and these arguments and parses its output.
pub fn measured(args: &[String]) -> Result<Numbers, String> {
    let binary =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let output = Command::new(binary)
        .arg("--child")
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("the measuring process did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("the measuring process for {args:?} failed: {}", output.status));
    }
    Ok(numbers(&String::from_utf8_lossy(&output.stdout)))
}

/// The `name value` lines of a text.
fn numbers(text: &str) -> Numbers {
    let pair = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// A number that the child must have printed.
pub fn number(numbers: &Numbers, name: &str) -> Result<f64, String> {
    numbers.get(name).copied().ok_or_else(|| format!("the measuring process printed no {name:?}"))
}

/// The resident memory of this process in bytes.
pub fn resident() -> Result<u64, String> {
    let statm = std::fs::read_to_string("/proc/self/statm")
        .map_err(|error| format!("/proc/self/statm: {error}"))?;
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .ok_or("/proc/self/statm has no second field")?;
    Ok(pages * page_size())
}

/// The size of a page, from the auxiliary vector.
fn page_size() -> u64 {
    const AT_PAGESZ: usize = 6;
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let words: Vec<usize> = vector
        .chunks_exact(size_of::<usize>())
        .filter_map(|bytes| bytes.try_into().ok().map(usize::from_ne_bytes))
        .collect();
    let entry = words.chunks_exact(2).find(|entry| entry[0] == AT_PAGESZ);
    entry.map_or(4_096, |entry| entry[1] as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_numbers() {
        let numbers = numbers("at 1000 47.5\npeak 50\nnoise\n");
        assert_eq!(number(&numbers, "at 1000"), Ok(47.5));
        assert_eq!(number(&numbers, "peak"), Ok(50.0));
        assert!(number(&numbers, "worst").unwrap_err().contains("worst"));
    }

    #[test]
    fn this_process_is_resident() {
        assert!(page_size().is_power_of_two());
        assert!(resident().unwrap() > 100_000);
    }
}
