#include "server/rpc/status.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/config/log.h"
#include "server/store/dataset_store.h"

namespace trainyard::server {
namespace {

/// Shortens the text at a character boundary: an invalid UTF-8 string does not serialize.
std::string cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

/// Packs the message into bytes that are the same each time, so that equal errors of two calls do
/// not differ by the order of their metadata.
void pack(const google::protobuf::Message& message, google::protobuf::Any& any) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&out);
  }
  any.set_type_url("type.googleapis.com/" + message.GetDescriptor()->full_name());
  any.set_value(std::move(bytes));
}

google::rpc::Status build_details(const Error& e, size_t violations, size_t description_bytes) {
  google::rpc::Status status;
  status.set_code(static_cast<int>(e.code));
  status.set_message(cut(e.message, kSentenceBytesMax));
  google::rpc::ErrorInfo info;
  info.set_reason(e.reason);
  info.set_domain("trainyard");
  size_t entries = 0;
  for (const auto& [key, value] : e.metadata) {
    if (++entries > kViolationsMax) break;
    (*info.mutable_metadata())[cut(key, 64)] = cut(value, description_bytes);
  }
  pack(info, *status.add_details());
  if (!e.violations.empty()) {
    google::rpc::BadRequest bad;
    for (size_t i = 0; i < std::min(violations, e.violations.size()); ++i) {
      google::rpc::BadRequest::FieldViolation& v = *bad.add_field_violations();
      v.set_field(cut(e.violations[i].field, 128));
      v.set_description(cut(e.violations[i].description, description_bytes));
    }
    pack(bad, *status.add_details());
  }
  if (e.code == ErrorCode::kUnavailable || e.reason == "UPLOAD_BUSY" ||
      e.reason == "QUEUED_JOBS_QUOTA_EXCEEDED") {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1);
    pack(retry, *status.add_details());
  }
  return status;
}

std::string incident_id() {
  thread_local std::mt19937_64 rng{std::random_device{}()};
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(rng()));
  return text;
}

}  // namespace

grpc::Status to_grpc_status(const Error& error) {
  std::string details;
  size_t description_bytes = 256;
  for (size_t violations = kViolationsMax;; violations = violations / 2) {
    details = build_details(error, violations, description_bytes).SerializeAsString();
    if (details.size() <= kDetailsBytesMax || violations == 0) break;
    description_bytes = std::max<size_t>(64, description_bytes / 2);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(error.code),
                      cut(error.message, kSentenceBytesMax), details);
}

Error internal_error(std::string_view method, std::string_view what) {
  const std::string id = incident_id();
  spdlog::error("event=handler_fault {} {} {}", kv("incident", id), kv("method", method),
                kv("what", what));
  Error e = make_error(ErrorCode::kInternal, "INTERNAL",
                       "the server failed to answer; its log has details under incident " + id);
  e.metadata["incident"] = id;
  return e;
}

Error draining_error() {
  return make_error(ErrorCode::kUnavailable, "SERVER_DRAINING",
                    "the server is stopping; call again when it is back");
}

Error not_ready_error(const Dataset& dataset, std::string_view call) {
  Error e = make_error(
      ErrorCode::kFailedPrecondition, "DATASET_NOT_READY",
      dataset.state == v1::Dataset::FAILED
          ? "dataset " + dataset.ref().text() + " could not be ingested: " + dataset.message
          : "dataset " + dataset.ref().text() + " is still being ingested; " + std::string(call) +
                " again when it is READY");
  e.metadata["dataset"] = dataset.name();
  return e;
}

Error caller_left_error() {
  return make_error(ErrorCode::kCancelled, "CALL_CANCELLED", "the caller has disconnected");
}
Error busy_error() {
  return make_error(ErrorCode::kUnavailable, "SERVER_BUSY",
                    "too many calls are waiting for an answer; call again in a moment");
}

}  // namespace trainyard::server
