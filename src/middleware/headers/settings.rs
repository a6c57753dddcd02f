//! [`Headers`] as serialized data.

use super::{Headers, Reset, draft11::PartitionSecret};
use crate::settings::{Form, OrOff, SecretText, fields, names};

names!(Reset { Seconds = "seconds", Epoch = "epoch" });

fields! {
    Headers, |_| Ok(());
    draft11: bool, "true or false";
    x_ratelimit: OrOff<Reset>, "seconds, epoch, or off";
    partition_secret: OrOff<SecretText>, "32 hexadecimal digits as a text, or off";
}

impl Form for SecretText {
    type Value = PartitionSecret;

    fn of(value: &PartitionSecret) -> Self {
        let PartitionSecret([low, high]) = *value;
        Self(u128::from(high) << 64 | u128::from(low))
    }

    fn into_value(self) -> PartitionSecret {
        PartitionSecret([self.0 as u64, (self.0 >> 64) as u64])
    }
}
