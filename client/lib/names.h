// client/lib/names.h: converts resource names between what people type and full names.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::client {

/// Converts a name to a full name: `digits-1` becomes `projects/vision/jobs/digits-1` for the
/// parent `projects/vision`; a full name stays unchanged. `collection` is "jobs", "arrays",
/// "datasets" or "models"; a job's name also names the model that it trained. The version of a
/// dataset, `digits@2`, is kept. Refuses an empty ID, misplaced slashes, and names of another
/// collection.
Result<std::string> full_name(std::string_view collection, std::string_view text,
                              std::string_view parent);

/// Returns the last segment of a name.
std::string_view short_name(std::string_view name);

/// Returns the project of a full name, "projects/default"; empty if the name is not a full one.
std::string_view parent_of(std::string_view name);

/// Returns a random UUID (version 4), for request_id.
std::string make_uuid();

}  // namespace trainyard::client
