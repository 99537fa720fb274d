// src/models/network.h: a forward graph that grows by one layer at a time, without a target and a
// loss. build_model() adds a checked list to it; an importer, which decides on a layer by the
// shapes before it, adds its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/models/layer.h"

namespace trainyard {

class Network {
 public:
  /// With the tensor "input". Borrows both. Refuses a batch that is too large.
  static Result<Network> start(const ModelInterface& interface, const BuildOptions& options);

  /// Appends a layer; refusals name it, and the one that makes the model too large
  /// (kConnectionsMax). `is_last`: sizes that are left out follow from the data.
  Result<TensorId> add(const ResolvedLayer& layer, bool is_last = false);
  /// As add, for a layer as a user writes it, with a name and all inputs: checked here.
  Status add(const LayerSpec& layer);

  /// What "name" or "name.1" refers to; nullptr if there is no such output.
  const TensorType* find(const std::string& reference) const;
  /// True if it is one value for each sample, and not the same for all.
  bool has_batch(const std::string& reference);

  LayerBuilder& builder() { return builder_; }
  const Model& model() const { return builder_.model(); }

 private:
  Network(const ModelInterface& interface, const BuildOptions& options)
      : builder_(interface, options) {}
  TensorId output_of(const std::string& reference) const;  // kNoTensor: there is none

  LayerBuilder builder_;
  std::map<std::string, std::vector<TensorId>> by_name_;
  size_t input_count_ = 0;  // of all layers
};

}  // namespace trainyard
