//! The schema of NDJSON records, from a sample of them.
//!
//! Columns keep the order in which they appear, so that one file always makes the same schema.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::trouble::Trouble;

/// What has been seen in one place so far.
#[derive(Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Null,
    Boolean,
    /// A whole number that `i64` holds.
    Int {
        negative: bool,
    },
    /// Whole numbers of which one is above `i64`, and none is negative.
    UInt,
    Float,
    /// Text, or scalars that have no other type in common.
    Text,
    List(Box<Kind>),
    Object(Members),
}

#[derive(Debug, Default, PartialEq)]
struct Members {
    members: Vec<(String, Kind)>,
    places: HashMap<String, usize>,
}

impl Members {
    /// `hint` is where the member is if records name their columns in one order.
    fn place(&mut self, name: String, hint: usize) -> usize {
        if self.members.get(hint).is_some_and(|(known, _)| *known == name) {
            return hint;
        }
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        self.places.insert(name.clone(), self.members.len());
        self.members.push((name, Kind::Null));
        self.members.len() - 1
    }

    fn fields(&self) -> Fields {
        self.members.iter().map(|(name, kind)| Field::new(name, kind.data_type(), true)).collect()
    }
}

impl Kind {
    fn data_type(&self) -> DataType {
        match self {
            // Nothing is known: text holds any scalar that may follow.
            Kind::Null | Kind::Text => DataType::Utf8,
            Kind::Boolean => DataType::Boolean,
            Kind::Int { .. } => DataType::Int64,
            Kind::UInt => DataType::UInt64,
            Kind::Float => DataType::Float64,
            Kind::List(items) => DataType::List(Arc::new(Field::new_list_field(items.data_type(), true))),
            Kind::Object(members) => DataType::Struct(members.fields()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::List(_) => "a list",
            Kind::Object(_) => "an object",
            _ => "a single value",
        }
    }

    fn see_scalar<E: serde::de::Error>(&mut self, seen: Kind) -> Result<(), E> {
        let merged = match (&*self, seen) {
            (Kind::Null, seen) => seen,
            (Kind::List(_) | Kind::Object(_), _) => return Err(conflict(self, "a single value")),
            (Kind::Int { negative }, Kind::Int { negative: seen }) => Kind::Int { negative: *negative || seen },
            (Kind::Int { negative: false } | Kind::UInt, Kind::UInt) | (Kind::UInt, Kind::Int { negative: false }) => {
                Kind::UInt
            }
            (Kind::Int { .. } | Kind::UInt | Kind::Float, Kind::Float)
            | (Kind::Float, Kind::Int { .. } | Kind::UInt) => Kind::Float,
            (Kind::Boolean, Kind::Boolean) => Kind::Boolean,
            _ => Kind::Text,
        };
        *self = merged;
        Ok(())
    }
}

fn conflict<E: serde::de::Error>(known: &Kind, found: &str) -> E {
    E::custom(format!("{found} where earlier records have {}", known.name()))
}

/// Widens what is known by the next value.
struct See<'a>(&'a mut Kind);

impl<'de> DeserializeSeed<'de> for See<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for See<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.0.see_scalar(Kind::Boolean)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.0.see_scalar(Kind::Int { negative: value < 0 })
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        let fits = i64::try_from(value).is_ok();
        self.0.see_scalar(if fits { Kind::Int { negative: false } } else { Kind::UInt })
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.0.see_scalar(Kind::Float)
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.0.see_scalar(Kind::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if *self.0 == Kind::Null {
            *self.0 = Kind::List(Box::default());
        }
        let Kind::List(known) = self.0 else { return Err(conflict(self.0, "a list")) };
        while items.next_element_seed(See(known))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if *self.0 == Kind::Null {
            *self.0 = Kind::Object(Members::default());
        }
        let Kind::Object(known) = self.0 else { return Err(conflict(self.0, "an object")) };
        let mut hint = 0;
        while let Some(name) = map.next_key::<String>()? {
            let place = known.place(name, hint);
            hint = place + 1;
            if let Some((name, kind)) = known.members.get_mut(place) {
                map.next_value_seed(See(kind)).map_err(|error| in_member(name, &error))?;
            }
        }
        Ok(())
    }
}

