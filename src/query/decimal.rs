//! Numbers exactly as their text says them, for comparing literals with columns of other types.

use std::fmt::Write as _;

use arrow_buffer::i256;

/// `digits * 10^exponent`, without leading or trailing zeros; zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

/// A number in units of `10^-scale`, rounded up to a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaled {
    /// The smallest whole number of units not below it, and whether it is equal.
    Units { ceil: i256, exact: bool },
    /// Above every number of up to 76 digits.
    Above,
    /// Below every number of up to 76 digits.
    Below,
}

/// What `i256` holds for certain.
const DIGITS_MAX: usize = 76;

impl Decimal {
    /// Reads `[-+]digits[.digits][e[-+]digits]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, saturating_exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        Some(Decimal::normal(negative, &digits, exponent.saturating_sub(fraction.len() as i64)))
    }

    /// The shortest decimal that reads back as this float: what its text said. `None` for NaN and
    /// the infinities.
    pub(crate) fn from_f64(value: f64) -> Option<Self> {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write!(text, "{value:?}");
        value.is_finite().then(|| Decimal::parse(&text)).flatten()
    }

    pub(crate) fn from_i128(value: i128) -> Self {
        Decimal::normal(value < 0, &value.unsigned_abs().to_string(), 0)
    }

    fn normal(negative: bool, digits: &str, exponent: i64) -> Self {
        let digits = digits.trim_start_matches('0');
        let kept = digits.trim_end_matches('0');
        if kept.is_empty() {
            return Decimal { negative: false, digits: String::new(), exponent: 0 };
        }
        let exponent = exponent.saturating_add((digits.len() - kept.len()) as i64);
        Decimal { negative, digits: kept.to_string(), exponent }
    }

    pub(crate) fn scaled(&self, scale: i32) -> Scaled {
        let shift = self.exponent.saturating_add(scale.into());
        let whole_digits = (self.digits.len() as i64).saturating_add(shift);
        if self.digits.is_empty() {
            return Scaled::Units { ceil: i256::ZERO, exact: true };
        }
        if whole_digits > DIGITS_MAX as i64 {
            return if self.negative { Scaled::Below } else { Scaled::Above };
        }
        let kept = usize::try_from(whole_digits).unwrap_or(0).min(self.digits.len());
        let exact = shift >= 0;
        let mut text = self.digits.get(..kept).unwrap_or_default().to_string();
        text.extend(std::iter::repeat_n('0', usize::try_from(shift).unwrap_or(0)));
        // No more than `DIGITS_MAX` digits, so it parses; an empty text is a fraction of a unit.
        let magnitude = i256::from_string(&text).unwrap_or(i256::ZERO);
        let ceil = match (self.negative, exact) {
            (true, _) => magnitude.wrapping_neg(),
            (false, true) => magnitude,
            (false, false) => magnitude.wrapping_add(i256::ONE),
        };
        Scaled::Units { ceil, exact }
    }
}

/// The exponent's value; one beyond any use stays beyond any use.
fn saturating_exponent(text: &str) -> Option<i64> {
    const FAR: i64 = 1 << 40;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i64>().unwrap_or(FAR).min(FAR);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(text: &str, scale: i32) -> (i128, bool) {
        match Decimal::parse(text).expect("a number").scaled(scale) {
            Scaled::Units { ceil, exact } => (ceil.to_i128().expect("small"), exact),
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn q3_a_number_is_rounded_up_and_says_whether_it_was() {
        assert_eq!(scaled("1.5", 0), (2, false));
        assert_eq!(scaled("-1.5", 0), (-1, false));
        assert_eq!(scaled("-0.5", 0), (0, false));
        assert_eq!(scaled("0.001", 0), (1, false));
        assert_eq!(scaled("1.10", 2), (110, true));
        assert_eq!(scaled("15e1", 0), (150, true));
        assert_eq!(scaled("150", -1), (15, true));
        assert_eq!(scaled("155", -1), (16, false));
        assert_eq!(scaled("-0.0", 3), (0, true));
        assert_eq!(scaled("1e-999999999999999999999", 0), (1, false));
    }

    #[test]
    fn q3_numbers_beyond_every_column_are_above_or_below() {
        let place = |text| Decimal::parse(text).expect("a number").scaled(0);
        assert_eq!(place("1e77"), Scaled::Above);
        assert_eq!(place("-1e999999999999999999999"), Scaled::Below);
        assert!(matches!(
            place("9999999999999999999999999999999999999999999999999999999999999999999999999999"),
            Scaled::Units { exact: true, .. }
        ));
    }

    #[test]
    fn q3_equal_numbers_are_equal_however_they_are_written() {
        assert_eq!(Decimal::parse("1.50e1"), Decimal::parse("15"));
        assert_eq!(Decimal::from_f64(0.1), Decimal::parse("0.1"));
        assert_eq!(Decimal::parse("1e"), None);
        assert_eq!(Decimal::parse("."), None);
    }
}
