#include "server/rpc/names.h"

#include <algorithm>
#include <array>

#include "src/base/resource_id.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

std::string_view collection_name(Collection collection) {
  switch (collection) {
    case Collection::kJobs:
      return "jobs";
    case Collection::kArrays:
      return "arrays";
    case Collection::kDatasets:
      return "datasets";
    case Collection::kModels:
      return "models";
    case Collection::kUploads:
      return "uploads";
  }
  return "";
}

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns whether `text` has only characters that are allowed in all IDs, including those of
/// projects; collections have stricter rules.
bool is_word(std::string_view text, size_t chars_max) {
  return !text.empty() && text.size() <= chars_max &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

size_t chars_max(Collection collection) {
  return collection == Collection::kArrays ? kArrayIdCharsMax : kResourceIdCharsMax;
}

bool is_id(Collection collection, std::string_view id) {
  if (collection == Collection::kUploads) return is_sha256_hex(id);
  return is_resource_id(id, chars_max(collection));
}

Error malformed(std::string_view field, std::string_view value, const std::string& expected) {
  return field_error("NAME_MALFORMED", std::string(field),
                     quoted_value(value) + " is malformed, expected " + expected);
}

std::string id_rule(Collection collection) {
  return collection == Collection::kUploads ? "64 lower-case hexadecimal digits (SHA-256)"
                                            : resource_id_rule(chars_max(collection));
}

/// Returns the end of the message with the ID that the user may mean: "; 'shop' would do" for
/// "Shop" and, because a job's file is often named in place of the job, for "shop.yaml".
std::string similar_id(Collection collection, std::string_view text) {
  if (collection == Collection::kUploads) return "";
  for (const std::string_view ending : {".yaml", ".yml", ".json"}) {
    if (text.ends_with(ending)) text.remove_suffix(ending.size());
  }
  const std::string id = resource_id_of(text, chars_max(collection));
  return id.empty() ? "" : "; '" + id + "' would do";
}

}  // namespace

Result<ResourceName> parse_name(Collection collection, std::string_view field,
                                std::string_view name) {
  const std::string_view plural = collection_name(collection);
  const auto refuse = [&] {
    return malformed(
        field, name,
        "projects/PROJECT/" + std::string(plural) + "/ID with an ID of " + id_rule(collection));
  };
  std::array<std::string_view, 4> parts;
  std::string_view rest = name;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t slash = i + 1 < parts.size() ? rest.find('/') : rest.size();
    if (slash == std::string_view::npos) return refuse();
    parts[i] = rest.substr(0, slash);
    rest = rest.substr(std::min(rest.size(), slash + 1));
  }
  if (parts[0] != "projects" || !is_word(parts[1], kResourceIdCharsMax) || parts[2] != plural) {
    return refuse();
  }
  // A malformed ID is reported without the rest of the name, which the client may have added to the
  // user's ID.
  if (Status s = check_id(collection, field, parts[3]); !s.ok()) return s.error();
  return ResourceName{std::string(parts[1]), std::string(parts[3])};
}

Status check_id(Collection collection, std::string_view field, std::string_view id) {
  if (is_id(collection, id)) return {};
  return malformed(field, id, id_rule(collection) + similar_id(collection, id));
}

Result<ResourceName> parse_id_or_name(Collection collection, std::string_view project,
                                      std::string_view field, std::string_view text) {
  if (text.find('/') != std::string_view::npos) return parse_name(collection, field, text);
  if (Status s = check_id(collection, field, text); !s.ok()) return s.error();
  return ResourceName{std::string(project), std::string(text)};
}

namespace {

/// Adds the version, if there is one after the ID in `text`.
Result<DatasetName> with_version(ResourceName name, std::string_view field, std::string_view text) {
  const size_t at = std::min(text.find('@'), text.size());
  std::optional<DatasetRef> ref = parse_dataset_ref(name.id + std::string(text.substr(at)));
  if (!ref) {
    return malformed(field, text,
                     "a version after the @, a number of at least 1 as in " + name.id + "@2");
  }
  return DatasetName{std::move(name.project), std::move(*ref)};
}

}  // namespace

Result<DatasetName> parse_dataset_name(std::string_view field, std::string_view name) {
  ASSIGN_OR_RETURN(ResourceName parsed,
                   parse_name(Collection::kDatasets, field, name.substr(0, name.find('@'))));
  return with_version(std::move(parsed), field, name);
}

Result<DatasetName> parse_dataset_id_or_name(std::string_view project, std::string_view field,
                                             std::string_view text) {
  ASSIGN_OR_RETURN(ResourceName parsed, parse_id_or_name(Collection::kDatasets, project, field,
                                                         text.substr(0, text.find('@'))));
  return with_version(std::move(parsed), field, text);
}

Result<std::string> parse_parent(std::string_view parent) {
  if (parent.empty()) return std::string(kDefaultProject);
  constexpr std::string_view kPrefix = "projects/";
  if (!parent.starts_with(kPrefix) ||
      !is_word(parent.substr(kPrefix.size()), kResourceIdCharsMax)) {
    return malformed("parent", parent, "projects/PROJECT");
  }
  return std::string(parent.substr(kPrefix.size()));
}

std::string full_name(std::string_view project, Collection collection, std::string_view id) {
  return "projects/" + std::string(project) + "/" + std::string(collection_name(collection)) + "/" +
         std::string(id);
}

Status check_device_name(std::string_view name) {
  const std::string_view id = name.starts_with("devices/") ? name.substr(8) : std::string_view();
  const bool plain = std::ranges::all_of(
      id, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (!id.empty() && id.size() <= 63 && plain) return {};
  return field_error("NAME_MALFORMED", "name",
                     quoted_value(name) +
                         " is not a device's name, expected devices/cpu or one "
                         "such as devices/gpu-0");
}

Status check_request_id(std::string_view request_id) {
  if (request_id.empty()) return {};
  bool ok = request_id.size() == 36;
  for (size_t i = 0; ok && i < request_id.size(); ++i) {
    const char c = request_id[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    ok = dash ? c == '-' : is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }
  if (ok) return {};
  return field_error(
      "REQUEST_ID_MALFORMED", "request_id",
      quoted_value(request_id) + " is not a UUID, as in 7d444840-9dc0-11d1-b245-5ffdce74fad2");
}

}  // namespace trainyard::server
