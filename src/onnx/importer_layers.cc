// Creates layers from views, with the axes that an operation needs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "src/onnx/constant_elements.h"
#include "src/onnx/importer_axes.h"

namespace trainyard::onnx {
namespace {

// The limit of a Constant layer (src/models/layers/arithmetic.cc).
constexpr float kConstantMax = 1e30f;

/// Returns `values` with permuted axes. `sizes` are the dimensions before the permutation.
template <typename T>
std::vector<T> permuted(const std::vector<T>& values, const std::vector<int64_t>& sizes,
                        const std::vector<int>& order) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  std::vector<T> result(values.size());
  std::vector<int64_t> at(order.size(), 0);
  int64_t from = 0;
  for (T& y : result) {
    y = values[static_cast<size_t>(from)];
    for (size_t k = order.size(); k-- > 0;) {
      const auto axis = static_cast<size_t>(order[k]);
      from += strides[axis];
      if (++at[k] < sizes[axis]) break;
      from -= strides[axis] * sizes[axis];
      at[k] = 0;
    }
  }
  return result;
}

}  // namespace

// --- layers ---

std::string Importer::free_name(const std::string& wanted, std::string_view op) {
  std::string name;
  for (const char c : wanted) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool fits = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') ||
                      lower == '_' || lower == '/';
    name += fits ? lower : '_';
  }
  const std::string stem(find_layer_kind(op)->field);
  const bool is_path = std::ranges::all_of(layers_, [&](const LayerSpec& other) {
    return !other.name.starts_with(name + "/") && !name.starts_with(other.name + "/");
  });
  if (!is_path) std::ranges::replace(name, '/', '_');
  size_t part = 0;  // length of the longest part
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    part = std::max(part, end - begin);
    if (end == begin) part = kRankMax * kRankMax;  // an empty part: make the name invalid
    begin = end + 1;
  }
  if (name.empty() || name[0] < 'a' || name[0] > 'z' || part > 56 || name.size() > 200) name = stem;
  constexpr std::string_view kReserved[] = {"input", "target", "loss", "step", "learning_rate"};
  if (std::ranges::find(kReserved, name.substr(0, name.find('/'))) != std::end(kReserved)) {
    name = stem + "_" + name;
  }
  if (!wanted.empty() && name != stem && names_.insert(name).second) return name;
  const std::string separator = name == stem ? "" : "_";
  while (true) {
    const int count = ++counters_[name];
    std::string numbered = name + separator + std::to_string(count + (separator.empty() ? 0 : 1));
    if (names_.insert(numbered).second) return numbered;
  }
}

Result<std::string> Importer::add_layer(std::string_view op, Attributes attributes,
                                        std::vector<std::string> inputs, const std::string& hint) {
  if (layers_.size() >= kLayersMax) {
    return misfit("the model has more than " + std::to_string(kLayersMax) + " layers");
  }
  LayerSpec layer;
  layer.name = free_name(hint, op);
  layer.op = op;
  layer.inputs = std::move(inputs);
  layer.attributes = std::move(attributes);
  if (Status s = network_->add(layer); !s.ok()) return misfit(s.error().message);
  layers_.push_back(std::move(layer));
  return layers_.back().name;
}

void Importer::set_weight(const std::string& layer, std::string_view suffix, Numbers numbers) {
  weights_[layer + "." + std::string(suffix)] = std::move(numbers);
}

std::vector<int64_t> Importer::sizes_of(const std::string& layer) const {
  const std::vector<int64_t>& dims = network_->find(layer)->shape.dims();
  return {dims.begin() + 1, dims.end()};
}

bool Importer::is_tokens(const std::string& layer) const {
  return network_->find(layer)->dtype == DType::kI32;
}

std::string Importer::name_hint(const Constant& weight) {
  const size_t dot = weight.initializer.rfind('.');
  return dot == std::string::npos ? "" : weight.initializer.substr(0, dot);
}

std::string Importer::layer_to_tie(const std::string& initializer) const {
  const auto it = weight_layers_.find(initializer);
  if (initializer.empty() || it == weight_layers_.end()) return "";
  const std::string& op = std::ranges::find(layers_, it->second, &LayerSpec::name)->op;
  return op == "Embedding" || op == "Linear" || op == "Gemm" ? it->second : "";
}

bool Importer::is_shared(const Constant& c) const {
  if (!c.trainable) return false;
  const auto readers =
      readers_.find(c.origins ? trained_->name_of(c.origins->front()) : c.initializer);
  return readers != readers_.end() && readers->second.size() > 1;
}

bool Importer::is_no_bias(const Constant& c) const {
  return !c.trainable && (names_parameters() || c.initializer.empty()) && c.is_float &&
         c.uniform() && c.floats->front() == 0;
}

