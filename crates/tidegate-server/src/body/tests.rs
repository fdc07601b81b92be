use tidegate::policy::Policy;
use tidegate::{Request, StoreEngine};

use super::*;

const POLICY: &str = r#"
    [[rule]]
    name   = "quoted \"\\ and ☃"
    domain = "odd"
    deny   = "<b>no</b>\r\n\u0000\u001f\u202e"
    window = { max = 1, per = "1h" }

    [[rule]]
    name   = "watched"
    domain = "odd"
    mode   = "shadow"
    window = { max = 1, per = "1h" }

    [[rule]]
    name   = "rounds"
    domain = "rounds"
    quota  = { max = 18446744073709551615, per = "round" }

    [[rule]]
    name   = "keyed"
    key    = ["user"]
    window = { max = 10, per = "1h" }
"#;

/// The hand-written encoder writes the same bytes as serde.
#[test]
fn hand_written_json_equals_that_of_serde() {
    let engine = StoreEngine::new(Policy::from_toml(POLICY).unwrap());
    for (domain, cost) in
        [("odd", 1), ("odd", 1), ("odd", 2), ("rounds", 1), ("none", 1), ("default", 1)]
    {
        let report = engine.check(&Request::new(domain, &[]).cost(cost)).block().unwrap();
        let body = DecisionBody::new(&report, DecisionId::next());
        let mut written = Vec::new();
        body.write(&mut written);
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, serde_json::to_string(&body).unwrap());
    }
}
