//! How is a setting of the kernel changed, at once and for good?

use std::fmt::Display;

/// The lines that set it now, and again at every start of the host.
pub(crate) fn set(name: &str, value: impl Display) -> [String; 3] {
    let value = value.to_string();
    let quote = if value.contains(' ') { "\"" } else { "" };
    [
        format!("sysctl -w {name}={quote}{value}{quote}"),
        "# to keep it:".to_owned(),
        format!("echo '{name} = {value}' >> /etc/sysctl.d/90-plimsoll.conf"),
    ]
}

#[cfg(test)]
mod tests {
    use super::set;

    #[test]
    fn lines_that_a_shell_takes() {
        let [now, _, kept] = set("fs.file-max", 120_000);
        assert_eq!(now, "sysctl -w fs.file-max=120000");
        assert_eq!(kept, "echo 'fs.file-max = 120000' >> /etc/sysctl.d/90-plimsoll.conf");
        assert_eq!(set("net.ipv4.tcp_mem", "1 2 3")[0], "sysctl -w net.ipv4.tcp_mem=\"1 2 3\"");
    }
}
