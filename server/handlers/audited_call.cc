#include "server/handlers/audited_call.h"

#include <google/protobuf/descriptor.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/config/log.h"
#include "server/rpc/front.h"
#include "server/store/audit_store.h"
#include "src/base/text.h"
#include "trainyard/v1/people_service.pb.h"

namespace trainyard::server {
namespace {

constexpr size_t kObjectBytesMax = 256;

constexpr std::array<std::string_view, 35> kAudited{
    "SubmitJob",     "CancelJob",         "SetJobPriority", "PauseJob",      "ResumeJob",
    "RetryJob",      "ForkJob",           "DeleteJob",      "SubmitArray",   "CancelArray",
    "PauseArray",    "ResumeArray",       "DeleteArray",    "UploadFile",    "CreateDataset",
    "DeleteDataset", "CreateModel",       "DeleteModel",    "DownloadModel", "DrainDevice",
    "ResumeDevice",  "CollectGarbage",    "Backup",         "SetPerson",     "RemovePerson",
    "CreateProject", "SetProjectDevices", "DeleteProject",  "SetMember",     "CreateToken",
    "RotateToken",   "RevokeToken",       "Share",          "Unshare",       "SetQuota"};

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

/// Returns the name of an enumeration's value in lower case; empty if the field is absent or unset.
std::string enum_field(const google::protobuf::Message& message, const char* name) {
  const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_ENUM ||
      message.GetReflection()->GetEnumValue(message, field) == 0) {
    return {};
  }
  return lower(message.GetReflection()->GetEnum(message, field)->name());
}

/// Returns what the request is about: the name of an existing resource, or the ID that a new one is
/// to get; for a change of roles and shares also who and which: "projects/vision ada maintainer".
std::string object_of(const google::protobuf::Message& request) {
  std::string object;
  for (const char* field :
       {"name", "job_id", "array_id", "dataset_id", "model_id", "project_id", "id"}) {
    if (object = text_field(request, field); !object.empty()) break;
  }
  if (request.GetDescriptor()->file() != v1::Person::descriptor()->file()) {
    for (const char* field : {"project", "person"}) {
      if (object.empty()) object = text_field(request, field);
    }
    return object;
  }
  if (object.empty()) object = text_field(request, "parent");
  for (std::string more : {text_field(request, "person"), text_field(request, "give_to"),
                           text_field(request, "with_project"), enum_field(request, "role"),
                           enum_field(request, "server_role")}) {
    if (!more.empty()) object += (object.empty() ? "" : " ") + more;
  }
  return object;
}

/// Returns the name of the resource in the response; the ID of a token.
std::string object_of_response(const google::protobuf::Message& response) {
  if (response.GetDescriptor() == v1::CreateTokenResponse::descriptor()) {
    return static_cast<const v1::CreateTokenResponse&>(response).token().id();
  }
  // The request says more about people, projects and shares.
  if (response.GetDescriptor()->file() == v1::Person::descriptor()->file()) return {};
  return text_field(response, "name");
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
  end("OK", object_of_response(response));
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
