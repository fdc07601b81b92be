//! Edits that an application could not work with.

use std::time::Duration;

use axum::Router;
use axum::routing::get as route;
use tidegate::policy::Policy;
use tidegate::{Edit, edit::EditError};
use tidegate_tower::{Header, PolicyLayer};
use tower::ServiceExt;

use crate::support::{TestEngine, engine, get};

const PER_TEAM: &str =
    "[[rule]]\nname = \"r\"\nkey = [\"team\"]\nwindow = { max = 2, per = \"1h\" }\n";

fn layer(engine: &TestEngine) -> PolicyLayer {
    PolicyLayer::new(engine.clone(), "default").unwrap().attribute("team", Header::new("x-team"))
}

fn app(layer: PolicyLayer) -> Router {
    Router::new().route("/", route(|| async {})).layer(layer)
}

fn replace(engine: &TestEngine, policy: &str) -> Result<(), EditError> {
    engine.edit("test", Edit::policy(Policy::from_toml(policy).unwrap())).block().map(drop)
}

async fn status(app: &Router) -> u16 {
    app.clone().oneshot(get("/", &[("x-team", "red")])).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_policy_that_the_layer_cannot_serve_is_rejected_and_changes_nothing() {
    for (policy, reason) in [
        (PER_TEAM.replace("\"team\"", "\"account\""), "needs the attribute `account`"),
        (
            PER_TEAM.replace("name =", "match = { plan = \"free\" }\nname ="),
            "never applies: the layer does not supply `plan`",
        ),
        (
            PER_TEAM.replace("\"team\"]", "\"account\"]\nmissing = \"skip\""),
            "never applies: the layer does not supply `account`",
        ),
        (
            format!("{PER_TEAM}cost = {{ by = \"tier\", \"1..\" = 2 }}\n"),
            "needs the attribute `tier`",
        ),
        (PER_TEAM.replace("name =", "domain = \"other\"\nname ="), "has no rule"),
        (format!("{PER_TEAM}[[rule]]\nname = \"s\"\nslots = {{ max = 1 }}\n"), "has slots"),
    ] {
        let (engine, _) = engine(PER_TEAM);
        let app = app(layer(&engine));
        assert_eq!(status(&app).await, 200);
        match replace(&engine, &policy) {
            Err(EditError::Unfit { reason: given }) => assert!(given.contains(reason), "{given}"),
            other => panic!("{other:?}: {policy}"),
        }
        assert_eq!([status(&app).await, status(&app).await], [200, 429], "as before: {policy}");
        replace(&engine, &PER_TEAM.replace("max = 2", "max = 3")).unwrap();
        assert_eq!([status(&app).await, status(&app).await], [200, 429]);
    }
}

#[tokio::test]
async fn a_layer_that_acquires_slots_keeps_its_slots() {
    let slots = "[[rule]]\nname = \"s\"\nslots = { max = 1 }\n";
    let (engine, _) = engine(slots);
    let app = app(layer(&engine).slots(Some(Duration::ZERO)));
    let error = replace(&engine, PER_TEAM).unwrap_err();
    assert!(error.to_string().contains("no rule of `default` has slots"), "{error}");
    assert_eq!(status(&app).await, 200);
    replace(&engine, &format!("{PER_TEAM}{slots}")).unwrap();
    assert_eq!(status(&app).await, 200);
}

#[tokio::test]
async fn what_did_not_fit_before_is_no_reason_and_a_layer_that_is_gone_has_no_say() {
    let odd = format!(
        "{PER_TEAM}[[rule]]\nname = \"odd\"\nkey = [\"account\"]\nmissing = \"refuse\"\nmode = \"shadow\"\nwindow = {{ max = 9, per = \"1h\" }}\n"
    );
    let (engine, _) = engine(&odd);
    let app = app(layer(&engine));
    replace(&engine, &odd.replace("max = 2", "max = 4")).unwrap();
    assert!(replace(&engine, &odd.replace("\"team\"", "\"plan\"")).is_err());
    drop(app);
    replace(&engine, &odd.replace("\"team\"", "\"plan\"")).unwrap();
}
