use super::without_secrets;

#[test]
fn secrets_of_a_line_are_hidden_and_its_length_is_kept() {
    for (line, shown) in [
        ("http = '127.0.0.1:80'\n", "http = '127.0.0.1:80'\n"),
        ("store_secret = 'horse'\r\n", "store_secret = '*****'\r\n"),
        ("\"store_password\"=\"pw\" # x", "\"store_password\"=\"**\" * *"),
        ("store_secret = hé", "store_secret = ***"),
        ("store = 'redis://u:p@ss/@h:1/0'", "store = 'redis://*******@h:1/0'"),
        ("store = 'redis://h:1', x = 'a@b'", "store = 'redis://h:1', x = 'a@b'"),
        ("store = 'valkey://:pw@h", "store = 'valkey://***@h"),
        ("# the store_secret is elsewhere", "# the store_secret is elsewhere"),
    ] {
        assert_eq!(without_secrets(line), shown);
        assert_eq!(without_secrets(line).len(), line.len());
    }
}
