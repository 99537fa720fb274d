// server/handlers/visibility.h: which projects the caller of a call may see. Views of the whole
// server, such as the queue and the devices, leave out the names of all other projects' jobs.
#pragma once

#include <string_view>

#include "server/people/people.h"

namespace trainyard::server {

/// Valid for one call.
class Visibility {
 public:
  Visibility(const People& people, const Principal& principal)
      : people_(people),
        principal_(principal),
        sees_all_(people.server_role(principal) >= ServerRole::kOperator) {}

  /// Whether the caller is an operator or an admin.
  bool sees_all() const { return sees_all_; }
  bool sees(std::string_view project) const {
    return sees_all_ || people_.role(principal_, project) >= ProjectRole::kViewer;
  }
  /// Returns whether the caller may see the resource: projects/{project}/...
  bool sees_name(std::string_view name) const { return sees(project_in(name)); }

 private:
  static std::string_view project_in(std::string_view name) {
    constexpr std::string_view kPrefix = "projects/";
    if (!name.starts_with(kPrefix)) return {};
    name.remove_prefix(kPrefix.size());
    return name.substr(0, name.find('/'));
  }

  const People& people_;
  const Principal& principal_;
  const bool sees_all_;
};

}  // namespace trainyard::server
