// server/planning/array_members.h: expands an ArraySpec to the members of the array. Pure.
//
// Limits are checked before anything is multiplied out, so an array of ten million members costs as
// much as one of ten. A random value is a function of the array's seed, the member's number and the
// name of its field, so that another field changes no value.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "server/planning/spec_field.h"
#include "src/base/result.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::server {

inline constexpr int64_t kArrayMembersMax = 10'000;
inline constexpr int kArrayFieldsMax = 32;
inline constexpr size_t kArrayValueBytesMax = 64 << 10;

struct MemberValue {
  const SpecField* field;  // an element of ArrayMembers::fields
  std::string json;
  std::string where;  // the place in a spec file
};
struct ArrayMembers {
  ArrayMembers() = default;
  ArrayMembers(ArrayMembers&&) = default;
  ArrayMembers& operator=(ArrayMembers&&) = default;

  std::deque<SpecField> fields;  // a deque, so that the elements do not move
  std::vector<std::vector<MemberValue>> members;
};

/// Expands the array. Errors: ARRAY_SIZE_INVALID, FIELD_REQUIRED, FIELD_CONFLICT,
/// FIELD_OUT_OF_RANGE, FIELD_TYPE_INVALID, and those of SpecField. The values of all members are
/// valid JSON of any type.
Result<ArrayMembers> expand_array(const v1::ArraySpec& array);

}  // namespace trainyard::server
