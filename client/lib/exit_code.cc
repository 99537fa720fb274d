#include "client/lib/exit_code.h"

namespace trainyard::client {

ExitCode exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange:
      return kExitUsage;
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kPermissionDenied:
      return kExitNotAllowed;
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kAborted:
    case ErrorCode::kFailedPrecondition:
      return kExitConflict;
    case ErrorCode::kResourceExhausted:
      return kExitFull;
    case ErrorCode::kUnavailable:
      return kExitUnavailable;
    case ErrorCode::kDeadlineExceeded:
      return kExitTimeout;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kInternal:
    case ErrorCode::kDataLoss:
      return kExitFailed;
  }
  return kExitFailed;
}

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCancelled:
      return "CANCELLED";
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case ErrorCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
    case ErrorCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case ErrorCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case ErrorCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case ErrorCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case ErrorCode::kAborted:
      return "ABORTED";
    case ErrorCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case ErrorCode::kInternal:
      return "INTERNAL";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kDataLoss:
      return "DATA_LOSS";
    case ErrorCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

}  // namespace trainyard::client
