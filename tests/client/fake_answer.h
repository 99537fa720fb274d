// tests/client/fake_answer.h: how the services of the fake server reply.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "src/base/result.h"

namespace trainyard::client {

/// Encodes an error as the real server does: canonical code, sentence, ErrorInfo, BadRequest.
inline grpc::Status to_status(const Error& error) {
  google::rpc::Status details;
  details.set_code(static_cast<int>(error.code));
  details.set_message(error.message);
  google::rpc::ErrorInfo info;
  info.set_reason(error.reason);
  info.set_domain("trainyard");
  info.mutable_metadata()->insert(error.metadata.begin(), error.metadata.end());
  details.add_details()->PackFrom(info);
  if (!error.violations.empty()) {
    google::rpc::BadRequest bad;
    for (const FieldViolation& v : error.violations) {
      auto* added = bad.add_field_violations();
      added->set_field(v.field);
      added->set_description(v.description);
    }
    details.add_details()->PackFrom(bad);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(error.code), error.message,
                      details.SerializeAsString());
}
inline grpc::Status refuse(ErrorCode code, const std::string& reason, const std::string& message) {
  return to_status(make_error(code, reason, message));
}

/// Replies to a unary call immediately.
inline grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace trainyard::client
