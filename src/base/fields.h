// src/base/fields.h: how a struct of settings lists its fields, once, for all code that visits
// them: JSON, a run's identity, tests. The header of the struct defines a function of this form:
//
//   template <FieldsOf<EarlyStopping> Spec>
//   void visit_fields(Spec& spec, auto&& visit) {
//     auto& [metric, patience, min_delta, mode] = spec;
//     visit("metric", metric);
//     ...
//   }
//
// The structured binding names every member, so the function does not compile if a new field is
// missing from it. Names are those of spec files, where "ema.decay" is field `decay` of message
// `ema`.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace trainyard {

/// `T` is Spec or const Spec, so that one visit_fields() serves both writers and readers of a spec.
template <typename T, typename Spec>
concept FieldsOf = std::same_as<std::remove_const_t<T>, Spec>;

/// Whether an empty field (text, list or map) is written.
enum class Written : uint8_t { kAlways, kUnlessEmpty };

/// A struct with visit_fields().
template <typename T>
concept HasFields = requires(const T& spec) {
  visit_fields(spec, [](const auto&...) {});
};

}  // namespace trainyard
