//! `plimsoll observe`: what a run on another host may see of this one.

use std::io::Write as _;
use std::net::TcpListener;

use model::Scheme;
use observe::Service;

use crate::cli::ObserveArgs;
use crate::{Failed, serving};

/// Answers until it is ended.
pub(crate) fn observe(args: &ObserveArgs) -> Result<(), Failed> {
    let token = args.token.clone().filter(|token| !token.is_empty());
    if token.is_none() && !args.listen.ip().is_loopback() {
        return Err(Failed::Usage(format!(
            "--listen {}: others can reach it; name a secret that they must know, for example\n  \
             PLIMSOLL_OBSERVER_TOKEN=$(openssl rand -hex 16) plimsoll observe --listen {}",
            args.listen, args.listen
        )));
    }
    let certificate = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Some(node::load(cert, key)?),
        _ if args.tls => Some(serving::own_certificate()?),
        _ => None,
    };
    let tls = certificate.as_ref().map(|c| c.server_config(Scheme::Https)).transpose()?;
    let listener = TcpListener::bind(args.listen)
        .map_err(|e| Failed::CannotRun(format!("cannot listen on {}: {e}", args.listen)))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let address = listener.local_addr().unwrap_or(args.listen);
    let mut text = format!("observing this host for: plimsoll hold URL --observer {scheme}://{address}\n");
    if args.tls && args.cert.is_none() {
        text += &format!("certificate: --ca {}\n", serving::own_ca_file().display());
    }
    text += "read-only; Ctrl-C ends it\n";
    let mut out = std::io::stdout().lock();
    // Whoever reads may have gone, which is no error.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    drop(out);
    Service::new(listener, tls, token)
        .run()
        .map_err(|e| Failed::CannotRun(format!("nobody can be accepted any more: {e}")))
}
