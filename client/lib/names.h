// client/lib/names.h: resource names, from what people type to full names and back.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::client {

/// A dataset's name may end in a version, `digits@2`, which is kept. `digits-1` and
/// `projects/default/jobs/digits-1` both become the latter. `collection` is "jobs", "arrays",
/// "datasets" or "models", where a job's name stands for what it trained. Refuses an empty id,
/// slashes in the wrong place and names of another collection.
Result<std::string> full_name(std::string_view collection, std::string_view text);

/// The parent of all jobs, datasets and models, because a server has one project.
inline constexpr std::string_view kParent = "projects/default";

/// The last segment, which tables show and people type.
std::string_view short_name(std::string_view name);

/// A random UUID (version 4), for request_id.
std::string make_uuid();

}  // namespace trainyard::client
