//! With which eyes does a run see: this host's, another's through its observer, the target's own metrics?

use std::fs;
use std::net::SocketAddr;

use observe::{Eyes, Finder, Observer, Reach, Root};

use crate::Failed;
use crate::cli::SightArgs;

/// Opens the eyes that were asked for.
pub(crate) fn eyes(args: &SightArgs, addresses: &[SocketAddr]) -> Result<Eyes, Failed> {
    let find = match (args.pid, &args.process, &args.cgroup) {
        (Some(pid), _, _) => Finder::Pid(pid),
        (_, Some(name), _) => Finder::Name(name.clone()),
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
    Ok(eyes)
}

/// The certificate authorities that `--ca` names.
pub(crate) fn authority(args: &SightArgs) -> Result<Option<String>, Failed> {
    let read = |path: &std::path::PathBuf| {
        fs::read_to_string(path)
            .map_err(|e| Failed::CannotRun(format!("cannot read --ca {}: {e}", path.display())))
    };
    args.ca.as_ref().map(read).transpose()
}
