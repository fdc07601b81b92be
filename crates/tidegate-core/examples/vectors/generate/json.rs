use std::fmt;

/// An object on one line. Every number is written as a string: some are beyond 2^53.
pub(crate) struct Object {
    fields: Vec<String>,
}

impl Object {
    pub(crate) fn new() -> Self {
        Self { fields: Vec::new() }
    }

    fn field(&mut self, name: &str, value: &str) -> &mut Self {
        self.fields.push(format!("{}: {value}", quoted(name)));
        self
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.field(name, &quoted(value))
    }

    pub(crate) fn text_or_null(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        self.field(name, &value.map_or("null".to_owned(), quoted))
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        self.text(name, &value.to_string())
    }

    pub(crate) fn number_or_null(&mut self, name: &str, value: Option<u64>) -> &mut Self {
        self.text_or_null(name, value.map(|value| value.to_string()).as_deref())
    }

    pub(crate) fn bool(&mut self, name: &str, value: bool) -> &mut Self {
        self.field(name, if value { "true" } else { "false" })
    }

    pub(crate) fn object(&mut self, name: &str, value: &Self) -> &mut Self {
        self.field(name, &value.to_string())
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.fields.join(", "))
    }
}

/// A string literal. The names here need nothing but quotes and backslashes escaped.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
