// server/rpc/names.h: resource names, parsed in one place.
//
// A name is projects/{project}/{collection}/{id}. The only project so far is "default"; names of
// any other get PERMISSION_DENIED / ACCESS_DENIED, whether or not something with that name exists.
// Anything else is INVALID_ARGUMENT / NAME_MALFORMED. A valid name contains only [a-z0-9-] and so
// is safe as a file name, in a log and in SQL.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/store/dataset_ref.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The owner of everything while there is only one project.
inline constexpr const char* kProject = "default";
/// Hexadecimal digits of the content in a generated ID: d-2c26b46b68ffc68f.
inline constexpr size_t kDefaultIdDigits = 16;

enum class Collection { kJobs, kArrays, kDatasets, kModels, kUploads };

/// The id in a full name. `field` is the request's field, for the message.
Result<std::string> parse_name(Collection collection, std::string_view field,
                               std::string_view name);
/// An ID alone, as users choose it. Uploads: 64 hexadecimal digits; else 4..63, arrays 4..57, of
/// [a-z0-9-], beginning with a letter, not ending with a dash.
Status check_id(Collection collection, std::string_view field, std::string_view id);
/// An id, or a full name.
Result<std::string> parse_id_or_name(Collection collection, std::string_view field,
                                     std::string_view text);
/// The same for a dataset, whose name may end in a version: digits@2.
Result<DatasetRef> parse_dataset_name(std::string_view field, std::string_view name);
Result<DatasetRef> parse_dataset_id_or_name(std::string_view field, std::string_view text);
/// Empty or projects/default.
Status check_parent(std::string_view parent);

std::string full_name(Collection collection, std::string_view id);

/// The `name` of a device: devices/{device}. NAME_MALFORMED.
Status check_device_name(std::string_view name);

/// Empty or a UUID, in lower or upper case.
Status check_request_id(std::string_view request_id);

}  // namespace trainyard::server
