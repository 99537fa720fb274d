#include "client/cli/people_view.h"

#include <optional>
#include <string_view>

#include "client/cli/output_json.h"
#include "client/lib/names.h"
#include "src/base/duration.h"
#include "src/base/join.h"
#include "src/base/resource_id.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

/// Reads a role of an enum by its name in lower case.
template <typename Role>
Result<Role> parse_role(const std::string& text, const std::vector<std::string>& names, int first) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == lower(text)) return static_cast<Role>(first + static_cast<int>(i));
  }
  return usage_error("--role: " + quoted_value(text) + " is not known, expected " + joined(names));
}

}  // namespace

std::string role_name(v1::ProjectRole role) { return lower(v1::ProjectRole_Name(role)); }
std::string role_name(v1::ServerRole role) { return lower(v1::ServerRole_Name(role)); }

const std::vector<std::string>& project_role_names() {
  static const std::vector<std::string> names = {"viewer", "member", "maintainer"};
  return names;
}

const std::vector<std::string>& server_role_names() {
  static const std::vector<std::string> names = {"user", "operator", "admin"};
  return names;
}

Result<v1::ProjectRole> parse_project_role(const std::string& text) {
  return parse_role<v1::ProjectRole>(text, project_role_names(), v1::VIEWER);
}

Result<v1::ServerRole> parse_server_role(const std::string& text) {
  return parse_role<v1::ServerRole>(text, server_role_names(), v1::USER);
}

Result<std::string> project_name(const std::string& text) {
  constexpr std::string_view kProjects = "projects/";
  const std::string id = text.starts_with(kProjects) ? text.substr(kProjects.size()) : text;
  if (is_resource_id(id)) return std::string(kProjects) + id;
  return make_error(ErrorCode::kInvalidArgument, "NAME_MALFORMED",
                    "project " + quoted_value(text) + ", expected " + resource_id_rule());
}

std::string memberships_text(
    const google::protobuf::RepeatedPtrField<v1::Membership>& memberships) {
  std::string text;
  for (const v1::Membership& membership : memberships) {
    text += (text.empty() ? "" : ", ") + role_name(membership.role()) + " of " +
            std::string(client::short_name(membership.project()));
  }
  return text;
}

Result<int64_t> parse_option_seconds(const std::string& option, const std::string& text) {
  if (const std::optional<int64_t> seconds = parse_duration(text)) return *seconds;
  return usage_error(option + ": " + quoted_value(text) + ", expected a time such as 12h or 90d");
}

void show_json(Session& session, const nlohmann::ordered_json& json,
               const std::function<std::string()>& table, const std::vector<std::string>& names) {
  switch (session.format()) {
    case Format::kTable:
    case Format::kWide:
    case Format::kCsv:
      session.out().write(table());
      return;
    case Format::kJson:
    case Format::kJsonl:
    case Format::kYaml:
      session.out().line(text_of(json, session.format()));
      return;
    case Format::kName:
      for (const std::string& name : names) session.out().line(safe_text(name));
      return;
  }
}

}  // namespace trainyard::cli
