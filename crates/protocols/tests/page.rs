//! Is docs/protocols.md what the list of drivers says?

use model::Scheme;
use protocols::DRIVERS;
use protocols::machine::Beats;

/// The page, from the drivers' own facts.
fn page() -> String {
    let mut out = String::from(
        "# Protocols\n\n\
         What `plimsoll hold`, `storm` and `talk` speak, one driver each. This page is made from the list of drivers:\n\
         `UPDATE_DOCS=1 cargo test -p plimsoll-protocols --test page`. How to add one stands in\n\
         [ARCHITECTURE.md](../ARCHITECTURE.md#to-add-a-protocol).\n\n\
         | URL | port | what a connection is | heartbeat, and verify round trip | operation, on its own or with a text |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for driver in DRIVERS {
        let schemes = Scheme::ALL.iter().filter(|scheme| scheme.plain() == driver.scheme);
        let urls: Vec<String> = schemes
            .map(|scheme| {
                let login = if scheme.has_login() { "USER:PASSWORD@" } else { "" };
                let port = if scheme.default_port().is_none() { ":PORT" } else { "" };
                format!("`{scheme}://{login}HOST{port}`")
            })
            .collect();
        let schemes = Scheme::ALL.iter().filter(|scheme| scheme.plain() == driver.scheme);
        let ports: Vec<String> =
            schemes.filter_map(|s| s.default_port()).map(|port| port.to_string()).collect();
        let beats = match driver.beats {
            Beats::Asked => "",
            Beats::Arriving => " They are awaited, not asked for.",
        };
        out += &format!(
            "| {} | {} | {} | {}{beats} | {} |\n",
            urls.join(", "),
            ports.join(", "),
            driver.doc,
            driver.heartbeat,
            driver.operation.unwrap_or("none")
        );
    }
    out += "\nA scheme that ends in `s` is the same over TLS from its first byte, and so is `mongodb` if the URL has `?tls=true`.\n\
            `postgres` asks for TLS in its own words (`?sslmode=require` or `verify-full`); `nats` begins it behind the server's\n\
            INFO where that requires it, or with `?tls=true` where that offers it. The node (`--serve`) speaks ";
    let served: Vec<String> =
        Scheme::ALL.iter().filter(|s| s.is_served()).map(|s| format!("`{s}`")).collect();
    out += &format!("{}.\n", served.join(", "));
    out
}

#[test]
fn the_page_in_docs_is_the_one_of_the_drivers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocols.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/ can be written");
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/protocols.md is not up to date: UPDATE_DOCS=1 cargo test -p plimsoll-protocols --test page"
    );
}
