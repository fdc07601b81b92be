//! The machine and the versions of a run.

use std::fs;

/// The crates whose versions the report contains.
const CRATES: [&str; 6] =
    ["governor", "quota", "throttlecrab", "ratelimit", "leaky-bucket", "pingora-limits"];

/// Lines that describe the machine.
pub fn describe() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
    vec![
        format!("CPU: {}", cpu_model(&read("/proc/cpuinfo"))),
        format!("cores: {cores}"),
        format!("kernel: Linux {}", read("/proc/sys/kernel/osrelease")),
        format!("transparent huge pages: {}", chosen(&pages)),
        format!("compiler: {}", env!("BENCH_RUSTC")),
    ]
}

/// The load of the last minute, if the machine is busy.
pub fn busy() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    (load > 0.5).then_some(load)
}

/// The first model name of a `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> &str {
    let model = |line: &'_ str| line.starts_with("model name");
    let line = cpuinfo.lines().find(|line| model(line)).unwrap_or(": unknown");
    line.split_once(':').map_or("unknown", |(_, name)| name.trim())
}

/// The word in brackets of a kernel setting.
fn chosen(setting: &str) -> &str {
    let inner = setting.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or("unknown", |(word, _)| word)
}

/// The peers and their versions, from the lock file of this binary.
pub fn peers() -> Vec<(&'static str, String)> {
    let lock = include_str!("../Cargo.lock");
    CRATES.into_iter().map(|name| (name, locked(lock, name))).collect()
}

/// The version of a crate in a lock file.
fn locked(lock: &str, name: &str) -> String {
    let wanted = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|line| *line != wanted).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = "));
    version.map_or("unknown", |version| version.trim_matches('"')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.2.3\"\n";
        assert_eq!(locked(lock, "a"), "1.2.3");
        assert_eq!(locked(lock, "b"), "unknown");
        assert!(peers().iter().all(|(_, version)| version != "unknown"));
    }

    #[test]
    fn machine_files_are_read() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: Fast One\n"), "Fast One");
        assert_eq!(chosen("always [madvise] never"), "madvise");
    }
}
