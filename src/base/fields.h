// src/base/fields.h: how a struct of settings names its fields, once, for everything that walks
// over them: JSON, a run's identity, tests. Beside the struct stands
//
//   template <FieldsOf<EarlyStopping> Spec>
//   void visit_fields(Spec& spec, auto&& visit) {
//     auto& [metric, patience, min_delta, mode] = spec;
//     visit("metric", metric);
//     ...
//   }
//
// The structured binding names every member, so a field that is added and not named here does not
// compile. Names are those of spec files; "ema.decay" is a field of a message there.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace trainyard {

/// Spec or const Spec: what reads and what writes share one description.
template <typename T, typename Spec>
concept FieldsOf = std::same_as<std::remove_const_t<T>, Spec>;

/// Whether a field is written where it is empty: text, a list or a map without content.
enum class Written : uint8_t { kAlways, kUnlessEmpty };

/// A struct with visit_fields().
template <typename T>
concept HasFields = requires(const T& spec) {
  visit_fields(spec, [](const auto&...) {});
};

}  // namespace trainyard
