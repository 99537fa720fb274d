// server/planning/spec_field.h: a field of a job's spec by its path, and values for it as JSON.
//
// Paths are those of `--set` (recipe.optimizer.learning_rate, model.layers[2].conv.out_channels,
// labels.team), values those of spec files: enum values in lower case, one number for a list of
// one, the short forms that the options of fields allow (proto/trainyard/v1/spec_options.proto).
// What the engine says about a value comes later; here only its type counts.
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
  /// FIELD_PATH for a path that leads nowhere, FIELD_UNKNOWN for a name that is none. Here and
  /// below, `where` is what refusals name.
  static Result<SpecField> parse(std::string_view path, const std::string& where);

  const std::string& path() const { return path_; }
  /// Its first name: "recipe".
  const std::string& root() const { return steps_.front().field->name(); }
  /// True if one of the two is the other or a part of it.
  bool overlaps(const SpecField& other) const;

  /// Puts a value, which is valid JSON, in the field's place, whole; null removes it. FIELD_TYPE,
  /// FIELD_UNSUPPORTED, FIELD_OUT_OF_RANGE, FIELD_UNKNOWN; FIELD_PATH if the spec has no such
  /// place.
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
