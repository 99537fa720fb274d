// proto/convert/spec_parts.h: converters for the parts of a job's spec, and helpers that they
// share.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "src/base/violations.h"
#include "src/job/recipe.h"
#include "src/models/model_spec.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {

ModelSpec to_model(const v1::ModelSpec& model, Violations& violations);
Recipe to_recipe(const v1::Recipe& recipe, Violations& violations);

std::string lower(std::string text);
/// Converts every field that is set to an attribute of the same name; an enum value becomes its
/// name in lower case.
Attributes to_attributes(const google::protobuf::Message& message, const std::string& path,
                         Violations& violations);
/// Returns the field of a oneof that is set, or null.
const google::protobuf::FieldDescriptor* set_field(const google::protobuf::Message& message,
                                                   const char* oneof);
/// Returns the values of an enum except "unspecified": "class, numeric".
std::string value_names(const google::protobuf::EnumDescriptor& type);

/// Returns the name of an enum value in lower case; empty for an unknown number.
template <typename Enum>
std::string enum_name(Enum value) {
  const auto* descriptor = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return descriptor == nullptr ? "" : lower(descriptor->name());
}

/// Returns the name of an enum value. Returns `fallback` for 0; for an unknown number it also adds
/// a violation.
template <typename Enum>
std::string read_enum(Enum value, const std::string& field, const std::string& fallback,
                      Violations& violations) {
  if (static_cast<int>(value) == 0) return fallback;
  const std::string name = enum_name(value);
  if (!name.empty()) return name;
  violations.add("FIELD_UNSUPPORTED", field,
                 std::to_string(static_cast<int>(value)) + " is not known, expected one of " +
                     value_names(*google::protobuf::GetEnumDescriptor<Enum>()));
  return fallback;
}

}  // namespace trainyard
