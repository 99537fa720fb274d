// client/lib/names.h: converts resource names between what people type and full names.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::client {

/// Converts a name to a full name: `digits-1` becomes `projects/default/jobs/digits-1`; a full name
/// stays unchanged. `collection` is "jobs", "arrays", "datasets" or "models"; a job's name
/// also names the model that it trained. The version of a dataset, `digits@2`, is kept. Refuses an
/// empty ID, misplaced slashes, and names of another collection.
Result<std::string> full_name(std::string_view collection, std::string_view text);

/// The parent of all resources, because a server has one project.
inline constexpr std::string_view kParent = "projects/default";

/// Returns the last segment of a name, which tables show and people type.
std::string_view short_name(std::string_view name);

/// Returns a random UUID (version 4), for request_id.
std::string make_uuid();

}  // namespace trainyard::client
