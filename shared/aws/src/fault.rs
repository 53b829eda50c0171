//! What went wrong with an AWS call, in the bounded words of the core, without anything that a request or a row held.

use std::error::Error;
use std::fmt;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use forebay_core::ports::{ErrorClass, LedgerError};

/// Longest text of the service that is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 300;

/// What AWS said, safe to print: a code, and for permissions and names its text.
///
/// The SDK's own errors hold whole rows (the old image of a failed condition) and are never kept.
#[derive(Debug)]
pub struct Fault {
    code: String,
    message: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{}: {message}", self.code),
            None => f.write_str(&self.code),
        }
    }
}

impl Error for Fault {}

/// The class of a failed call and what may be printed of it.
#[must_use]
pub fn classify<E, R>(error: &SdkError<E, R>) -> (ErrorClass, Fault)
where
    E: ProvideErrorMetadata,
{
    let plain = |class, code: &str| {
        (
            class,
            Fault {
                code: code.to_owned(),
                message: None,
            },
        )
    };
    match error {
        SdkError::TimeoutError(_) => plain(ErrorClass::TimedOut, "timeout"),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => plain(ErrorClass::TimedOut, "timeout"),
        SdkError::DispatchFailure(_) => plain(ErrorClass::Unreachable, "no connection"),
        SdkError::ResponseError(_) => plain(ErrorClass::ServerFault, "unreadable answer"),
        SdkError::ConstructionFailure(_) => plain(ErrorClass::Invalid, "request not built"),
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or("unknown");
            let class = class_of_code(code);
            let telling = matches!(class, ErrorClass::Denied | ErrorClass::NotFound);
            let message = service.err().message().filter(|_| telling).map(|message| {
                message
                    .get(..message.floor_char_boundary(MESSAGE_BYTES_MAX))
                    .unwrap_or(message)
                    .to_owned()
            });
            (
                class,
                Fault {
                    code: code.to_owned(),
                    message,
                },
            )
        }
        _ => plain(ErrorClass::ServerFault, "unknown failure"),
    }
}

/// The class of an AWS error code. Codes: the errors pages of the API references of DynamoDB, SQS and Secrets Manager.
pub(crate) fn class_of_code(code: &str) -> ErrorClass {
    // SQS prefixes its codes in the Query protocol, and DynamoDB cancels transactions with the short forms.
    let code = code.rsplit(['.', '#']).next().unwrap_or(code);
    match code {
        "ProvisionedThroughputExceededException"
        | "ProvisionedThroughputExceeded"
        | "ThrottlingException"
        | "ThrottlingError"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "Throttling"
        | "TooManyRequestsException"
        | "LimitExceededException"
        | "KmsThrottled"
        | "OverLimit" => ErrorClass::Throttled,
        "TransactionConflictException" | "TransactionConflict" | "TransactionInProgressException" => {
            ErrorClass::Conflict
        }
        "AccessDeniedException"
        | "AccessDenied"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "KmsAccessDenied"
        | "KmsDisabled"
        | "DecryptionFailure" => ErrorClass::Denied,
        "ResourceNotFoundException" | "QueueDoesNotExist" | "NonExistentQueue" => ErrorClass::NotFound,
        "ItemCollectionSizeLimitExceeded"
        | "ItemCollectionSizeLimitExceededException"
        | "BatchRequestTooLong"
        | "InvalidMessageContents" => ErrorClass::TooLarge,
        "ValidationException"
        | "ValidationError"
        | "IdempotentParameterMismatchException"
        | "SerializationException"
        | "InvalidParameterException"
        | "InvalidParameterValue"
        | "InvalidRequestException" => ErrorClass::Invalid,
        _ => ErrorClass::ServerFault,
    }
}

/// A failed ledger call.
pub(crate) fn ledger_error<E, R>(attempted: &'static str, on: impl fmt::Display, error: &SdkError<E, R>) -> LedgerError
where
    E: ProvideErrorMetadata,
{
    let (class, fault) = classify(error);
    LedgerError {
        attempted,
        on: on.to_string(),
        class,
        source: Some(Box::new(fault)),
    }
}
