// server/rpc/names.h: parses resource names.
//
// A name has the form projects/{project}/{collection}/{id}. Malformed names are refused with
// INVALID_ARGUMENT/NAME_MALFORMED. A valid name contains only [a-z0-9-] and so is safe as a file
// name, in a log and in SQL. Whether the project exists and the caller may use it is checked before
// the handler runs (server/handlers/access.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/store/dataset_ref.h"
#include "src/base/resource_id.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The number of hexadecimal digits of the content's hash in a generated ID, as in
/// d-2c26b46b68ffc68f.
inline constexpr size_t kDefaultIdDigits = 16;

enum class Collection { kJobs, kArrays, kDatasets, kModels, kUploads };

struct ResourceName {
  std::string project;
  std::string id;
};

/// Parses a full name. `field` is the request's field, for the error message.
Result<ResourceName> parse_name(Collection collection, std::string_view field,
                                std::string_view name);
/// Checks an ID that a user chose. Uploads have 64 hexadecimal digits. All others follow
/// src/base/resource_id.h; a refusal names the most similar ID that does.
Status check_id(Collection collection, std::string_view field, std::string_view id);
/// Parses `text`, which is a full name, or the ID of a resource in `project`.
Result<ResourceName> parse_id_or_name(Collection collection, std::string_view project,
                                      std::string_view field, std::string_view text);
/// These two do the same for a dataset, whose name may end in a version: digits@2.
Result<DatasetName> parse_dataset_name(std::string_view field, std::string_view name);
Result<DatasetName> parse_dataset_id_or_name(std::string_view project, std::string_view field,
                                             std::string_view text);
/// Returns the project of a request's parent, projects/{project}; kDefaultProject for an empty one.
Result<std::string> parse_parent(std::string_view parent);

std::string full_name(std::string_view project, Collection collection, std::string_view id);

/// Checks a device's name: devices/{device}. NAME_MALFORMED.
Status check_device_name(std::string_view name);

/// Checks that `request_id` is empty or a UUID, in lower or upper case.
Status check_request_id(std::string_view request_id);

}  // namespace trainyard::server
