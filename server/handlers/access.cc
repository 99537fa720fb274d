#include "server/handlers/access.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/store/store.h"
#include "src/base/check.h"
#include "src/base/resource_id.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kProjectPrefix = "projects/";
constexpr const char* kDefaultParent = "projects/default";
// Stands for all projects that the caller sees. No project has this name; only lists accept it.
constexpr std::string_view kEveryProject = "-";
constexpr int32_t kPriorityOfEveryone = 0;

/// Returns the text at the path ("name", "start.parent"). check_access_rows() has checked the path.
std::string text_of_path(const google::protobuf::Message& message, std::string_view path) {
  if (path.empty()) return {};
  const size_t dot = path.find('.');
  const google::protobuf::FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
  TRAINYARD_CHECK(field != nullptr, message.GetTypeName() + " has no field " + std::string(path));
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (dot == std::string_view::npos) return reflection.GetString(message, field);
  return text_of_path(reflection.GetMessage(message, field), path.substr(dot + 1));
}

struct ObjectName {
  std::string project;
  std::string collection;  // empty in a parent
  std::string id;
};

/// Returns the parts of "projects/{project}" or "projects/{project}/{collection}/{id}". Nothing for
/// a text that no handler accepts as a name; a text whose project is well-formed is always parsed,
/// even if a handler will refuse the rest.
std::optional<ObjectName> parse_object(std::string_view text) {
  if (!text.starts_with(kProjectPrefix)) return std::nullopt;
  text.remove_prefix(kProjectPrefix.size());
  const size_t end = text.find('/');
  ObjectName name{std::string(text.substr(0, end)), {}, {}};
  const bool plain = std::ranges::all_of(name.project, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!plain || name.project.empty() || name.project == kEveryProject ||
      name.project.size() > kResourceIdCharsMax) {
    return std::nullopt;
  }
  if (end == std::string_view::npos) return name;
  text.remove_prefix(end + 1);
  const size_t slash = text.find('/');
  name.collection = text.substr(0, slash);
  if (slash != std::string_view::npos) name.id = text.substr(slash + 1);
  return name;
}

/// Returns PERMISSION_DENIED / ROLE_REQUIRED. `text` says what needs the role: "CancelJob", or a
/// sentence about the object.
Error project_role_required(ProjectRole needed, ProjectRole held, const std::string& project,
                            const std::string& text) {
  Error e =
      make_error(ErrorCode::kPermissionDenied, "ROLE_REQUIRED",
                 text + " needs the role " + name_of(needed) + " in the project " + project +
                     ", and you are a " + name_of(held) + "; its maintainers can change that");
  e.metadata = {{"project", project}, {"role_required", name_of(needed)}, {"role", name_of(held)}};
  return e;
}

ProjectRole project_role_of(AccessNeed need) {
  if (need == AccessNeed::kMaintainer) return ProjectRole::kMaintainer;
  return need == AccessNeed::kMember || need == AccessNeed::kOwner ? ProjectRole::kMember
                                                                   : ProjectRole::kViewer;
}

}  // namespace

Error role_required(ServerRole needed, ServerRole held, std::string_view what) {
  Error e =
      make_error(ErrorCode::kPermissionDenied, "ROLE_REQUIRED",
                 std::string(what) + " needs the role " + name_of(needed) +
                     " on this server, and you are " + (held == ServerRole::kUser ? "a " : "an ") +
                     name_of(held) + "; an admin can change that");
  e.metadata = {{"role_required", name_of(needed)}, {"role", name_of(held)}};
  return e;
}

Status Rights::check_priority(std::string_view field, int32_t priority) const {
  if (priority <= kPriorityOfEveryone || server_role >= ServerRole::kOperator) return {};
  return role_required(
      ServerRole::kOperator, server_role,
      std::string(field) + ": " + std::to_string(priority) +
          " is above 0, which would put the job before those of everyone else; it");
}

Access::Asked Access::asked_of(std::string_view method, const google::protobuf::Message& request) {
  const AccessRow* row = find_access_row(method);
  TRAINYARD_CHECK(row != nullptr, std::string(method) + " has no row in the access table");
  return {row, text_of_path(request, row->field), text_of_path(request, row->also)};
}

Result<Rights> Access::check(std::string_view method, const google::protobuf::Message& request,
                             const Principal& principal) const {
  return check(asked_of(method, request), principal);
}