// Identifies a constant. One whose elements were moved is no longer an initializer, but the origins
// of its elements still identify it. Fixed constants of equal numbers are the same.
std::string Importer::identity_of(const Constant& c) const {
  if (c.trainable && !c.initializer.empty()) return c.initializer + (c.transposed ? "^T" : "");
  if (c.trainable && !c.origins) return "";
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](uint32_t part) { hash = (hash ^ part) * 0x100000001b3; };
  if (c.origins) {
    for (const Origin o : *c.origins) add(o);
    return "#" + std::to_string(hash);
  }
  for (const float x : *c.floats) add(std::bit_cast<uint32_t>(x));
  return "=" + std::to_string(hash) + to_string(c.dims);
}

void Importer::remember_weight(const std::string& initializer, const std::string& layer) {
  if (initializer.empty()) return;
  if (!weight_layers_.emplace(initializer, layer).second) {
    note("Several layers of the file share a weight; in the model each has its own copy.");
  }
}

// --- views ---

std::vector<int> Importer::axis_of_atoms(const View& view) const {
  std::vector<int> axes(view.atoms.size(), 0);
  const std::vector<int64_t> sizes = sizes_of(view.layer);
  int axis = -1;
  int64_t left = 1;
  for (size_t atom = 1; atom < axes.size(); ++atom) {
    while (left == 1) left = sizes.at(static_cast<size_t>(++axis));
    TRAINYARD_CHECK(left % view.atoms[atom] == 0, "atoms that do not factor an axis");
    left /= view.atoms[atom];
    axes[atom] = axis + 1;
  }
  return axes;
}

Result<std::string> Importer::arrange(const View& view,
                                      const std::vector<std::vector<int>>& groups) {
  std::vector<int64_t> target;
  std::vector<std::vector<int>> runs;  // runs of atoms that stay together, in their new order
  for (const std::vector<int>& group : groups) {
    target.push_back(product_of(view, group));
    for (size_t i = 0; i < group.size(); ++i) {
      if (i == 0 || group[i] != group[i - 1] + 1) runs.emplace_back();
      runs.back().push_back(group[i]);
    }
  }
  size_t atoms = 0;
  for (const auto& run : runs) atoms += run.size();
  TRAINYARD_CHECK(atoms + 1 == view.atoms.size(), "axes that leave atoms out");
  if (target.empty()) target.push_back(1);
  if (target.size() + 1 > kRankMax || runs.size() + 1 > kRankMax) {
    return misfit("more than " + std::to_string(kRankMax) + " dimensions");
  }
  std::string key = view.layer + Shape(target).to_string() + Shape(view.atoms).to_string();
  for (const auto& run : runs) key += " " + std::to_string(run.front());
  if (const auto known = arranged_.find(key); known != arranged_.end()) return known->second;

  std::string layer = view.layer;
  const auto reshape_to = [&](const std::vector<int64_t>& sizes) -> Status {
    const std::vector<int64_t> now = sizes_of(layer);
    if (now == sizes) return {};
    if (is_tokens(layer)) return misfit("tokens are reshaped");
    Result<std::string> added = sizes.size() == 1 && now.size() > 1
                                    ? add_layer("Flatten", {}, {layer})
                                    : add_layer("Reshape", {{"shape", sizes}}, {layer});
    if (!added.ok()) return std::move(added).error();
    layer = *added;
    return {};
  };
  if (!std::ranges::is_sorted(runs, {}, [](const auto& run) { return run.front(); })) {
    std::vector<std::vector<int>> before = runs;
    std::ranges::sort(before, {}, [](const auto& run) { return run.front(); });
    std::vector<int64_t> sizes, perm = {0};
    for (const auto& run : before) sizes.push_back(product_of(view, run));
    for (const auto& run : runs) {
      perm.push_back(std::ranges::find(before, run) - before.begin() + 1);
    }
    if (Status s = reshape_to(sizes); !s.ok()) return std::move(s).error();
    if (is_tokens(layer)) return misfit("tokens are reordered");
    ASSIGN_OR_RETURN(layer, add_layer("Transpose", {{"perm", perm}}, {layer}));
  }
  if (Status s = reshape_to(target); !s.ok()) return std::move(s).error();
  return arranged_[key] = layer;
}

Result<Importer::Canonical> Importer::canonical(const View& view, bool keep_ones) {
  Canonical result;
  std::vector<std::vector<int>> groups;
  View& next = result.view;
  for (const std::vector<int>& dim : view.dims) {
    const size_t before = groups.size();
    auto& atoms = next.dims.emplace_back();
    bool is_open = false;  // the last group may take more atoms
    for (const int atom : dim) {
      if (atom == 0) {
        atoms.push_back(0);
        is_open = false;
        continue;
      }
      if (!is_open) {
        groups.emplace_back();
        atoms.push_back(static_cast<int>(next.atoms.size()));
        next.atoms.push_back(1);
      }
      is_open = true;
      groups.back().push_back(atom);
      next.atoms.back() *= view.atoms[static_cast<size_t>(atom)];
    }
    if (dim.empty() && keep_ones) groups.emplace_back();
    const bool is_axis = groups.size() == before + 1 && !holds_batch(dim);
    result.axis.push_back(is_axis ? static_cast<int64_t>(groups.size()) : -1);
  }
  ASSIGN_OR_RETURN(result.layer, arrange(view, groups));
  next.layer = result.layer;
  return result;
}

