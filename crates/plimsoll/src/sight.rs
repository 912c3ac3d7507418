//! With which eyes does a run see: this host's, another's through its observer, the target's own metrics?

use std::fs;
use std::net::SocketAddr;

use model::Target;
use observe::{Eyes, Finder, Observer, Reach, Root, Server};

use crate::cli::SightArgs;
use crate::{Failed, reach};

/// Opens the eyes that were asked for.
pub(crate) fn eyes(args: &SightArgs, target: &Target, addresses: &[SocketAddr]) -> Result<Eyes, Failed> {
    let find = match (args.pid, &args.process[..], &args.cgroup) {
        (Some(pid), _, _) => Finder::Pid(pid),
        (_, names @ [_, ..], _) => Finder::Name(names.to_vec()),
        (_, _, Some(path)) => Finder::Cgroup(path.clone()),
        _ => Finder::Port(addresses.to_vec()),
    };
    let reach = |url: &String| {
        Ok::<_, Failed>(Reach {
            url: url.clone(),
            token: args.observer_token.clone(),
            ca_pem: authority(args)?,
            insecure: args.insecure,
        })
    };
    let own = |find| Observer::new(Root::host(), std::process::id(), find).listening_at(addresses.to_vec());
    let mut eyes = match &args.observer {
        None => Eyes::new(own(find)),
        // A process of that name here is not the one meant.
        Some(url) => Eyes::new(own(Finder::Port(addresses.to_vec())))
            .through(&reach(url)?, &find, addresses)
            .map_err(Failed::CannotRun)?,
    };
    if let Some(url) = &args.metrics {
        let reach = Reach { token: None, ..reach(url)? };
        eyes = eyes.with_metrics(&reach).map_err(Failed::CannotRun)?;
    }
    Ok(eyes.asking(servers(args, target, addresses)?))
}

/// Who is asked how many connections it counts: those that were named, else the target, if it is one that tells.
fn servers(args: &SightArgs, target: &Target, addresses: &[SocketAddr]) -> Result<Vec<Server>, Failed> {
    if args.views.is_empty() {
        let own = addresses.first().filter(|_| Server::tells(target.scheme));
        // Whom nobody here can trust is told by the first connection; that must not keep a doctor from the rest.
        return Ok(own.and_then(|address| server(args, target, *address).ok()).into_iter().collect());
    }
    let named = |url: &String| {
        let wrong = |why: &dyn std::fmt::Display| Failed::Usage(format!("--views: {why}"));
        let target = Target::parse(url).map_err(|e| wrong(&e))?;
        if !Server::tells(target.scheme) {
            return Err(wrong(&format!(
                "{target} tells nothing of its connections; postgres, redis and rediss do"
            )));
        }
        // Only asked a question, so any address may be named.
        let addresses =
            reach::resolve(&target, Some(&target.host)).map_err(|e| Failed::CannotRun(e.to_string()))?;
        let address = addresses.first().ok_or_else(|| wrong(&format!("{target} has no address")))?;
        server(args, &target, *address)
    };
    args.views.iter().map(named).collect()
}

/// One of them, with the trust that a run's connections have.
fn server(args: &SightArgs, target: &Target, address: SocketAddr) -> Result<Server, Failed> {
    let server = Server::new(target.clone(), address);
    let Some(insecure) = target.encrypted(args.insecure) else { return Ok(server) };
    let tls = worker::trust::client(target, authority(args)?.as_deref(), insecure)?;
    Ok(server.over_tls(tls.config, tls.name))
}

/// The certificate authorities that `--ca` names.
pub(crate) fn authority(args: &SightArgs) -> Result<Option<String>, Failed> {
    let read = |path: &std::path::PathBuf| {
        fs::read_to_string(path)
            .map_err(|e| Failed::CannotRun(format!("cannot read --ca {}: {e}", path.display())))
    };
    args.ca.as_ref().map(read).transpose()
}
