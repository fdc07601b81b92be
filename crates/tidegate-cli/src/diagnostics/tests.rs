use super::*;

#[test]
fn workflow_commands_are_escaped() {
    let note = Annotation {
        severity: Severity::Error,
        file: "a,b:c%.toml",
        position: Some((3, 7)),
        message: "50% of: a,\r\nb",
        hint: Some("x"),
    };
    assert_eq!(
        note.github(),
        "::error file=a%2Cb%3Ac%25.toml,line=3,col=7::50%25 of: a,%0D%0Ab%0Ahint: x"
    );
    let note = Annotation { severity: Severity::Warning, position: None, hint: None, ..note };
    assert_eq!(note.github(), "::warning file=a%2Cb%3Ac%25.toml::50%25 of: a,%0D%0Ab");
}
