//! What are connections told to do? An operation in the words of its protocol, checked before anything is begun.

use model::{Metadata, Operation, Scheme, Target};

use crate::Failed;
use crate::call::{self, CallArgs};

/// The operation that a text stands for on this target; without a text, what its driver says on its own.
pub(crate) fn said(target: &Target, text: Option<&str>) -> Result<Operation, Failed> {
    let operation =
        Operation { text: text.filter(|text| *text != "default").map(str::to_owned), ..Operation::default() };
    protocols::check_operation(target.scheme, &operation)
        .map_err(|why| Failed::Usage(format!("{}: {why}", target.scheme)))?;
    Ok(operation)
}

/// Over http: the operation with what `--data` says as its body, a POST to the URL's path unless a text says otherwise.
/// Over anything else, the operation as it is.
pub(crate) fn with_body(
    target: &Target,
    operation: Option<Operation>,
    args: &CallArgs,
) -> Result<Option<Operation>, Failed> {
    if target.scheme.plain() != Scheme::Http {
        return Ok(operation);
    }
    let Some(body) = call::data(args)? else { return Ok(operation) };
    let text = operation.and_then(|operation| operation.text);
    if let Some(text) = text.as_ref().filter(|text| text.splitn(3, ' ').count() > 2) {
        return Err(Failed::Usage(format!("{text:?} has a body already: leave it out there, or --data")));
    }
    let request = text.unwrap_or_else(|| format!("POST {}", target.path));
    said(target, Some(&format!("{request} {body}"))).map(Some)
}

/// Whether header fields can be sent to this target: known before anything is begun.
pub(crate) fn check_headers(target: &Target, headers: &[Metadata], called: bool) -> Result<(), Failed> {
    let Some(first) = headers.first() else { return Ok(()) };
    match target.scheme.plain() {
        Scheme::Http | Scheme::Ws | Scheme::Sse => Ok(()),
        Scheme::Grpc if called => Ok(()),
        Scheme::Grpc => Err(Failed::Usage(format!(
            "--metadata {}=… goes with a --call: nothing else asks with header fields over grpc",
            first.name
        ))),
        _ => Err(Failed::Usage(format!(
            "--metadata {}=… is a header field of http, ws, sse and grpc, and the target is {}://",
            first.name, target.scheme
        ))),
    }
}