Result<std::string> Importer::constant_layer(const Constant& c, const std::vector<int64_t>& shape,
                                             Numbers numbers) {
  const bool uniform = c.uniform();
  if (uniform && !c.trainable && std::fabs(numbers.values.front()) <= kConstantMax) {
    const auto value = static_cast<double>(numbers.values.front());
    return add_layer("Constant", {{"shape", std::vector<int64_t>{1}}, {"value", value}}, {});
  }
  Attributes attributes{{"shape", uniform && !c.trainable ? std::vector<int64_t>{1} : shape}};
  if (!c.trainable) {
    attributes.set("init", std::string("constant"));
    attributes.set("trainable", int64_t{0});
    if (uniform) numbers.values.resize(1);
  }
  std::string hint = c.initializer;
  std::ranges::replace(hint, '.', '_');
  ASSIGN_OR_RETURN(const std::string layer, add_layer("Parameter", attributes, {}, hint));
  set_weight(layer, "weight", std::move(numbers));
  if (c.trainable) {
    remember_weight(c.initializer, layer);
  } else if (!uniform) {
    fixed_layers_.insert(layer);
  }
  return layer;
}

Result<std::string> Importer::arrange_operand(const Value& operand, const View& view,
                                              const Axes& axes, bool is_first) {
  const std::vector<std::vector<int>> groups = axes.of_operand(is_first);
  const auto* constant = std::get_if<Constant>(&operand);
  if (constant == nullptr) return arrange(view, groups);
  if (!constant->is_float) return misfit("whole numbers are combined with a layer's output");
  std::vector<int64_t> shape;
  std::vector<int> order;
  for (const auto& group : groups) {
    shape.push_back(product_of(view, group));
    for (const int atom : group) order.push_back(atom - 1);
  }
  const auto first = std::ranges::find_if(shape, [](int64_t size) { return size != 1; });
  shape.erase(shape.begin(), first);
  if (shape.empty()) shape.push_back(1);
  Numbers numbers{*constant->floats, {}};
  if (constant->origins) numbers.origins = *constant->origins;
  const std::vector<int64_t> sizes(view.atoms.begin() + 1, view.atoms.end());
  if (!constant->is_splat && !order.empty()) {
    numbers.values = permuted(numbers.values, sizes, order);
    if (constant->origins) numbers.origins = permuted(numbers.origins, sizes, order);
  }
  const std::string identity = identity_of(*constant);
  std::string key = identity + Shape(shape).to_string();
  for (const int atom : order) key += " " + std::to_string(atom);
  const bool is_known = !identity.empty();
  if (const auto known = arranged_.find(key); is_known && known != arranged_.end()) {
    return known->second;
  }
  ASSIGN_OR_RETURN(std::string layer, constant_layer(*constant, shape, std::move(numbers)));
  if (is_known) arranged_[key] = layer;
  return layer;
}

Result<View> Importer::to_view(const Constant& given) {
  if (!given.is_float || given.empty()) {
    return misfit(given.is_float ? "a constant without elements"
                                 : "whole numbers, expected a layer's output");
  }
  View view = shape_view(given);
  ASSIGN_OR_RETURN(const Constant constant, one_sample(given));
  if (constant.is_splat && constant.trainable && view.atoms.size() > 1) {
    return misfit("a single trained number is expanded over the batch");
  }
  std::vector<JointAtom> atoms;
  for (size_t i = 1; i < view.atoms.size(); ++i) {
    atoms.push_back({static_cast<int>(i), -1, view.atoms[i]});
  }
  Axes axes;
  for (const JointAtom& atom : atoms) axes.groups.push_back({atom});
  if (constant.uniform() && !constant.trainable && !atoms.empty() &&
      std::fabs(constant.floats->front()) <= kConstantMax) {
    ASSIGN_OR_RETURN(
        view.layer,
        add_layer("Constant",
                  {{"shape", std::vector<int64_t>(view.atoms.begin() + 1, view.atoms.end())},
                   {"value", static_cast<double>(constant.floats->front())}},
                  {}));
    return view;
  }
  // arrange_operand stores a fixed tensor of equal numbers beyond 1e30 as one element; it is
  // refused below.
  ASSIGN_OR_RETURN(view.layer, arrange_operand(constant, view, axes, true));
  const std::vector<int64_t> sizes(view.atoms.begin() + 1, view.atoms.end());
  if (!sizes.empty() && sizes_of(view.layer) != sizes) {
    return misfit("a constant of equal numbers beyond 1e30 is not an operand of arithmetic");
  }
  return view;
}

}  // namespace trainyard::onnx
