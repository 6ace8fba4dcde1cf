//! Objects of one file or one image, for a device, a file in place or a command.

mod command;
mod device;
mod refuse;
mod single;
#[cfg(test)]
mod tests;

pub use self::command::{CommandOptions, CommandStore};
pub use self::device::{DeviceOptions, DeviceStore};
pub use self::refuse::is_below_dev;
pub(crate) use self::refuse::{check_target, device_user};
