// client/cli/job_label.h: how views that cover several projects show a job.
#pragma once

#include <string>
#include <string_view>

#include "client/lib/names.h"

namespace trainyard::cli {

/// Stands for a job of a project that the caller may not see.
inline constexpr std::string_view kOtherProjectsJob = "another project's job";

/// Returns the job's ID, with its project before it unless that is `parent`: "digits-1",
/// "vision/digits-1". A job without a name is another project's.
inline std::string job_label(std::string_view name, std::string_view parent) {
  if (name.empty()) return std::string(kOtherProjectsJob);
  const std::string id(client::short_name(name));
  const size_t end = name.find("/jobs/");
  if (end == name.npos || name.substr(0, end) == parent) return id;
  return std::string(client::short_name(name.substr(0, end))) + "/" + id;
}

}  // namespace trainyard::cli
