//! The result of a replay as a page: one file, which loads nothing.

use serde_json::Value;

/// The page with these results.
pub(super) fn page(results: &Value) -> String {
    let [head, rest] = split(PAGE, "/*STYLE*/");
    let [middle, rest] = split(rest, "/*DATA*/");
    let [before_script, end] = split(rest, "/*SCRIPT*/");
    [head, STYLE, middle, &as_data(results), before_script, SCRIPT, end].concat()
}

/// JSON that cannot end the element it is in, nor begin another: names of keys come from clients.
fn as_data(results: &Value) -> String {
    let json = results.to_string();
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn split<'t>(text: &'t str, at: &str) -> [&'t str; 2] {
    text.split_once(at).map_or([text, ""], |(before, after)| [before, after])
}

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn a_key_cannot_end_the_data() {
        let name = "</script><img src=x onerror=alert(1)>";
        let page = page(&serde_json::json!({ "key": name }));
        assert!(!page.contains(name) && !page.contains("<img"), "{page}");
        assert!(page.contains(r"\u003c/script\u003e\u003cimg src=x onerror=alert(1)\u003e"));
        assert!(!page.contains("/*DATA*/") && !page.contains("/*SCRIPT*/"));
    }
}
