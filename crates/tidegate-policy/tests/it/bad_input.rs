//! Whatever bytes a policy file has: a policy, or errors with positions; never a panic, never more
//! time or memory than a valid file of that size.

use tidegate::policy::{Policy, PolicyErrors};

use crate::sample::SAMPLE;

/// The errors, if any, after a check of their positions.
fn parse(bytes: &[u8]) -> Option<PolicyErrors> {
    let errors = Policy::parse("bad.toml", bytes).err()?;
    assert!(!errors.diagnostics().is_empty());
    assert!(errors.diagnostics().len() <= PolicyErrors::MOST);
    let mut last = (0, 0);
    for error in errors.diagnostics() {
        assert!(error.line >= 1 && error.column >= 1, "{error:?}");
        assert!((error.line, error.column) >= last, "in the order of the file: {errors}");
        last = (error.line, error.column);
        assert!(error.span.start <= error.span.end && error.span.end <= bytes.len().max(3));
        assert!(!error.message.is_empty());
    }
    let shown = errors.to_string();
    assert!(shown.len() <= 1_500 * PolicyErrors::MOST, "{} bytes of errors", shown.len());
    let has_controls = shown.chars().any(|c| c.is_control() && c != '\n');
    assert!(!has_controls, "nothing that a terminal acts on: {shown:?}");
    Some(errors)
}

#[test]
fn the_sample_cut_off_anywhere() {
    for end in 0..SAMPLE.len() {
        parse(&SAMPLE.as_bytes()[..end]);
    }
    assert_eq!(parse(SAMPLE.as_bytes()), None);
}

#[test]
fn the_sample_with_any_byte_replaced() {
    let mut bytes = SAMPLE.as_bytes().to_vec();
    for at in 0..bytes.len() {
        let good = bytes[at];
        let flips = [good ^ 0x01, good ^ 0x20, good ^ 0x80];
        for bad in flips.into_iter().chain(*b"\0\n\"[]{=.#\xff") {
            bytes[at] = bad;
            parse(&bytes);
        }
        bytes[at] = good;
    }
}

#[test]
fn the_sample_without_any_line() {
    let lines: Vec<&str> = SAMPLE.split_inclusive('\n').collect();
    for left_out in 0..lines.len() {
        let rest = lines.iter().enumerate().filter(|(at, _)| *at != left_out);
        parse(rest.map(|(_, line)| *line).collect::<String>().as_bytes());
    }
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let mut line = b"x = \"".to_vec();
    line.resize(100 << 20, b'a');
    let errors = parse(&line).unwrap();
    assert!(errors.to_string().contains("more than 16777216"), "{errors}");
}

#[test]
fn a_long_line_is_shown_in_part() {
    let mut line = b"rule = [{ name = 'a', cooldown = '1s', deny = \"".to_vec();
    line.resize(15 << 20, b'a');
    line.extend(b"\", x = 1 }]");
    let errors = parse(&line).unwrap();
    assert_eq!(errors.diagnostics()[0].column, (15 << 20) + 4);
    assert!(errors.to_string().len() < 1_000, "{errors}");
    // And one without an end.
    assert!(parse(&line[..line.len() - 20]).unwrap().to_string().len() < 1_000);
}

