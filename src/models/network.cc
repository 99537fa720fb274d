#include "src/models/network.h"

#include <charconv>

#include "src/base/text.h"

namespace trainyard {

Result<Network> Network::start(const ModelInterface& interface, const BuildOptions& options) {
  std::vector<int64_t> dims = {options.batch_size};
  if (options.generation.capacity > 0) {
    dims.push_back(options.generation.new_tokens);
  } else {
    dims.insert(dims.end(), interface.input.dims().begin(), interface.input.dims().end());
  }
  const Shape shape(std::move(dims));
  if (!shape.fits()) {
    return field_error("SHAPE_OUT_OF_RANGE", "recipe.batch_size",
                       "a batch of shape " + shape.to_string() + " is too large");
  }
  Network network(interface, options);
  Model& model = network.builder_.model();
  const DType dtype = interface.vocabulary > 0 ? DType::kI32 : options.dtype;
  model.input = network.builder_.add_tensor("input", shape, dtype, Role::kInput, {});
  network.by_name_["input"] = {model.input};
  return network;
}

// "split1.2" is output 2 of split1; "split1" is its first output.
TensorId Network::output_of(const std::string& reference) const {
  const size_t dot = reference.find('.');
  const auto layer = by_name_.find(reference.substr(0, dot));
  if (layer == by_name_.end()) return kNoTensor;
  const std::vector<TensorId>& outputs = layer->second;
  if (dot == std::string::npos) return outputs[0];
  const std::string index = reference.substr(dot + 1);
  size_t i = 0;
  (void)std::from_chars(index.data(), index.data() + index.size(), i);
  return i < outputs.size() && index == std::to_string(i) ? outputs[i] : kNoTensor;
}

Result<TensorId> Network::add(const ResolvedLayer& layer, bool is_last) {
  builder_.set_last(is_last);
  std::vector<TensorId> inputs;
  for (const std::string& reference : layer.inputs) {
    inputs.push_back(output_of(reference));
    if (inputs.back() != kNoTensor) continue;
    const std::string producer = reference.substr(0, reference.find('.'));
    const size_t count = by_name_.at(producer).size();
    Error e = field_error("FIELD_UNKNOWN", layer.path + ".inputs",
                          quoted_value(reference) + " does not exist, expected " + producer + ".0" +
                              (count > 1 ? " to ." + std::to_string(count - 1) : ""));
    e.message = layer.where + ": inputs: " + e.violations[0].description;
    return e;
  }
  std::vector<TensorId> outputs;
  if (layer.kind->build != nullptr) {
    ASSIGN_OR_RETURN(outputs, layer.kind->build(builder_, layer, inputs));
  } else {
    ASSIGN_OR_RETURN(const TensorId y, builder_.add_node(layer, layer.name, layer.kind->op,
                                                         layer.attributes, inputs));
    outputs = {y};
  }
  input_count_ += inputs.size();
  if (input_count_ + builder_.graph().tensors().size() > kConnectionsMax) {
    Error e = LayerBuilder::shape_error(
        layer, "with it the model has more than " + std::to_string(kConnectionsMax) +
                   " tensors and inputs of layers, expected at most that many");
    e.reason = "FIELD_OUT_OF_RANGE";
    return e;
  }
  const TensorId first = outputs.at(0);
  by_name_[layer.name] = std::move(outputs);
  builder_.model().output = first;
  return first;
}

Status Network::add(const LayerSpec& spec) {
  TRAINYARD_CHECK(!spec.name.empty() && !by_name_.contains(spec.name), "a layer without a name");
  ResolvedLayer layer;
  layer.name = spec.name;
  layer.kind = find_layer_kind(spec.op);
  TRAINYARD_CHECK(layer.kind != nullptr, "no layer is named " + spec.op);
  layer.attributes = spec.attributes;
  layer.inputs = spec.inputs;
  layer.path = "model.layers";
  layer.where = "layer '" + spec.name + "'";
  Violations violations;
  check_attributes(layer.kind->attributes, layer.attributes,
                   layer.path + "." + std::string(layer.kind->field), layer.where, violations);
  if (!violations.empty()) return violations.to_error();
  if (layer.kind->complete != nullptr) layer.kind->complete(layer.attributes);
  const Result<TensorId> added = add(layer);
  return added.ok() ? Status() : added.error();
}

const TensorType* Network::find(const std::string& reference) const {
  const TensorId id = output_of(reference);
  return id == kNoTensor ? nullptr : &builder_.type(id);
}

bool Network::has_batch(const std::string& reference) {
  return builder_.has_batch(output_of(reference));
}

}  // namespace trainyard
