//! Macros for settings: one table generates types, descriptions, and conversions from options.

use faircast_base::{Bitrate, Duration};

use crate::options::Options;

/// Type of a setting's value.
pub trait Setting: Sized {
    /// Reads a checked option, if set.
    fn read(options: &Options, key: &str) -> Option<Self>;
}

macro_rules! plain {
    ($($kind:ty: $read:ident),+) => {$(
        impl Setting for $kind {
            fn read(options: &Options, key: &str) -> Option<Self> {
                options.$read(key)
            }
        }
    )+};
}

plain!(bool: bool, f64: float, Bitrate: rate, Duration: duration);

impl Setting for u32 {
    fn read(options: &Options, key: &str) -> Option<Self> {
        options.integer(key).and_then(|x| Self::try_from(x).ok())
    }
}

/// Defines enums whose variants have names in configuration files.
#[macro_export]
macro_rules! choices {
    ($(
        $(#[doc = $about:literal])*
        $vis:vis enum $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)+ }
    )+) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[doc = $doc])* $variant,)+ }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(crate) const WORDS: &'static [&'static str] = &[$($word),+];

            pub(crate) const fn written(self) -> &'static str {
                match self { $(Self::$variant => concat!("\"", $word, "\"")),+ }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl $crate::settings::Setting for $name {
            fn read(options: &$crate::options::Options, key: &str) -> Option<Self> {
                let text = options.text(key)?;
                Self::WORDS.iter().position(|word| *word == text).map(|place| Self::ALL[place])
            }
        }
    )+};
}

