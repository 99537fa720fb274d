#include <algorithm>
#include <array>
#include <string>

#include "server/handlers/access.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

using enum AccessNeed;

constexpr auto kAccessRows = std::to_array<AccessRow>({
    // JobService
    {"SubmitJob", kMember, "parent"},
    {"PlanJob", kViewer, "parent"},
    {"ReadSpec", kAnyone},
    {"GetJob", kViewer, "name"},
    {"ListJobs", kViewer, "parent"},
    {"WatchJob", kViewer, "name"},
    {"CancelJob", kOwner, "name"},
    {.method = "SetJobPriority", .need = kOwner, .field = "name", .operators = true},
    {"PauseJob", kOwner, "name"},
    {"ResumeJob", kOwner, "name"},
    {"RetryJob", kMember, "name"},
    {"ForkJob", kMember, "name"},
    {"ListCheckpoints", kViewer, "name"},
    {.method = "ListQueue", .need = kAnyone, .field = "parent", .also = "name", .operators = true},
    {"SubmitArray", kMember, "parent"},
    {"GetArray", kViewer, "name"},
    {"ListArrays", kViewer, "parent"},
    {"CancelArray", kOwner, "name"},
    {"PauseArray", kOwner, "name"},
    {"ResumeArray", kOwner, "name"},
    {"DeleteArray", kOwner, "name"},
    {"DeleteJob", kOwner, "name"},
    // DatasetService
    {"UploadFile", kMember, "start.parent"},
    {"GetUpload", kViewer, "name"},
    {"CreateDataset", kMember, "parent"},
    {"GetDataset", kReader, "name"},
    {"ListDatasets", kViewer, "parent"},
    {"DeleteDataset", kOwner, "name"},
    // ModelService
    {"CreateModel", kMember, "parent"},
    {"ListModels", kViewer, "parent"},
    {"GetModel", kReader, "name"},
    {"DownloadModel", kReader, "name"},
    {"Predict", kReader, "name"},
    {"Generate", kReader, "name"},
    {"Evaluate", kReader, "name", "dataset"},
    {"DeleteModel", kOwner, "name"},
    // SystemService
    {"GetServerInfo", kAnyone},
    {"ListDevices", kAnyone},
    {"DrainDevice", kOperator},
    {"ResumeDevice", kOperator},
    {"Backup", kOperator},
    {"CollectGarbage", kOperator},
    {"ListAudit", kAdmin},
    {"SetQuota", kAdmin},
    {"ListQuotas", kAnyone},
    {"GetUsage", kAnyone},
    // PeopleService
    {"WhoAmI", kAnyone},
    {"ListPeople", kAdmin},
    {.method = "SetPerson", .need = kAdmin, .in_person = true},
    {"RemovePerson", kAdmin},
    {"ListProjects", kAnyone},
    {"CreateProject", kAdmin},
    {"SetProjectDevices", kOperator},
    {"DeleteProject", kAdmin},
    {"ListMembers", kViewer, "parent"},
    {"SetMember", kMaintainer, "parent"},
    {.method = "CreateToken", .need = kSelf, .field = "person", .in_person = true},
    // The handler knows only the caller's tokens, and for admins all.
    {.method = "RotateToken", .need = kAnyone, .in_person = true},
    {.method = "RevokeToken", .need = kAnyone, .in_person = true},
    {"ListTokens", kSelf, "person"},
    {"Share", kOwner, "name", "with_project"},
    {"Unshare", kOwner, "name"},
    {"ListShares", kViewer, "parent"},
});

/// Returns whether the message has a text field at the path, which may lead through messages.
bool has_text_at(const google::protobuf::Descriptor& message, std::string_view path) {
  using google::protobuf::FieldDescriptor;
  const size_t dot = path.find('.');
  const FieldDescriptor* field = message.FindFieldByName(std::string(path.substr(0, dot)));
  if (field == nullptr || field->is_repeated()) return false;
  if (dot == std::string_view::npos) return field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  return field->message_type() != nullptr &&
         has_text_at(*field->message_type(), path.substr(dot + 1));
}

}  // namespace

std::span<const AccessRow> access_rows() { return kAccessRows; }

const AccessRow* find_access_row(std::string_view method) {
  const auto* const row = std::ranges::find(kAccessRows, method, &AccessRow::method);
  return row == kAccessRows.end() ? nullptr : row;
}

void check_access_rows(const google::protobuf::ServiceDescriptor& service) {
  for (int i = 0; i < service.method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service.method(i);
    const AccessRow* row = find_access_row(method.name());
    TRAINYARD_CHECK(row != nullptr, method.full_name() + " has no row in the access table");
    for (const std::string_view field : {row->field, row->also}) {
      TRAINYARD_CHECK(field.empty() || has_text_at(*method.input_type(), field),
                      method.full_name() + " has no field " + std::string(field) +
                          ", which its row in the access table names");
    }
  }
}

}  // namespace trainyard::server
