#include "server/people/principal.h"

namespace trainyard::server {

const char* name_of(ProjectRole role) {
  switch (role) {
    case ProjectRole::kNone:
      return "none";
    case ProjectRole::kViewer:
      return "viewer";
    case ProjectRole::kMember:
      return "member";
    case ProjectRole::kMaintainer:
      return "maintainer";
  }
  return "unknown";
}

const char* name_of(ServerRole role) {
  switch (role) {
    case ServerRole::kUser:
      return "user";
    case ServerRole::kOperator:
      return "operator";
    case ServerRole::kAdmin:
      return "admin";
  }
  return "unknown";
}

std::optional<ProjectRole> project_role_named(std::string_view name) {
  using enum ProjectRole;
  for (const ProjectRole role : {kNone, kViewer, kMember, kMaintainer}) {
    if (name == name_of(role)) return role;
  }
  return std::nullopt;
}

std::string Principal::text() const {
  std::string out = person;
  if (!service.empty()) out += " by " + service;
  if (!token_id.empty()) out += " (token " + token_id + ")";
  return out;
}

}  // namespace trainyard::server