/// Defines the settings of a protocol: a type with a field for each, its `Default`, the table
/// `OPTIONS`, and `from_options`. The doc comment of a field is also its description in the table.
///
/// ```text
/// settings! {
///     /// All settings of something.
///     pub struct Config;
///     from profile: Profile = Improved, "Which settings to start from";
///     /// The least timeout
///     timeout_min: Duration [1 ms, 60 s] = 200 ms;
///     /// How it is computed
///     timeout_mode: TimeoutMode = Fixed;
/// }
/// ```
///
/// The line of the profile is optional. With it, the type needs a function `profile`. Only that
/// function sets fields after `by profile:`. Rates have units as in `1 Mbit`.
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $config:ident;
        $(from $profile_key:ident: $profile:ident = $first:ident, $profile_doc:literal;)?
        $(
            $(#[doc = $doc:literal])+
            $key:ident: $kind:ident $([$min:tt $($min_unit:ident)?, $max:tt $($max_unit:ident)?])?
                = $default:tt $($unit:ident)?;
        )+
        $(by profile: $(
            $(#[doc = $set_doc:literal])*
            $set:ident: $set_kind:ident = $set_default:tt $($set_unit:ident)?;
        )+)?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $vis struct $config {
            $($(#[doc = $doc])+ $vis $key: $kind,)+
            $($($(#[doc = $set_doc])* $vis $set: $set_kind,)+)?
        }

        impl Default for $config {
            fn default() -> Self {
                Self {
                    $($key: $crate::settings::settings!(@value $kind $default $($unit)?),)+
                    $($($set: $crate::settings::settings!(@value $set_kind $set_default $($set_unit)?),)+)?
                }
            }
        }

        impl $config {
            /// Table of the settings.
            $vis const OPTIONS: &'static [$crate::options::OptionSpec] = &[
                $($crate::options::OptionSpec {
                    name: stringify!($profile_key),
                    kind: $crate::options::OptionKind::Choice($profile::WORDS),
                    default: $profile::$first.written(),
                    doc: $profile_doc,
                },)?
                $($crate::options::OptionSpec {
                    name: stringify!($key),
                    kind: $crate::settings::settings!(
                        @kind $kind $([$min $($min_unit)?, $max $($max_unit)?])?
                    ),
                    default: $crate::settings::settings!(@text $kind $default $($unit)?),
                    doc: concat!($($doc),+).trim_ascii_start(),
                },)+
            ];

            /// Settings of checked options.
            $vis fn from_options(options: &$crate::options::Options) -> Self {
                let mut config = Self::default();
                $(
                    let profile: Option<$profile> =
                        $crate::settings::Setting::read(options, stringify!($profile_key));
                    config = profile.map_or(config, Self::profile);
                )?
                $(if let Some(value) = $crate::settings::Setting::read(options, stringify!($key)) {
                    config.$key = value;
                })+
                config
            }
        }
    };

    (@ns $n:tt ns) => { $n };
    (@ns $n:tt us) => { ($n as f64 * 1e3 + 0.5) as u64 };
    (@ns $n:tt ms) => { ($n as f64 * 1e6 + 0.5) as u64 };
    (@ns $n:tt s) => { ($n as f64 * 1e9 + 0.5) as u64 };

    (@bits $n:tt bit) => { $n };
    (@bits $n:tt kbit) => { $n * 1_000 };
    (@bits $n:tt Mbit) => { $n * 1_000_000 };
    (@bits $n:tt Gbit) => { $n * 1_000_000_000 };

    (@value bool $x:tt) => { $x };
    (@value u32 $x:tt) => { $x };
    (@value f64 $x:tt) => { $x };
    (@value Duration $x:tt $unit:ident) => {
        faircast_base::Duration::from_nanos($crate::settings::settings!(@ns $x $unit))
    };
    (@value Bitrate $x:tt $unit:ident) => {
        faircast_base::Bitrate::from_bits_per_s($crate::settings::settings!(@bits $x $unit))
    };
    (@value $choice:ident $x:ident) => { $choice::$x };

    (@text bool $x:tt) => { stringify!($x) };
    (@text u32 $x:tt) => { stringify!($x) };
    (@text f64 $x:tt) => { stringify!($x) };
    (@text Duration $x:tt $unit:ident) => {
        concat!("\"", stringify!($x), " ", stringify!($unit), "\"")
    };
    (@text Bitrate $x:tt $unit:ident) => {
        concat!("\"", stringify!($x), " ", stringify!($unit), "/s\"")
    };
    (@text $choice:ident $x:ident) => { $choice::$x.written() };

    (@kind bool) => { $crate::options::OptionKind::Bool };
    (@kind u32 [$min:tt, $max:tt]) => {
        $crate::options::OptionKind::Integer { min: $min as i64, max: $max as i64 }
    };
    (@kind f64 [$min:tt, $max:tt]) => {
        $crate::options::OptionKind::Float { min: $min, max: $max }
    };
    (@kind Duration [$min:tt $min_unit:ident, $max:tt $max_unit:ident]) => {
        $crate::options::OptionKind::Duration {
            min_ns: $crate::settings::settings!(@ns $min $min_unit),
            max_ns: $crate::settings::settings!(@ns $max $max_unit),
        }
    };
    (@kind Bitrate [$min:tt $min_unit:ident, $max:tt $max_unit:ident]) => {
        $crate::options::OptionKind::Rate {
            min_bits_per_s: $crate::settings::settings!(@bits $min $min_unit),
            max_bits_per_s: $crate::settings::settings!(@bits $max $max_unit),
        }
    };
    (@kind $choice:ident) => { $crate::options::OptionKind::Choice($choice::WORDS) };
}

pub use crate::{choices, settings};

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;
    use crate::options::{OptionKind, OptionValue};

    choices! {
        enum Profile {
            One = "one",
            OtherOne = "other-one",
        }
    }

    settings! {
        /// One of each kind.
        struct Config;
        from profile: Profile = One, "Where to start";
        /// A switch that the sentence describes
        /// in two lines
        on: bool = true;
        /// A number
        count: u32 [1, 9] = 3;
        /// A share
        share: f64 [0.0, 1.0] = 0.25;
        /// A time
        wait: Duration [0 s, 1.5 s] = 0.2 s;
        /// A word
        word: Profile = OtherOne;
        /// A rate
        rate: Bitrate [0 bit, 1 Gbit] = 20 Mbit;
    }

    impl Config {
        fn profile(profile: Profile) -> Self {
            match profile {
                Profile::One => Self::default(),
                Profile::OtherOne => Self { count: 9, ..Self::default() },
            }
        }
    }

    fn config(raw: &[(&str, OptionValue)]) -> Config {
        let raw = raw.iter().map(|(key, value)| (key.to_string(), value.clone()));
        Config::from_options(&Options::checked(raw, Config::OPTIONS).unwrap())
    }

    #[test]
    fn the_table_says_what_the_type_has() {
        let rows: Vec<_> =
            Config::OPTIONS.iter().map(|spec| (spec.name, spec.default, spec.doc)).collect();
        assert_eq!(
            rows,
            [
                ("profile", "\"one\"", "Where to start"),
                ("on", "true", "A switch that the sentence describes in two lines"),
                ("count", "3", "A number"),
                ("share", "0.25", "A share"),
                ("wait", "\"0.2 s\"", "A time"),
                ("word", "\"other-one\"", "A word"),
                ("rate", "\"20 Mbit/s\"", "A rate"),
            ]
        );
        let wait = OptionKind::Duration { min_ns: 0, max_ns: 1_500_000_000 };
        assert_eq!(Config::OPTIONS[4].kind, wait);
        assert_eq!(Config::OPTIONS[5].kind, OptionKind::Choice(&["one", "other-one"]));
        assert_eq!(config(&[]), Config::default());
        assert_eq!(Config::default().wait, Duration::from_millis(200));
        assert_eq!(Config::default().rate, Bitrate::from_bits_per_s(20_000_000));
    }

    #[test]
    fn what_is_set_goes_before_the_profile() {
        let text = |text: &str| OptionValue::Text(text.to_string());
        let other = config(&[("profile", text("other-one"))]);
        assert_eq!(other, Config { count: 9, ..Config::default() });
        let all = config(&[
            ("profile", text("other-one")),
            ("on", OptionValue::Bool(false)),
            ("count", OptionValue::Integer(5)),
            ("share", OptionValue::Integer(1)),
            ("wait", text("3 ms")),
            ("word", text("one")),
            ("rate", text("8 kbit/s")),
        ]);
        let (wait, rate) = (Duration::from_millis(3), Bitrate::from_bits_per_s(8000));
        let word = Profile::One;
        assert_eq!(all, Config { on: false, count: 5, share: 1.0, wait, word, rate });
    }
}
