// server/handlers/audited_call.h: the entry that a call leaves in the audit table, and its line in
// the log.
//
// Calls that change something or hand out a model or a backup are recorded; those that only read,
// and those without a valid token, are not. A request that only asks what would happen
// (`validate_only`, `dry_run`) changes nothing and is not recorded either.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "server/handlers/call_frame.h"
#include "server/people/principal.h"

namespace trainyard::server {

class AuditedCall {
 public:
  /// `action` is the method's name. Nothing is recorded if the frame has no audit table or the
  /// method is none of those that are recorded.
  AuditedCall(const CallFrame& frame, const grpc::CallbackServerContext& context,
              const char* action);
  AuditedCall(const AuditedCall&) = delete;
  AuditedCall& operator=(const AuditedCall&) = delete;
  /// A call that ends without a result was cancelled.
  ~AuditedCall() { end("CANCELLED"); }

  /// Records the call of `caller`, before it changes anything. A second call of begin() has no
  /// effect.
  void begin(const google::protobuf::Message& request, const Principal& caller);
  /// Records a call whose request has not arrived yet.
  void begin(const Principal& caller);
  /// Records the result, which is OK or an error's reason. Only the first call of end() counts.
  void end(std::string_view result) { end(result, {}); }
  /// The response's `name`, if it has one, replaces the object; for a new token its ID.
  void end_well(const google::protobuf::Message& response);
  /// Names the object of a call that began without one.
  void set_object(std::string object);

 private:
  void end(std::string_view result, std::string object);

  AuditStore* const audit_;  // null: the call is not recorded
  std::string caller_;
  const std::string address_;
  const char* const action_;
  std::string object_;
  int64_t number_ = 0;  // 0: not begun, or ended
};

/// Returns whether calls of the method are recorded.
bool is_audited(std::string_view method);

}  // namespace trainyard::server