Result<Permit> Access::permit(std::string_view method, const google::protobuf::Message& request,
                              const Principal& principal) const {
  Asked asked = asked_of(method, request);
  if (Result<Rights> rights = check(asked, principal); !rights.ok()) return rights.error();
  return Permit(*this, std::move(asked), principal);
}

Result<Rights> Access::check(const Asked& asked, const Principal& principal) const {
  const AccessRow& row = *asked.row;
  Rights rights{ProjectRole::kNone, people_.server_role(principal)};
  if (row.in_person && !principal.service.empty()) {
    return make_error(ErrorCode::kPermissionDenied, "ACTING_FOR_DENIED",
                      std::string(row.method) + " is refused to services that act for a person; " +
                          principal.person + " must call it with a token of their own");
  }
  switch (row.need) {
    case AccessNeed::kSelf:
      if (!asked.name.empty() && asked.name != principal.person &&
          rights.server_role < ServerRole::kAdmin) {
        return role_required(ServerRole::kAdmin, rights.server_role,
                             std::string(row.method) + " for another person");
      }
      return rights;
    case AccessNeed::kOperator:
    case AccessNeed::kAdmin: {
      const ServerRole needed =
          row.need == AccessNeed::kAdmin ? ServerRole::kAdmin : ServerRole::kOperator;
      if (rights.server_role >= needed) return rights;
      return role_required(needed, rights.server_role, row.method);
    }
    case AccessNeed::kAnyone:
    case AccessNeed::kViewer:
    case AccessNeed::kReader:
    case AccessNeed::kMember:
    case AccessNeed::kOwner:
    case AccessNeed::kMaintainer:
      break;
  }
  if (Status s = check_name(asked, principal, rights); !s.ok()) return s.error();
  if (Status s = check_seen(row, asked.also, principal, rights); !s.ok()) return s.error();
  return rights;
}

Status Access::check_name(const Asked& asked, const Principal& principal, Rights& rights) const {
  const AccessRow& row = *asked.row;
  std::string text = asked.name;
  if (text.empty() && row.need != AccessNeed::kAnyone && row.field.ends_with("parent")) {
    text = kDefaultParent;
  }
  const std::optional<ObjectName> name = parse_object(text);
  if (!name) return {};
  rights.role = people_.role(principal, name->project);
  if (row.operators && rights.server_role >= ServerRole::kOperator) return {};
  if (rights.role == ProjectRole::kNone) {
    const bool shared =
        row.need == AccessNeed::kReader &&
        people_.is_shared_with(principal, name->project, name->collection, name->id);
    return shared ? Status() : project_not_found(name->project);
  }
  if (const ProjectRole needed = project_role_of(row.need); rights.role < needed) {
    return project_role_required(needed, rights.role, name->project, std::string(row.method));
  }
  return row.need == AccessNeed::kOwner && !rights.maintains() ? check_owner(asked, principal)
                                                               : Status();
}

Status Access::check_seen(const AccessRow& row, const std::string& text, const Principal& principal,
                          const Rights& rights) const {
  const std::optional<ObjectName> name = parse_object(text);
  if (!name || (row.operators && rights.server_role >= ServerRole::kOperator)) return {};
  if (people_.role(principal, name->project) != ProjectRole::kNone) return {};
  if (people_.is_shared_with(principal, name->project, name->collection, name->id)) return {};
  return project_not_found(name->project);
}

Status Access::check_owner(const Asked& asked, const Principal& principal) const {
  const ObjectName name = *parse_object(asked.name);
  ASSIGN_OR_RETURN(const std::optional<std::string> owner,
                   store_.owners().find(name.project, name.collection, name.id));
  if (!owner || *owner == principal.person) return {};  // the handler reports a missing object
  Error e = project_role_required(
      ProjectRole::kMaintainer, ProjectRole::kMember, name.project,
      asked.name + (owner->empty() ? " has no single owner" : " belongs to " + *owner) + "; " +
          std::string(asked.row->method));
  if (!owner->empty()) e.metadata["owner"] = *owner;
  return e;
}

Permit::Permit(const Access& access, Access::Asked asked, Principal principal)
    : access_(&access), asked_(std::move(asked)), principal_(std::move(principal)) {}

Status Permit::check() const {
  if (!access_->people().is_valid(principal_)) {
    return make_error(ErrorCode::kUnauthenticated, "CREDENTIALS_REVOKED",
                      "the token with which this stream began was revoked or has expired; call "
                      "again with another one");
  }
  const Result<Rights> rights = access_->check(asked_, principal_);
  return rights.ok() ? Status() : Status(rights.error());
}

}  // namespace trainyard::server
