//! Answers as replies.

use serde::Serialize;
use serde_json::Value;
use tidegate_proto::resp::Replies;

/// Writes what would be the body of an HTTP answer: objects as maps, which are pairs in version 2.
pub(super) fn encode(body: &impl Serialize, replies: &mut Replies<'_>) {
    match serde_json::to_value(body) {
        Ok(value) => write(&value, replies),
        Err(error) => replies.error("ERR", &error.to_string()),
    }
}

fn write(value: &Value, replies: &mut Replies<'_>) {
    match value {
        Value::Null => replies.null(),
        Value::Bool(yes) => replies.boolean(*yes),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => replies.integer(number),
            (None, Some(number)) => replies.count(number),
            (None, None) => replies.bulk(number.to_string().as_bytes()),
        },
        Value::String(text) => replies.bulk(text.as_bytes()),
        Value::Array(values) => {
            replies.array(values.len());
            values.iter().for_each(|value| write(value, replies));
        }
        Value::Object(fields) => {
            replies.map(fields.len());
            for (name, value) in fields {
                replies.bulk(name.as_bytes());
                write(value, replies);
            }
        }
    }
}
