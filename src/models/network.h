// src/models/network.h: a forward graph that is built one layer at a time, without target and loss.
// build_model() adds a checked list of layers. An importer adds layers that it chooses depending on
// the shapes so far.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/models/layer.h"

namespace trainyard {

class Network {
 public:
  /// Creates a graph with the tensor "input". Keeps references to both arguments. Refuses a batch
  /// that is too large.
  static Result<Network> start(const ModelInterface& interface, const BuildOptions& options);

  /// Appends a layer. Errors name the layer, also if it makes the model too large
  /// (kConnectionsMax). If `is_last`, sizes that are left out follow from the data.
  Result<TensorId> add(const ResolvedLayer& layer, bool is_last = false);
  /// Checks and appends a layer as a user writes it, which must have a name and all inputs.
  Status add(const LayerSpec& layer);

  /// Returns the type of the output that "name" or "name.1" refers to; nullptr if there is no such
  /// output.
  const TensorType* find(const std::string& reference) const;
  /// Returns true if the output has one value for each sample of the batch; false if it does not
  /// depend on the data.
  bool has_batch(const std::string& reference);

  LayerBuilder& builder() { return builder_; }
  const Model& model() const { return builder_.model(); }

 private:
  Network(const ModelInterface& interface, const BuildOptions& options)
      : builder_(interface, options) {}
  TensorId output_of(const std::string& reference) const;  // kNoTensor if there is none

  LayerBuilder builder_;
  std::map<std::string, std::vector<TensorId>> by_name_;
  size_t input_count_ = 0;  // inputs of all layers so far
};

}  // namespace trainyard
