//! Response bodies as replies of RESP.

use serde::Serialize;
use serde_json::Value;
use tidegate_proto::resp::Replies;

/// Writes a response body of HTTP: objects are maps, which version 2 flattens to pairs.
pub(super) fn encode(body: &impl Serialize, replies: &mut Replies<'_>) {
    match serde_json::to_value(body) {
        Ok(value) => write(&value, replies),
        Err(error) => replies.error("ERR", &error.to_string()),
    }
}

fn write(value: &Value, replies: &mut Replies<'_>) {
    match value {
        Value::Null => replies.null(),
        Value::Bool(flag) => replies.boolean(*flag),
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
