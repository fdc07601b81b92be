use crate::formats::tests::{all, parser, read};
use crate::formats::{LogFormat, ParsedLine};

const AT: u64 = 1_715_472_017_000_000_000;

#[test]
fn columns_are_found_by_name() {
    for header in [
        "time,ip,user,method,path,host,status,bytes,agent,referer",
        "time;ip;user;method;path;host;status;bytes;agent;referer",
        "TIME\tIP\tUser\tMethod\tPath\tHost\tStatus\tBytes\tAgent\tReferer",
        "timestamp,remote_addr,remote_user,request_method,request_uri,http_host,status,body_bytes_sent,http_user_agent,http_referer",
        " time , ip , user , method , path , host , status , bytes , agent , referer ",
    ] {
        let separator = if header.contains(';') {
            ";"
        } else if header.contains('\t') {
            "\t"
        } else {
            ","
        };
        let row = [
            "2024-05-12 00:00:17",
            "192.0.2.1",
            "\"a \"\"b\"\" c\"",
            "GET",
            "/a?b",
            "x",
            "200",
            "51",
            "-",
            "",
        ];
        let mut parser = parser(LogFormat::Csv, &[], None);
        assert_eq!(read(&mut parser, header.as_bytes()).0, ParsedLine::Header, "{header}");
        let (parsed, found) = read(&mut parser, row.join(separator).as_bytes());
        assert_eq!(parsed, ParsedLine::Request(AT), "{header}");
        assert_eq!(
            found,
            all(["192.0.2.1", "a \"b\" c", "GET", "/a", "x", "200", "51", "", ""]),
            "{header}"
        );
    }
}

#[test]
fn names_are_given() {
    let mut parser =
        parser(LogFormat::Csv, &[("user", "account"), ("tokens", "ContextTokens")], Some("began"));
    read(&mut parser, b"began,account,ContextTokens,time");
    let (parsed, found) = read(&mut parser, b"1715472017,ada,4808,x");
    assert_eq!(parsed, ParsedLine::Request(AT));
    assert_eq!((found[1].as_deref(), found[9].as_deref()), (Some("ada"), Some("4808")));
}

#[test]
fn a_time_is_found_under_an_unknown_name() {
    let mut parser = parser(LogFormat::Csv, &[], None);
    read(&mut parser, b"n,when_it_was");
    assert_eq!(read(&mut parser, b"17,2024-05-12T00:00:17Z").0, ParsedLine::Request(AT));
}

#[test]
fn short_and_long_rows_are_read_and_broken_ones_are_not() {
    let mut parser = parser(LogFormat::Csv, &[], None);
    read(&mut parser, b"time,ip,user");
    for (row, ip) in [
        ("1715472017", None),
        ("1715472017,192.0.2.1", Some("192.0.2.1")),
        ("1715472017,a,b,c,d", Some("a")),
    ] {
        let (parsed, found) = read(&mut parser, row.as_bytes());
        assert_eq!((parsed, found[0].as_deref()), (ParsedLine::Request(AT), ip), "{row}");
    }
    for row in ["x,192.0.2.1", ",192.0.2.1", "1715472017,\"a", ""] {
        assert!(matches!(read(&mut parser, row.as_bytes()).0, ParsedLine::Unreadable(_)), "{row}");
    }
}
