#include "client/lib/rpc_error.h"

#include <grpcpp/support/status.h>

#include "client/lib/exit_code.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace trainyard::client {
namespace {

ErrorCode to_code(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::DO_NOT_USE:
      return ErrorCode::kInternal;  // canonical codes that ErrorCode does not have
    default:
      return static_cast<ErrorCode>(code);  // ErrorCode has the same numbers (src/base/result.h)
  }
}

void read_details(const std::string& bytes, Error& error) {
  google::rpc::Status details;
  if (!details.ParseFromString(bytes)) return;
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    if (any.UnpackTo(&info)) {
      error.reason = info.reason();
      error.metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (any.UnpackTo(&bad)) {
      for (const auto& v : bad.field_violations()) {
        error.violations.push_back({v.field(), v.description()});
      }
    }
  }
}

}  // namespace

Error to_error(const grpc::Status& status, const std::string& server) {
  Error error = make_error(to_code(status.error_code()), "", status.error_message());
  read_details(status.error_details(), error);
  if (!error.reason.empty()) return error;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      error.reason = "SERVER_UNREACHABLE";
      error.message = "no answer from the server at " + server + ": " + status.error_message();
      break;
    case grpc::StatusCode::UNIMPLEMENTED:
      error.reason = "UNIMPLEMENTED";
      error.message = "the server at " + server +
                      " does not know this call or could not read it; do client and server have "
                      "the same version?";
      break;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      error.reason = "DEADLINE_EXCEEDED";
      error.message = "the server at " + server + " did not answer in time";
      break;
    default:
      error.reason = code_name(error.code);
      if (error.message.empty()) error.message = "the server gave no reason";
  }
  return error;
}

}  // namespace trainyard::client
