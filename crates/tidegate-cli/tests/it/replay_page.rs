//! The page of `tidegate replay --html` in a real browser.

use std::path::Path;
use std::process::Command;

use crate::run::{folder, root, tidegate_in};

const POLICY: &str = "[[rule]]\nname = 'per-user'\nkey = ['user']\nwindow = { max = 2, per = '1h' }\n\n\
                      [[rule]]\nname = 'shadow'\nmode = 'shadow'\nkey = ['user']\ncooldown = '10s'\n";

/// Whether the browser and its driver are there. In CI they have to be.
pub(crate) fn is_installed() -> bool {
    let modules = root().join("clients/browser-tests/node_modules/playwright-core");
    let is_installed = modules.exists() && Path::new("/usr/bin/chromium").exists();
    assert!(is_installed || std::env::var_os("CI").is_none(), "run scripts/install");
    is_installed
}

/// Opens the page, and panics with everything that is wrong.
fn open(page: &Path) {
    let script = root().join("clients/browser-tests/replay-page.mjs");
    let output = Command::new("node").arg(script).arg(page).output().unwrap();
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problems}");
}

#[test]
fn the_page_has_no_errors_and_loads_nothing_and_keys_are_text() {
    let users = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(2)</script>",
        "<!--",
        "a very long name of a user that does not fit into the space for a label of the chart",
        "\u{202e}reversed",
        "ada",
    ];
    let mut log = String::new();
    for second in 0..600 {
        let user = users[second % users.len()];
        let line = serde_json::json!({ "time": 1_715_472_000 + second * 60, "user": user });
        log += &format!("{line}\n");
    }
    let folder = folder("replay-page", &[("policy.toml", POLICY), ("a.log", &log)]);
    let args = ["replay", "policy.toml", "a.log", "--html", "page.html"];
    let _ = tidegate_in(&folder, &args, b"").with(0);
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(!page.contains("<img") && !page.contains("alert(2)</script>"));
    for outside in ["http://", "https://", "//cdn", "@import", "url("] {
        let page = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains(outside), "the page names {outside}");
    }
    if is_installed() {
        open(&folder.join("page.html"));
    }
}

#[test]
fn a_page_without_requests_has_no_errors() {
    let folder = folder("replay-page-empty", &[("policy.toml", POLICY), ("a.log", "")]);
    let args = ["replay", "policy.toml", "a.log", "--html", "page.html"];
    let _ = tidegate_in(&folder, &args, b"").with(0);
    if is_installed() {
        open(&folder.join("page.html"));
    }
}
