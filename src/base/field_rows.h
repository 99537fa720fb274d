// src/base/field_rows.h: a table with a row for each plain field (number, switch, name) of a struct
// of settings. The row alone defines the field's name, its accepted values and the effects of a
// change. The conversion from the wire, checks, run identities, forks, job arrays and the tables of
// docs/job_spec.md read the rows.
//
//   const std::vector<FieldRow<OptimizerSpec>>& field_rows(const OptimizerSpec&) {
//     static const std::vector<FieldRow<OptimizerSpec>> rows = {
//         {"learning_rate", &OptimizerSpec::learning_rate, "This number scales each update.",
//          above(0, 1e6), kRequired | kForks | kPlanIgnores},
//         ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/violations.h"

namespace trainyard {

/// The numbers that a field accepts. NaN is in no range.
struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // `low` itself is outside of the range
  bool below_high = false;  // `high` itself is outside of the range

  bool contains(double value) const {
    return (above_low ? value > low : value >= low) && (below_high ? value < high : value <= high);
  }
  /// Returns the range for messages: "1..100" if `whole`, else for example "more than 0 and at most
  /// 1e6".
  std::string text(bool whole) const;
};
inline constexpr FieldRange kAnyValue;
constexpr FieldRange from_to(double low, double high) { return {low, high}; }
constexpr FieldRange above(double low, double high) { return {low, high, true}; }
constexpr FieldRange above_below(double low, double high) { return {low, high, true, true}; }
constexpr FieldRange below(double low, double high) { return {low, high, false, true}; }

enum FieldTrait : uint8_t {
  kOffAtZero = 1,         // 0 is accepted outside of the range: the field is not given
  kForks = 2,             // a fork may change the field (src/job/fork.h)
  kForksAboveZero = 4,    // a fork may change it between nonzero values; at 0 there is no state
  kPlanIgnores = 8,       // plans depend only on whether the value is 0, 1 or another number
  kOutsideIdentity = 16,  // the field influences no number of a run (src/job/identity.h)
  kRequired = 32          // the field has no default: the types that use it must be given it
};

using FieldNames = std::vector<std::string>;

template <typename S>
struct FieldRow {
  using Member = std::variant<int64_t S::*, int32_t S::*, uint64_t S::*, double S::*, bool S::*,
                              std::string S::*>;

  /// `means`: a sentence for users, for the table of docs/job_spec.md. `accepted`: the values that
  /// a text may have; empty for any. `used_by`: the values of the struct's `type` for which the
  /// field has an effect; empty if it has one for every type.
  FieldRow(std::string_view field, Member of, std::string means, FieldRange takes = kAnyValue,
           unsigned with = 0, FieldNames used_by = {}, FieldNames accepted = {})
      : name(field),
        member(of),
        sentence(std::move(means)),
        range(takes),
        traits(with),
        users(std::move(used_by)),
        names(std::move(accepted)) {}

  std::string_view name;  // as in spec files, where "ema.decay" is field `decay` of message `ema`
  Member member;
  std::string sentence;
  FieldRange range;
  unsigned traits;
  FieldNames users, names;

  bool is_whole() const { return !std::holds_alternative<double S::*>(member); }
  bool has(FieldTrait trait) const { return (traits & trait) != 0; }
  bool is_used_by(std::string_view type) const {
    return users.empty() || std::ranges::find(users, type) != users.end();
  }
};

/// Calls visit(name, value) for each row that belongs to a run's identity.
template <typename Spec, typename S = std::remove_const_t<Spec>>
void visit_rows(Spec& spec, auto&& visit) {
  for (const FieldRow<S>& row : field_rows(spec)) {
    if (row.has(kOutsideIdentity)) continue;
    std::visit([&](auto member) { visit(row.name, spec.*member); }, row.member);
  }
}

/// Returns whether two specs differ in a field.
template <typename S>
bool differs(const FieldRow<S>& row, const S& a, const S& b) {
  return std::visit([&](auto member) { return a.*member != b.*member; }, row.member);
}

/// Formats a bound for messages and tables: "1e6" instead of "1e+06", and "2^40" for a large power
/// of two.
std::string number_text(double value, bool whole);

// These add FIELD_OUT_OF_RANGE (check_number) or FIELD_UNKNOWN_VALUE (check_name) to `violations`.
void check_number(double value, bool whole, const FieldRange& range, const std::string& field,
                  Violations& violations);
void check_name(const std::string& value, const FieldNames& accepted, const std::string& field,
                Violations& violations);

/// Refuses values that their rows do not accept. Fields that have no effect for the spec's type are
/// not checked. `path` is the prefix of the names in messages: "recipe.optimizer.".
template <typename S>
void check_rows(const S& spec, std::string_view type, const std::string& path,
                Violations& violations) {
  for (const FieldRow<S>& row : field_rows(spec)) {
    if (!row.is_used_by(type)) continue;
    const auto check = [&](auto member) {
      using Value = std::remove_cvref_t<decltype(spec.*member)>;
      const Value& value = spec.*member;
      const std::string field = path + std::string(row.name);
      if constexpr (std::is_same_v<Value, std::string>) {
        check_name(value, row.names, field, violations);
      } else if constexpr (!std::is_same_v<Value, bool>) {
        if (row.has(kOffAtZero) && value == 0) return;
        check_number(static_cast<double>(value), std::is_integral_v<Value>, row.range, field,
                     violations);
      }
    };
    std::visit(check, row.member);
  }
}

/// Returns the types for which a field has an effect, for messages: "sgd, rmsprop or muon".
std::string users_text(const FieldNames& users);

/// Refuses fields that differ from `usual` although they have no effect for the spec's type.
template <typename S>
void check_unused_rows(const S& spec, const S& usual, const std::string& path,
                       Violations& violations) {
  for (const FieldRow<S>& row : field_rows(spec)) {
    if (row.is_used_by(spec.type) || !differs(row, spec, usual)) continue;
    violations.add("FIELD_UNUSED", path + std::string(row.name),
                   "has no effect here; remove it or choose type: " + users_text(row.users));
  }
}

}  // namespace trainyard
