//! The shape of a route's messages.

use pillarbox_relay::envelope::shape::{
    Place, Shape, ShapeError, Value,
    presets::{PRESETS, preset},
};

use super::{Problems, layout::unknown};
use crate::config::schema;

/// `key` is the path of the shape's keys.
pub(super) fn shape(keys: &schema::Shape, key: &str, problems: &mut Problems) -> Shape {
    let mut shape = Shape::default();
    if let Some(name) = &keys.preset {
        match preset(name).and_then(|preset| preset.shape()) {
            Some(preset) => shape = preset,
            None => {
                let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
                problems.push(unknown(&format!("{key}.preset"), name, &known));
            }
        }
    }
    for (place, value) in &keys.body {
        let read =
            || -> Result<(Place, Value), ShapeError> { Ok((Place::parse(place)?, Value::parse(value)?)) };
        match read() {
            Ok((place, value)) => {
                shape.body.retain(|(other, _)| *other != place);
                shape.body.push((place, value));
            }
            Err(error) => problems.push((format!("{key}.body"), error.to_string())),
        }
    }
    for (name, value) in &keys.headers {
        match Value::parse(value) {
            Ok(value) => {
                shape
                    .headers
                    .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
                shape.headers.push((name.clone(), value));
            }
            Err(error) => problems.push((format!("{key}.headers"), error.to_string())),
        }
    }
    shape
}
