// src/base/field_rows.h: plain fields of a struct of settings (numbers, switches, names) as rows:
// the one place that says what a field is called, what it means, what it takes and what follows
// from a change. The conversion from the wire, checks, runs' identities, forks, arrays and the
// tables of docs/job_spec.md all read the rows.
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

/// The numbers that a field takes. NaN is in no range.
struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // the low end does not belong to it
  bool below_high = false;  // the high end does not belong to it

  bool contains(double value) const {
    return (above_low ? value > low : value >= low) && (below_high ? value < high : value <= high);
  }
  /// "1..100" or "1..2^40" of whole numbers, else "more than 0 and at most 1e6".
  std::string text(bool whole) const;
};
inline constexpr FieldRange kAnyValue;
constexpr FieldRange from_to(double low, double high) { return {low, high}; }
constexpr FieldRange above(double low, double high) { return {low, high, true}; }
constexpr FieldRange above_below(double low, double high) { return {low, high, true, true}; }
constexpr FieldRange below(double low, double high) { return {low, high, false, true}; }

enum FieldTrait : uint8_t {
  kOffAtZero = 1,         // 0 is outside of the range and means that the field is not given
  kForks = 2,             // a fork may change it (src/job/fork.h)
  kForksAboveZero = 4,    // it may, unless one of the two values is 0: then there is no state
  kPlanIgnores = 8,       // no plan depends on the value, but on whether it is 0 or 1
  kOutsideIdentity = 16,  // it decides no number of a run (src/job/identity.h)
  kRequired = 32          // the types that look at it have no default for it
};

using FieldNames = std::vector<std::string>;

template <typename S>
struct FieldRow {
  using Member = std::variant<int64_t S::*, int32_t S::*, uint64_t S::*, double S::*, bool S::*,
                              std::string S::*>;

  /// `means`: a sentence for users, which the manual's table has. `accepted`: what a text may be;
  /// none: any text. `looks`: the values of the struct's `type` that look at the field; none: all
  /// do.
  FieldRow(std::string_view field, Member of, std::string means, FieldRange takes = kAnyValue,
           unsigned with = 0, FieldNames looks = {}, FieldNames accepted = {})
      : name(field),
        member(of),
        sentence(std::move(means)),
        range(takes),
        traits(with),
        users(std::move(looks)),
        names(std::move(accepted)) {}

  std::string_view name;  // as in spec files; "ema.decay" is a field of a message there
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

/// Whether two specs differ in a field.
template <typename S>
bool differs(const FieldRow<S>& row, const S& a, const S& b) {
  return std::visit([&](auto member) { return a.*member != b.*member; }, row.member);
}

/// "1e6", not "1e+06"; "2^40", and the digits of a smaller whole number.
std::string number_text(double value, bool whole);

// FIELD_OUT_OF_RANGE, and FIELD_UNKNOWN_VALUE for a text.
void check_number(double value, bool whole, const FieldRange& range, const std::string& field,
                  Violations& violations);
void check_name(const std::string& value, const FieldNames& accepted, const std::string& field,
                Violations& violations);

/// Refuses what no row takes; of fields that the spec's type does not look at, nothing. `path`
/// stands before names: "recipe.optimizer.".
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

/// "sgd, rmsprop or muon": who looks at a field.
std::string users_text(const FieldNames& users);

/// Refuses fields that differ from `usual` though the spec's type does not look at them.
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
