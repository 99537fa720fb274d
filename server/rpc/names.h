// server/rpc/names.h: parses resource names.
//
// A name has the form projects/{project}/{collection}/{id}. The only project so far is "default";
// names of other projects are refused with PERMISSION_DENIED/ACCESS_DENIED, whether or not such a
// resource exists. Malformed names are refused with INVALID_ARGUMENT/NAME_MALFORMED. A valid name
// contains only [a-z0-9-] and so is safe as a file name, in a log and in SQL.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/store/dataset_ref.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The only project, which owns all resources.
inline constexpr const char* kProject = "default";
/// The number of hexadecimal digits of the content's hash in a generated ID, as in
/// d-2c26b46b68ffc68f.
inline constexpr size_t kDefaultIdDigits = 16;

enum class Collection { kJobs, kArrays, kDatasets, kModels, kUploads };

/// Returns the ID in a full name. `field` is the request's field, for the error message.
Result<std::string> parse_name(Collection collection, std::string_view field,
                               std::string_view name);
/// Checks an ID that a user chose. Uploads have 64 hexadecimal digits. All others follow
/// src/base/resource_id.h; a refusal names the most similar ID that does.
Status check_id(Collection collection, std::string_view field, std::string_view id);
/// Returns the ID in `text`, which is an ID or a full name.
Result<std::string> parse_id_or_name(Collection collection, std::string_view field,
                                     std::string_view text);
/// These two do the same for a dataset, whose name may end in a version: digits@2.
Result<DatasetRef> parse_dataset_name(std::string_view field, std::string_view name);
Result<DatasetRef> parse_dataset_id_or_name(std::string_view field, std::string_view text);
/// Checks that `parent` is empty or projects/default.
Status check_parent(std::string_view parent);

std::string full_name(Collection collection, std::string_view id);

/// Checks a device's name: devices/{device}. NAME_MALFORMED.
Status check_device_name(std::string_view name);

/// Checks that `request_id` is empty or a UUID, in lower or upper case.
Status check_request_id(std::string_view request_id);

}  // namespace trainyard::server
