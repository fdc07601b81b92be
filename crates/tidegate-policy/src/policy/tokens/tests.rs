use super::{Credential, Scope, Scopes, TokenFile};

const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// The SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn parse(text: &str) -> Result<TokenFile, String> {
    TokenFile::parse("tokens.toml", text.as_bytes()).map_err(|errors| errors.to_string())
}

#[test]
fn a_token_has_a_name_a_credential_and_scopes() {
    let text = format!(
        "[[token]]\nname = 'gateway'\nsha256 = '{DIGEST}'\nscopes = ['check', 'read']\n\
         domains = ['api', 'web']\nattributes = {{ customer = 'acme', zone = ['a', 'b'] }}\n\
         limit = {{ rate = '100/s', burst = 20 }}\nuntil = 2027-01-01T00:00:00Z\n\
         [[token]]\nname = 'gateway'\nsubject = 'spiffe://x/y'\nscopes = ['admin']\n\
         limit = {{ rate = '100/s', burst = 20 }}\n\
         [[token]]\nname = 'ops'\nuser = 'ada'\nscopes = ['inspect']\nlimit = '5/s'\n\
         [[token]]\nname = 'ops'\ngroup = 'gid:7'\nscopes = ['settle', 'lease']\nlimit = '5/s'\n"
    );
    let file = parse(&text).unwrap();
    let [gateway, next, ops, group] = file.tokens() else { panic!("{file:?}") };
    assert!(matches!(gateway.credential(), Credential::Sha256([0x2b, 0xb8, .., 0x5b])));
    assert_eq!(gateway.scopes(), [Scope::Check, Scope::Read].into_iter().collect::<Scopes>());
    assert!(gateway.domains().eq(["api", "web"]));
    let [customer, zone] = gateway.attributes() else { panic!("{gateway:?}") };
    assert!(customer.name() == "customer" && customer.allows("acme") && !customer.allows("acm"));
    assert!(zone.allows("a") && zone.allows("b") && !zone.allows("c"));
    assert_eq!(gateway.limit().map(|it| it.capacity()), Some(20));
    assert_eq!(gateway.until_ns(), Some(1_798_761_600_000_000_000));
    assert_eq!(next.name(), "gateway");
    assert!(next.scopes().contains(Scope::Admin) && next.scopes().contains(Scope::Inspect));
    assert!(!next.scopes().contains(Scope::Check));
    assert_eq!(ops.limit().map(|it| it.capacity()), Some(5));
    assert_eq!(group.credential(), &Credential::Group("gid:7".into()));
    assert_eq!(parse("").unwrap().tokens().len(), 0);
}

#[test]
fn invalid_tokens_are_errors_with_a_position() {
    let token = |fields: &str| format!("[[token]]\nname = 'a'\n{fields}");
    let valid = format!("sha256 = '{DIGEST}'\nscopes = ['check']\n");
    assert!(parse(&token(&valid)).is_ok());
    let cases = [
        (token("scopes = ['check']"), "tokens.toml:1:1: error: the token has no credential"),
        (token(&format!("user = 'b'\n{valid}")), "more than one credential"),
        (
            token("sha256 = 'abc'\nscopes = ['check']"),
            "tokens.toml:3:10: error: `sha256` is not 64",
        ),
        (token(&format!("sha256 = '{DIGEST}'")), "a token needs `scopes`"),
        (token(&format!("sha256 = '{DIGEST}'\nscopes = []")), "the token may do nothing"),
        (token(&format!("sha256 = '{DIGEST}'\nscopes = ['chekc']")), "4:11: error: `chekc` is not"),
        (token(&format!("{valid}domains = []")), "`domains` is empty"),
        (token(&format!("{valid}domain = ['a']")), "did you mean `domains`?"),
        (token(&format!("{valid}limit = {{ rate = '0/s' }}")), "5:"),
        (token(&format!("{valid}limit = 5")), "must be a table"),
        (token(&format!("{valid}attributes = {{ customer = [] }}")), "`customer` must be text"),
        (token(&format!("{valid}attributes = 'customer'")), "must be a table"),
        (token(&format!("{valid}attributes = {{}}")), "`attributes` is empty"),
        (token("user = 'uid:x'\nscopes = ['check']"), "is not uid: and a number"),
        (token(&format!("sha256 = '{EMPTY}'\nscopes = ['check']")), "an empty secret"),
        (token(&format!("{valid}until = 'soon'")), "5:9: error"),
        (format!("[[token]]\nname = 'a b'\n{valid}"), "is not a name of a token"),
        (format!("{}{}", token(&valid), token(&valid)), "another token has the same credential"),
        (
            format!("{}limit = '1/s'\n{}", token(&valid), token("user = 'b'\nscopes = ['check']")),
            "have different limits",
        ),
        ("token = 'x'".into(), "write `[[token]]`"),
        ("[[tokens]]\nname = 'a'".into(), "did you mean `token`?"),
        ("[[token]\nname = 'a'".into(), "tokens.toml:1:"),
    ];
    for (text, expected) in cases {
        let error = parse(&text).expect_err(&text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn an_error_shows_no_secret() {
    let secret = "tg_correcthorsebatterystaple";
    for line in [
        format!("sha256 = '{secret}'"),
        format!("secret = '{secret}'"),
        format!("limit = ['{secret}']"),
    ] {
        let error = parse(&format!("[[token]]\nname = 'a'\nscopes = ['check']\n{line}\n"));
        let error = error.expect_err("no digest");
        assert!(!error.contains("horse"), "{error}");
    }
}
