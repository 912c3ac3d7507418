//! What are connections told to do? An operation in the words of its protocol, checked before anything is begun.

use model::{Operation, Target};

use crate::Failed;

/// The operation that a text stands for on this target; without a text, what its driver says on its own.
pub(crate) fn said(target: &Target, text: Option<&str>) -> Result<Operation, Failed> {
    let operation =
        Operation { text: text.filter(|text| *text != "default").map(str::to_owned), ..Operation::default() };
    protocols::check_operation(target.scheme, &operation)
        .map_err(|why| Failed::Usage(format!("{}: {why}", target.scheme)))?;
    Ok(operation)
}
