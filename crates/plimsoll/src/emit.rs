//! Which file would make it fit? The settings that are too low, in the form of the file that keeps them.

use limits::{Place, Setting};
use model::{RunResult, units};

use crate::cli::Emit;

/// The file, with a comment before each line that says what is set now, and why that is too low. Where nothing is, a
/// comment says so, and another one what could not be read.
pub(crate) fn file(form: Emit, settings: &[Setting], run: &RunResult) -> String {
    let (place, goes_to) = match form {
        Emit::Sysctl => (Place::Kernel, "/etc/sysctl.d/90-plimsoll.conf, then: sysctl --system"),
        Emit::Systemd => (
            Place::Unit,
            "/etc/systemd/system/NAME.service.d/plimsoll.conf, then: systemctl daemon-reload; systemctl restart NAME",
        ),
        Emit::Limits => {
            (Place::User, "/etc/security/limits.d/plimsoll.conf; it counts from the next login on")
        }
    };
    let mut out = format!(
        "# plimsoll doctor: for {} connections to {}\n",
        units::count(run.spec.connections),
        run.target.url
    );
    if let Some(why) = &run.settings.target_hidden {
        out += &format!("# the server's own limits are unknown: {why}\n");
    }
    let mut chosen = settings.iter().filter(|setting| setting.place == place).peekable();
    if chosen.peek().is_none() {
        out += "# nothing here is too low, as far as settings tell\n";
        return out;
    }
    out += &format!("# goes to {goes_to}\n");
    if place == Place::Unit {
        out += "[Service]\n";
    }
    for Setting { name, now, wanted, because, .. } in chosen {
        out += &format!("# now {now}: {because}\n");
        out += &match place {
            Place::Kernel => format!("{name} = {wanted}\n"),
            Place::Unit => format!("{name}={wanted}\n"),
            Place::User => format!(
                "* soft {name} {wanted}\n* hard {name} {wanted}\nroot soft {name} {wanted}\nroot hard {name} {wanted}\n"
            ),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Vec<Setting> {
        let setting = |place, name, now: &str, wanted: &str| Setting {
            place,
            name,
            now: now.to_owned(),
            wanted: wanted.to_owned(),
            because: "it is too low".to_owned(),
        };
        vec![
            setting(Place::Kernel, "net.core.somaxconn", "4096", "65535"),
            setting(Place::Unit, "LimitNOFILE", "1024", "61000"),
            setting(Place::User, "nofile", "1024", "61000"),
        ]
    }

    fn run() -> RunResult {
        let target = model::Target::parse("tcp://127.0.0.1:7000").unwrap();
        RunResult::new("doctor", model::Spec::new(target, 50_000))
    }

    #[test]
    fn each_form_has_its_own_lines() {
        let lines = |form| file(form, &settings(), &run());
        assert_eq!(
            lines(Emit::Sysctl),
            "# plimsoll doctor: for 50,000 connections to tcp://127.0.0.1:7000\n\
             # goes to /etc/sysctl.d/90-plimsoll.conf, then: sysctl --system\n\
             # now 4096: it is too low\nnet.core.somaxconn = 65535\n"
        );
        assert!(
            lines(Emit::Systemd).ends_with("\n[Service]\n# now 1024: it is too low\nLimitNOFILE=61000\n")
        );
        assert!(lines(Emit::Limits).contains("\n* soft nofile 61000\n* hard nofile 61000\n"));
    }

    #[test]
    fn where_nothing_is_too_low_a_comment_says_so() {
        for form in [Emit::Sysctl, Emit::Systemd, Emit::Limits] {
            let mut run = run();
            run.settings.target_hidden = Some("no server was named".to_owned());
            let text = file(form, &[], &run);
            assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
            assert!(text.contains("nothing here is too low"), "{text}");
            assert!(text.contains("limits are unknown: no server was named"), "{text}");
        }
    }
}