#[test]
fn deep_nesting_does_not_take_the_stack() {
    const DEEP: usize = 10_000;
    let dotted = "a.".repeat(DEEP);
    for text in [
        format!("a = {}", "[".repeat(DEEP)),
        format!("a = {}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        format!("a = {}", "{ a = ".repeat(DEEP)),
        format!("{dotted}a = 1"),
        format!("{}a = 1", "a . ".repeat(DEEP)),
        format!("{}a = 1", "\"a\".".repeat(DEEP)),
        format!("{}a = 1", "'a' . ".repeat(DEEP)),
        format!("[{dotted}a]"),
        format!("[[{dotted}a]]"),
        format!("x = {{ {dotted}a = 1 }}"),
        format!("x = \"\"\"\n\"\"\"\n{dotted}a = 1"),
        format!("x = '''\n'\n'''\n{dotted}a = 1"),
        "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o = 1\n".repeat(DEEP),
        "[[a]]\n".repeat(DEEP),
    ] {
        assert!(parse(text.as_bytes()).is_some());
    }
}

#[test]
fn a_file_full_of_tables_does_not_take_the_memory() {
    for text in ["{a=1},".repeat(2 << 20), "[[a]]\n".repeat(2 << 20), "a.b.c=1\n".repeat(1 << 20)] {
        let errors = parse(format!("a = [{text}").as_bytes()).unwrap();
        assert!(errors.to_string().contains("more than 250000 tables"), "{errors}");
    }
}

#[test]
fn a_file_full_of_values_does_not_take_the_memory() {
    for text in ["1,".repeat(8 << 20), ",".repeat(16 << 20), "a=1\n".repeat(4 << 20)] {
        let errors = parse(&text.as_bytes()[..16 << 20]).unwrap();
        assert!(errors.to_string().contains("more than 3000000 lines and values"), "{errors}");
    }
}

#[test]
fn dots_are_fine_where_they_do_not_nest() {
    let dots = ".".repeat(1_000);
    let text = format!(
        "# {dots}\n[[rule]]\nname = 'a' # {dots}\ndeny = \"{dots}\\\"{dots}\"\ncooldown = '1s'\n\
         match = {{ path = '{dots}', host = \"\"\"\n{dots}\"\"\" }}\n"
    );
    assert_eq!(parse(text.as_bytes()), None);
}

#[test]
fn many_errors_are_counted_and_the_first_are_shown() {
    let many_rules = "[[rule]]\nnaem = 'a'\n".repeat(20_000);
    let many_keys: String = (0..50_000).map(|n| format!("key-{n} = 1\n")).collect();
    let many_values: String = "rule = [".to_owned() + &"5,".repeat(100_000) + "]";
    let not_toml = "= = =\n".repeat(50_000);
    for text in [many_rules, many_keys, many_values, not_toml] {
        let errors = parse(text.as_bytes()).unwrap();
        assert_eq!(errors.diagnostics().len(), PolicyErrors::MOST);
        assert!(errors.left_out() > 1_000);
        assert!(errors.to_string().ends_with(&format!("and {} more", errors.left_out())));
    }
}

#[test]
fn a_large_file_that_is_not_toml_gets_its_first_error() {
    let errors = parse("= = =\n".repeat(200_000).as_bytes()).unwrap();
    assert_eq!((errors.diagnostics().len(), errors.diagnostics()[0].line), (1, 1));
}

#[test]
fn text_that_is_not_utf8_is_located() {
    let errors = parse(b"[[rule]]\nname = 'caf\xe9'\n").unwrap();
    let error = &errors.diagnostics()[0];
    assert_eq!((error.line, error.column), (2, 12));
    assert!(error.message.contains("0xe9"), "{error}");
    for bytes in
        [&b"\xff"[..], b"\xef\xbb", b"\xef\xbb\xbf\xff", b"\xef\xbb\xbf", b"\0", b"\0\0\n\0"]
    {
        assert!(parse(bytes).is_some(), "{bytes:?}");
    }
}

#[test]
fn marks_and_line_ends_of_other_systems_are_fine() {
    let windows = SAMPLE.replace('\n', "\r\n");
    assert_eq!(parse(windows.as_bytes()), None);
    assert_eq!(parse(format!("\u{feff}{SAMPLE}").as_bytes()), None);
    assert_eq!(parse(format!("\u{feff}{windows}").as_bytes()), None);
}

#[test]
fn names_that_are_used_many_times() {
    let text = "[[rule]]\nname = 'a'\ncooldown = '1s'\n".repeat(10_000);
    let errors = parse(text.as_bytes()).unwrap();
    assert_eq!(errors.diagnostics().len() + errors.left_out(), 9_999);
    let first = &errors.diagnostics()[0];
    assert_eq!((first.line, first.note.as_deref()), (5, Some("it is first used at bad.toml:2:8")));
}

#[test]
fn many_rules_of_every_kind_are_checked_in_bounded_time() {
    let rule = |n: usize, rest: &str| format!("[[rule]]\nname = '{n}'\ncooldown = '1s'\n{rest}\n");
    let same_group: String = (0..10_000).map(|n| rule(n, "group = 'g'")).collect();
    let ranges: String = (0..10_000)
        .map(|n| rule(n, &format!("group = 'g'\nmatch = {{ n = '{n}..={}' }}", 20_000 - n)))
        .collect();
    let for_all: String = (0..10_000)
        .map(|n| rule(n, &format!("key = [{}]", if n % 2 == 0 { "'ip'" } else { "" })))
        .collect();
    let overrides: Vec<String> =
        (0..10_000).map(|n| format!("{{ key = {{ ip = '*{n}' }}, cooldown = '2s' }}")).collect();
    let overrides = rule(0, &format!("key = ['ip']\noverride = [{}]", overrides.join(",")));
    let list: Vec<String> = (0..20_000).map(|n| format!("'*{n}'")).collect();
    let list = format!("group = 'g'\nmatch = {{ a = [{}] }}", list.join(","));
    let lists = rule(0, &list) + &rule(1, &list);
    for text in [same_group, ranges, for_all, overrides, lists] {
        let _ = parse(text.as_bytes());
    }
}
