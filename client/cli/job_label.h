// client/cli/job_label.h: how views that cover several projects show a job.
#pragma once

#include <string>
#include <string_view>

#include "client/lib/names.h"

namespace trainyard::cli {

/// Stands for a job of a project that the caller may not see.
inline constexpr std::string_view kOtherProjectsJob = "another project's job";

/// Returns the job's ID, or its full name unless it is of the project `parent`, so that people can
/// type what they read: "digits-1", "projects/vision/jobs/digits-1". A job without a name is
/// another project's.
inline std::string job_label(std::string_view name, std::string_view parent) {
  if (name.empty()) return std::string(kOtherProjectsJob);
  return std::string(client::parent_of(name) == parent ? client::short_name(name) : name);
}

}  // namespace trainyard::cli