/// Names the column of a conflict; what the parser says has its own position.
fn in_member<E: serde::de::Error>(name: &str, error: &E) -> E {
    let text = error.to_string();
    if !text.contains(" where earlier records have ") {
        return E::custom(text);
    }
    let text = text.split(" at line ").next().unwrap_or_default();
    match text.strip_prefix("column `") {
        Some(inner) => E::custom(format!("column `{name}.{inner}")),
        None => E::custom(format!("column `{name}` has {text}")),
    }
}

/// What records have been seen to hold.
#[derive(Debug, Default)]
pub(super) struct Sample {
    kind: Kind,
}

impl Sample {
    /// Widens the schema by the record in this line.
    pub(super) fn add(&mut self, record: &[u8], line: u64) -> Result<(), Trouble> {
        let trouble = |reason: String, advice: &str| Trouble::at(format!("line {line}"), reason, advice);
        let first = record.iter().find(|byte| !byte.is_ascii_whitespace());
        if first == Some(&b'[') {
            return Err(trouble(
                "found a JSON array; expected one object a line".into(),
                "make it lines: jq -c '.[]' FILE | tidewal ingest --format ndjson ... -",
            ));
        }
        if first != Some(&b'{') {
            return Err(trouble("this is not a JSON object".into(), "each line holds one object; check the --format"));
        }
        let mut json = serde_json::Deserializer::from_slice(record);
        let seen = See(&mut self.kind).deserialize(&mut json).and_then(|()| json.end());
        seen.map_err(|error| {
            let text = error.to_string();
            // The record is one line to the parser; its own line number would mislead.
            let reason = text.replace(" at line 1 column ", " at column ");
            let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
            if error.is_eof() || reason.starts_with("EOF while parsing") {
                let advice = "an object must be whole on one line: jq -c . FILE | tidewal ingest --format ndjson ... -";
                return trouble("the object does not end in this line".into(), advice);
            }
            if text.contains(" where earlier records have ") {
                return trouble(reason, "make the column one kind of value, or leave it out");
            }
            trouble(reason, "mend the line")
        })
    }

    /// The columns seen; `None` if there were no records.
    pub(super) fn fields(&self) -> Option<Fields> {
        match &self.kind {
            Kind::Object(members) => Some(members.fields()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[&str]) -> String {
        let mut sample = Sample::default();
        for line in lines {
            sample.add(line.as_bytes(), 1).expect("readable");
        }
        let fields = sample.fields().expect("records");
        fields.iter().map(|field| format!("{}:{} ", field.name(), field.data_type())).collect()
    }

    #[test]
    fn columns_keep_the_order_in_which_they_appear() {
        assert_eq!(fields(&[r#"{"z":1,"a":"x"}"#, r#"{"a":"y","m":true,"z":2}"#]), "z:Int64 a:Utf8 m:Boolean ");
    }

    #[test]
    fn numbers_widen_and_never_lose_a_digit_of_a_whole_number_above_i64() {
        assert_eq!(fields(&[r#"{"a":1,"b":1}"#, r#"{"a":1.5,"b":18446744073709551615}"#]), "a:Float64 b:UInt64 ");
        assert_eq!(fields(&[r#"{"b":-1}"#, r#"{"b":18446744073709551615}"#]), "b:Utf8 ");
    }

    #[test]
    fn nulls_take_the_type_of_what_comes_later() {
        assert_eq!(fields(&[r#"{"a":null,"l":[]}"#, r#"{"a":2,"l":[null,true]}"#]), "a:Int64 l:List(Boolean) ");
    }

    #[test]
    fn a_conflict_names_the_column_by_its_path() {
        let mut sample = Sample::default();
        sample.add(br#"{"a":{"b":[1]}}"#, 1).expect("readable");
        let trouble = sample.add(br#"{"a":{"b":2}}"#, 9).expect_err("a conflict");
        assert_eq!(trouble.place, "line 9");
        assert!(trouble.reason.starts_with("column `a.b` has a single value where"), "{trouble}");
    }

    #[test]
    fn what_is_no_line_of_json_is_named_with_the_way_to_mend_it() {
        let text = |line: &str| Sample::default().add(line.as_bytes(), 3).expect_err("refused").to_string();
        assert!(text("[{\"a\":1}]").contains("jq -c '.[]'"), "{}", text("[{\"a\":1}]"));
        assert!(text("{").contains("jq -c ."), "{}", text("{"));
        assert!(text("{\"a\":tru}").starts_with("line 3: expected ident at column"), "{}", text("{\"a\":tru}"));
        assert!(text("a,b").contains("--format"), "{}", text("a,b"));
    }
}
