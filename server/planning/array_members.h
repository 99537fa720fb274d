// server/planning/array_members.h: the members of an array, from what its ArraySpec says. Pure.
//
// Bounds hold before anything is multiplied out: an array of ten million members costs as much as
// one of ten. A random value is a function of the array's seed, the member's number and the name of
// its field, so that another field changes no draw.
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
  const SpecField* field;  // of ArrayMembers::fields
  std::string json;
  std::string where;  // as a spec file has it: "array.grid.recipe.seed[2]"
};
struct ArrayMembers {
  ArrayMembers() = default;
  ArrayMembers(ArrayMembers&&) = default;
  ArrayMembers& operator=(ArrayMembers&&) = default;

  std::deque<SpecField> fields;  // whose elements stay where they are
  std::vector<std::vector<MemberValue>> members;
};

/// ARRAY_SIZE, FIELD_REQUIRED, FIELD_CONFLICT, FIELD_OUT_OF_RANGE, FIELD_TYPE, and SpecField's.
/// Values are JSON from then on, of whatever type.
Result<ArrayMembers> expand_array(const v1::ArraySpec& array);

}  // namespace trainyard::server
