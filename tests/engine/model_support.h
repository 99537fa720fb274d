// tests/engine/model_support.h: helpers that describe models, build them and inspect the result.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/models/model_spec.h"

namespace trainyard::testing {

inline LayerSpec layer(std::string op, Attributes attributes = {}, std::string name = "",
                       std::vector<std::string> inputs = {},
                       std::map<std::string, std::string> bind = {}) {
  LayerSpec spec{std::move(name), std::move(op), std::move(inputs), std::move(attributes)};
  spec.bind = std::move(bind);
  return spec;
}

inline ModelSpec layers(std::vector<LayerSpec> list) {
  ModelSpec spec;
  spec.layers = std::move(list);
  return spec;
}

inline ModelSpec preset(std::string name, Attributes parameters = {}) {
  ModelSpec spec;
  spec.preset = std::move(name);
  spec.parameters = std::move(parameters);
  return spec;
}

inline Model build(const ModelSpec& spec, const ModelInterface& interface, bool training = true) {
  return build_model(spec, interface, {.batch_size = 2, .training = training}).value();
}

/// Counts the elements of all parameters.
inline int64_t parameters(const Model& model) {
  int64_t n = 0;
  for (const TensorInfo& t : model.graph.tensors()) {
    if (t.role == Role::kParameter) n += t.type.shape.elements();
  }
  return n;
}

/// Finds the tensor of this name, and fails the test if there is none.
inline const TensorInfo& tensor(const Model& model, std::string_view name) {
  const auto id = model.graph.find_tensor(name);
  EXPECT_TRUE(id.has_value()) << name;
  return model.graph.tensor(id.value_or(0));
}

/// Returns the error of building the model, and fails the test if the model can be built.
inline Error refusal(const ModelSpec& spec, const ModelInterface& interface) {
  const auto model = build_model(spec, interface, {.batch_size = 4});
  if (model.ok()) {
    ADD_FAILURE() << "expected a refusal";
    return {};
  }
  return model.error();
}

}  // namespace trainyard::testing
