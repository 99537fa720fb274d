// client/cli/relative_name.h: names as people read and type them, relative to the command's
// project.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::cli {

/// Sets the project to which names are relative, "projects/default" at first. A process runs one
/// command in one project, so it is the same everywhere, like the time zone.
void set_base_project(std::string parent);

/// Returns the shortest name that means the same to a command in the base project: "digits-1" for a
/// job of the project, the full name for one of another project, "gpu-0" for a device. The result
/// is part of `name`.
std::string_view relative_name(std::string_view name);

}  // namespace trainyard::cli
