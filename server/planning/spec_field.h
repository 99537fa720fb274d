// server/planning/spec_field.h: a field of a job's spec, named by its path, which can be set to
// JSON values.
//
// Paths are those of `--set` (recipe.optimizer.learning_rate, model.layers[2].conv.out_channels,
// labels.team). Values are those of spec files: enum values in lower case, a number for a list of
// one, and the short forms that the fields' options allow (proto/trainyard/v1/spec_options.proto).
// Only a value's type is checked here; the engine checks its meaning later.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

class SpecField {
 public:
  /// Error: FIELD_PATH_INVALID for an invalid path, FIELD_UNKNOWN for an unknown name. Here and
  /// below, `where` is the place that errors name.
  static Result<SpecField> parse(std::string_view path, const std::string& where);

  const std::string& path() const { return path_; }
  /// Returns the path's first name, such as "recipe".
  const std::string& root() const { return steps_.front().field->name(); }
  /// Returns true if one of the fields is the same as the other or a part of it.
  bool overlaps(const SpecField& other) const;

  /// Replaces the field's whole value by `json`, which must be valid JSON; null removes the field.
  /// FIELD_TYPE_INVALID, FIELD_UNSUPPORTED, FIELD_OUT_OF_RANGE, FIELD_UNKNOWN; FIELD_PATH_INVALID
  /// if the spec has no such place.
  Status set(v1::JobSpec& spec, const std::string& json, const std::string& where) const;

 private:
  struct Step {
    const google::protobuf::FieldDescriptor* field;
    int64_t index = -1;    // in a list
    std::string key = {};  // in a map of texts
    bool has_key = false;
  };
  std::string path_;
  std::vector<Step> steps_;
};

}  // namespace trainyard::server
