#include "server/handlers/audited_call.h"

#include <google/protobuf/descriptor.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/config/log.h"
#include "server/rpc/front.h"
#include "server/store/audit_store.h"

namespace trainyard::server {
namespace {

constexpr size_t kObjectBytesMax = 256;

constexpr std::array<std::string_view, 24> kAudited{
    "SubmitJob",     "CancelJob",      "SetJobPriority", "PauseJob",      "ResumeJob",
    "RetryJob",      "ForkJob",        "DeleteJob",      "SubmitArray",   "CancelArray",
    "PauseArray",    "ResumeArray",    "DeleteArray",    "UploadFile",    "CreateDataset",
    "DeleteDataset", "CreateModel",    "DeleteModel",    "DownloadModel", "DrainDevice",
    "ResumeDevice",  "CollectGarbage", "Backup",         "SetQuota"};

/// Returns the text field `name` of the message; empty if it has no such field.
std::string text_field(const google::protobuf::Message& message, const char* name) {
  const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated() ||
      field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
    return {};
  }
  return message.GetReflection()->GetString(message, field);
}

bool flag_field(const google::protobuf::Message& message, const char* name) {
  const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  return field != nullptr && field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL &&
         message.GetReflection()->GetBool(message, field);
}

/// Returns what the request is about: the name of an existing resource, or the ID that a new one is
/// to get.
std::string object_of(const google::protobuf::Message& request) {
  for (const char* field :
       {"name", "job_id", "array_id", "dataset_id", "model_id", "project", "person"}) {
    if (std::string text = text_field(request, field); !text.empty()) return text;
  }
  return {};
}

}  // namespace

bool is_audited(std::string_view method) {
  return std::ranges::find(kAudited, method) != kAudited.end();
}

AuditedCall::AuditedCall(const CallFrame& frame, const grpc::CallbackServerContext& context,
                         const char* action)
    : audit_(is_audited(action) ? frame.audit : nullptr),
      address_(audit_ == nullptr ? "" : address_of(context)),
      action_(action) {}

void AuditedCall::begin(const google::protobuf::Message& request, const Principal& caller) {
  if (number_ != 0 || flag_field(request, "validate_only") || flag_field(request, "dry_run"))
    return;
  object_ = object_of(request).substr(0, kObjectBytesMax);
  begin(caller);
}

void AuditedCall::begin(const Principal& caller) {
  if (audit_ == nullptr) return;
  caller_ = caller.text();
  number_ = audit_->begin({0, 0, caller_, address_, action_, object_, {}});
}

void AuditedCall::set_object(std::string object) {
  object.resize(std::min(object.size(), kObjectBytesMax));
  object_ = std::move(object);
}

void AuditedCall::end_well(const google::protobuf::Message& response) {
  end("OK", text_field(response, "name"));
}

void AuditedCall::end(std::string_view result, std::string object) {
  const int64_t number = std::exchange(number_, 0);
  if (number == 0) return;
  if (object.empty()) object = object_;
  spdlog::info("event=call_audited number={} {} {} action={} {} result={}", number,
               kv("caller", caller_), kv("address", address_), action_, kv("object", object),
               result);
  audit_->end(number, std::move(object), std::string(result));
}

}  // namespace trainyard::server
