// Layers from views: the axes that an operation needs, and the operations that several rows of the
// table are made of.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/onnx/importer.h"

namespace trainyard::onnx {
namespace {

constexpr float kConstantMax = 1e30f;  // of a Constant layer (src/models/layers/arithmetic.cc)

Error misfit(const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "ONNX_UNSUPPORTED", what);
}

int64_t product_of(const View& view, const std::vector<int>& atoms) {
  int64_t n = 1;
  for (const int atom : atoms) n *= view.atoms[static_cast<size_t>(atom)];
  return n;
}

std::vector<int> without_batch(std::vector<int> dim) {
  std::erase(dim, 0);
  return dim;
}

bool holds_batch(const std::vector<int>& dim) { return std::ranges::find(dim, 0) != dim.end(); }

/// `values`, whose dimensions are `sizes`, with these in another order.
std::vector<float> permuted(const std::vector<float>& values, const std::vector<int64_t>& sizes,
                            const std::vector<int>& order) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  std::vector<float> result(values.size());
  std::vector<int64_t> at(order.size(), 0);
  int64_t from = 0;
  for (float& y : result) {
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

/// A constant's dimensions as if a layer computed it.
View shape_view(const Constant& c) {
  View view;
  for (const Extent& e : c.dims) {
    if (e.batch) {
      view.push_batch();
    } else {
      view.push_dim(e.count);
    }
  }
  return view;
}

/// Splits atoms until dimension `i` of both is made of the same ones, or one of them has size 1.
Status align(View& a, View& b, size_t i) {
  if (a.dims[i].empty() || b.dims[i].empty()) return {};
  const auto refuse = [&] {
    return misfit("shapes " + to_string(a.extents()) + " and " + to_string(b.extents()) +
                  " do not go together without mixing samples");
  };
  for (size_t k = 0; k < a.dims[i].size() || k < b.dims[i].size(); ++k) {
    if (k >= a.dims[i].size() || k >= b.dims[i].size()) return refuse();
    const int x = a.dims[i][k], y = b.dims[i][k];
    if (x == 0 || y == 0) {
      if (x != y) return refuse();
      continue;
    }
    const int64_t sx = a.atoms[static_cast<size_t>(x)], sy = b.atoms[static_cast<size_t>(y)];
    if (sx == sy) continue;
    if (sx > sy && sx % sy == 0) {
      a.split(x, sy);
    } else if (sy > sx && sy % sx == 0) {
      b.split(y, sx);
    } else {
      return refuse();
    }
  }
  return {};
}

/// An atom of the result of two operands: theirs, or -1 where one has size 1.
struct JointAtom {
  int a = -1, b = -1;
  int64_t size = 1;
};

struct Joint {
  std::vector<JointAtom> atoms;              // in the order of the layer's axes, without the batch
  std::vector<std::vector<JointAtom>> dims;  // of the result; a = b = 0 stands for the batch
};

Joint join(const View& a, const View& b, size_t dims) {
  Joint joint;
  for (size_t i = 0; i < dims; ++i) {
    const std::vector<int>&da = a.dims[i], &db = b.dims[i];
    auto& dim = joint.dims.emplace_back();
    for (size_t k = 0; k < std::max(da.size(), db.size()); ++k) {
      const int x = da.empty() ? -1 : da[k], y = db.empty() ? -1 : db[k];
      if (x == 0 || y == 0) {
        dim.push_back({0, 0, 1});
        continue;
      }
      const int64_t size =
          x > 0 ? a.atoms[static_cast<size_t>(x)] : b.atoms[static_cast<size_t>(y)];
      dim.push_back({x, y, size});
      joint.atoms.push_back(dim.back());
    }
  }
  return joint;
}

void push_dims(const Joint& joint, View& result) {
  for (const auto& dim : joint.dims) {
    auto& atoms = result.dims.emplace_back();
    for (const JointAtom& wanted : dim) {
      if (wanted.a == 0 && wanted.b == 0) {
        atoms.push_back(0);
        continue;
      }
      const auto it = std::ranges::find_if(
          joint.atoms, [&](const JointAtom& j) { return j.a == wanted.a && j.b == wanted.b; });
      atoms.push_back(static_cast<int>(it - joint.atoms.begin()) + 1);
    }
  }
}

Value with_dim(Value value, bool in_front) {
  if (auto* constant = std::get_if<Constant>(&value)) {
    constant->dims.insert(in_front ? constant->dims.begin() : constant->dims.end(), Extent{});
  } else {
    auto& dims = std::get<View>(value).dims;
    dims.insert(in_front ? dims.begin() : dims.end(), std::vector<int>{});
  }
  return value;
}

}  // namespace

struct Importer::Axes {
  std::vector<std::vector<JointAtom>> groups;

  /// Neighbours that both operands have side by side in one axis, or both lack, share an axis.
  static Axes of(const std::vector<JointAtom>& atoms, const std::vector<int>* axis_a,
                 const std::vector<int>* axis_b) {
    const auto together = [](int p, int q, const std::vector<int>* axis) {
      if (p < 0 || q < 0) return p == q;
      return axis == nullptr ||
             (q == p + 1 && (*axis)[static_cast<size_t>(p)] == (*axis)[static_cast<size_t>(q)]);
    };
    Axes axes;
    for (size_t i = 0; i < atoms.size(); ++i) {
      if (i == 0 || !together(atoms[i - 1].a, atoms[i].a, axis_a) ||
          !together(atoms[i - 1].b, atoms[i].b, axis_b)) {
        axes.groups.emplace_back();
      }
      axes.groups.back().push_back(atoms[i]);
    }
    return axes;
  }
  std::vector<std::vector<int>> of_operand(bool is_first) const {
    std::vector<std::vector<int>> all;
    for (const auto& group : groups) {
      auto& atoms = all.emplace_back();
      for (const JointAtom& j : group) {
        const int atom = is_first ? j.a : j.b;
        if (atom > 0) atoms.push_back(atom);
      }
    }
    return all;
  }
};

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
  size_t part = 0;  // the longest
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    part = std::max(part, end - begin);
    if (end == begin) part = kRankMax * kRankMax;  // empty: no name
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

void Importer::set_weight(const std::string& layer, std::string_view suffix,
                          std::vector<float> values) {
  weights_[layer + "." + std::string(suffix)] = std::move(values);
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

std::string Importer::layer_with_weight(const std::string& initializer) const {
  const auto it = weight_layers_.find(initializer);
  return initializer.empty() || it == weight_layers_.end() ? "" : it->second;
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
  std::vector<std::vector<int>> runs;  // of atoms that stay together, in their new order
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
    if (is_tokens(layer)) return misfit("tokens in other dimensions than the input's");
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
    if (is_tokens(layer)) return misfit("tokens in another order than the input's");
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
    bool is_open = false;  // the last group may take more
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
                                             std::vector<float> values) {
  const bool uniform = c.uniform();
  if (uniform && !c.trainable && std::fabs(values.front()) <= kConstantMax) {
    return add_layer(
        "Constant",
        {{"shape", std::vector<int64_t>{1}}, {"value", static_cast<double>(values.front())}}, {});
  }
  Attributes attributes{{"shape", uniform && !c.trainable ? std::vector<int64_t>{1} : shape}};
  if (!c.trainable) {
    attributes.set("init", std::string("constant"));
    attributes.set("trainable", int64_t{0});
    if (uniform) values.resize(1);
  }
  std::string hint = c.initializer;
  std::ranges::replace(hint, '.', '_');
  ASSIGN_OR_RETURN(const std::string layer, add_layer("Parameter", attributes, {}, hint));
  set_weight(layer, "weight", std::move(values));
  if (c.trainable) {
    remember_weight(c.initializer, layer);
  } else if (!c.initializer.empty()) {
    note("Layer " + layer + " holds fixed numbers; `trainable: true` would train them.");
  }
  return layer;
}

Result<std::string> Importer::arrange_operand(const Value& operand, const View& view,
                                              const Axes& axes, bool is_first) {
  const std::vector<std::vector<int>> groups = axes.of_operand(is_first);
  const auto* constant = std::get_if<Constant>(&operand);
  if (constant == nullptr) return arrange(view, groups);
  if (!constant->is_float) return misfit("whole numbers beside what a layer computes");
  std::vector<int64_t> shape;
  std::vector<int> order;
  for (const auto& group : groups) {
    shape.push_back(product_of(view, group));
    for (const int atom : group) order.push_back(atom - 1);
  }
  const auto first = std::ranges::find_if(shape, [](int64_t size) { return size != 1; });
  shape.erase(shape.begin(), first);
  if (shape.empty()) shape.push_back(1);
  std::vector<float> values = *constant->floats;
  const std::vector<int64_t> sizes(view.atoms.begin() + 1, view.atoms.end());
  if (!constant->is_splat && !order.empty()) values = permuted(values, sizes, order);
  std::string key = constant->initializer + Shape(shape).to_string();
  for (const int atom : order) key += " " + std::to_string(atom);
  const bool is_known = constant->trainable && !constant->initializer.empty();
  if (const auto known = arranged_.find(key); is_known && known != arranged_.end()) {
    return known->second;
  }
  ASSIGN_OR_RETURN(std::string layer, constant_layer(*constant, shape, std::move(values)));
  if (is_known) arranged_[key] = layer;
  return layer;
}

Result<View> Importer::to_view(const Constant& constant) {
  if (!constant.is_float || constant.empty()) {
    return misfit(constant.is_float ? "a constant without elements"
                                    : "whole numbers, expected what a layer computes");
  }
  View view = shape_view(constant);
  std::vector<JointAtom> atoms;
  for (size_t i = 1; i < view.atoms.size(); ++i) {
    atoms.push_back({static_cast<int>(i), -1, view.atoms[i]});
  }
  Constant as_parameter = constant;
  if (constant.is_splat) {
    view = {};
    for (const Extent& e : constant.dims) {
      if (!e.batch && e.count != 1) return misfit("a constant of an open shape");
      view.dims.push_back(e.batch ? std::vector<int>{0} : std::vector<int>{});
    }
    atoms.clear();
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
  // A fixed tensor of equal infinities keeps its shape here.
  ASSIGN_OR_RETURN(view.layer, arrange_operand(constant, view, axes, true));
  const std::vector<int64_t> sizes(view.atoms.begin() + 1, view.atoms.end());
  if (!sizes.empty() && sizes_of(view.layer) != sizes) {
    return misfit("a constant of equal numbers beyond 1e30 that is no operand of arithmetic");
  }
  return view;
}

// --- operations ---

Result<View> Importer::unary(std::string_view op, Attributes attributes, const View& x) {
  View y = x;
  ASSIGN_OR_RETURN(y.layer, add_layer(op, std::move(attributes), {x.layer}));
  return y;
}

Result<View> Importer::binary(std::string_view op, const Value& a, const Value& b) {
  const auto view_of = [](const Value& value) {
    const auto* constant = std::get_if<Constant>(&value);
    return constant != nullptr ? shape_view(*constant) : std::get<View>(value);
  };
  if (std::holds_alternative<Constant>(a) && std::holds_alternative<Constant>(b)) {
    ASSIGN_OR_RETURN(const View first, to_view(std::get<Constant>(a)));
    return binary(op, first, b);
  }
  for (const Value* value : {&a, &b}) {
    const auto* constant = std::get_if<Constant>(value);
    if (constant != nullptr && constant->empty()) return misfit("a constant without elements");
  }
  View va = view_of(a), vb = view_of(b);
  const size_t rank = std::max(va.dims.size(), vb.dims.size());
  for (View* v : {&va, &vb}) v->dims.insert(v->dims.begin(), rank - v->dims.size(), {});
  for (size_t i = 0; i < rank; ++i) {
    if (Status s = align(va, vb, i); !s.ok()) return std::move(s).error();
  }
  for (const auto& [value, v] : {std::pair(&a, &va), std::pair(&b, &vb)}) {
    const auto* constant = std::get_if<Constant>(value);
    if (constant != nullptr && !constant->is_splat && onnx::has_batch(v->extents())) {
      return misfit("a constant with one value for each sample");
    }
  }
  Joint joint = join(va, vb, rank);
  const bool a_leads = std::holds_alternative<View>(a);
  const auto covers = [&](int JointAtom::*atom) {
    return std::ranges::all_of(joint.atoms, [&](const JointAtom& j) { return j.*atom > 0; });
  };
  if (a_leads && covers(&JointAtom::a)) {
    std::ranges::sort(joint.atoms, {}, &JointAtom::a);
  } else if (std::holds_alternative<View>(b) && covers(&JointAtom::b)) {
    std::ranges::sort(joint.atoms, {}, &JointAtom::b);
  }
  std::vector<int> axis_a, axis_b;
  if (a_leads) axis_a = axis_of_atoms(va);
  if (std::holds_alternative<View>(b)) axis_b = axis_of_atoms(vb);
  const Axes axes =
      Axes::of(joint.atoms, axis_a.empty() ? nullptr : &axis_a, axis_b.empty() ? nullptr : &axis_b);
  ASSIGN_OR_RETURN(const std::string left, arrange_operand(a, va, axes, true));
  ASSIGN_OR_RETURN(const std::string right, arrange_operand(b, vb, axes, false));
  View y;
  for (const JointAtom& j : joint.atoms) y.atoms.push_back(j.size);
  push_dims(joint, y);
  ASSIGN_OR_RETURN(y.layer, add_layer(op, {}, {left, right}));
  return y;
}

Result<View> Importer::linear(const View& x, const Constant& weight, const Constant* bias) {
  const int64_t units = weight.dims[0].count, features = weight.dims[1].count;
  if (x.dims.empty() || holds_batch(x.dims.back()) || x.extent(x.dims.back()).count != features) {
    return misfit("a product of " + to_string(x.extents()) + " with a weight for " +
                  std::to_string(features) + " features");
  }
  const std::vector<int>& last = x.dims.back();
  const std::vector<int> axis = axis_of_atoms(x);
  std::vector<std::vector<int>> groups;
  View y;
  std::vector<int> moved(x.atoms.size(), 0);
  for (int atom = 1; atom < static_cast<int>(x.atoms.size()); ++atom) {
    if (std::ranges::find(last, atom) != last.end()) continue;
    const auto at = static_cast<size_t>(atom);
    const bool joins =
        !groups.empty() && groups.back().back() == atom - 1 && axis[at] == axis[at - 1];
    if (!joins) groups.emplace_back();
    groups.back().push_back(atom);
    moved[at] = static_cast<int>(y.atoms.size());
    y.atoms.push_back(x.atoms[at]);
  }
  groups.push_back(last);
  ASSIGN_OR_RETURN(const std::string from, arrange(x, groups));
  const bool is_matrix = groups.size() == 1;
  const std::string tied = !is_matrix && !weight.transposed && weight.trainable
                               ? layer_with_weight(weight.initializer)
                               : "";
  Attributes attributes;
  if (tied.empty()) {
    attributes.set("units", units);
  } else {
    attributes.set("tied_to", tied);
  }
  if (bias == nullptr) attributes.set("bias", int64_t{0});
  ASSIGN_OR_RETURN(y.layer,
                   add_layer(is_matrix ? "Gemm" : "Linear", attributes, {from},
                             name_hint(weight).empty() && bias != nullptr ? name_hint(*bias)
                                                                          : name_hint(weight)));
  if (tied.empty()) {
    set_weight(y.layer, "weight", *weight.floats);
    if (!weight.transposed) remember_weight(weight.initializer, y.layer);
  }
  if (bias != nullptr) set_weight(y.layer, "bias", *bias->floats);
  for (size_t i = 0; i + 1 < x.dims.size(); ++i) {
    auto& dim = y.dims.emplace_back();
    for (const int atom : x.dims[i]) dim.push_back(moved[static_cast<size_t>(atom)]);
  }
  y.push_dim(units);
  return y;
}

Result<View> Importer::mat_mul(const Value& a, const Value& b) {
  const size_t rank_a = dims_of(a).size(), rank_b = dims_of(b).size();
  if (rank_a == 0 || rank_b == 0) return misfit("a product of single numbers");
  if (rank_a == 1 || rank_b == 1) {
    ASSIGN_OR_RETURN(
        View y, mat_mul(rank_a == 1 ? with_dim(a, true) : a, rank_b == 1 ? with_dim(b, false) : b));
    if (rank_b == 1) y.dims.pop_back();
    if (rank_a == 1) y.dims.erase(y.dims.end() - (rank_b == 1 ? 1 : 2));
    return y;
  }
  const auto turned = [](View v) {
    std::swap(v.dims[v.dims.size() - 1], v.dims[v.dims.size() - 2]);
    return v;
  };
  const auto* weight = std::get_if<Constant>(&b);
  const auto* data = std::get_if<View>(&a);
  if (weight != nullptr && data != nullptr && weight->is_float && rank_b == 2 &&
      !weight->is_splat && !onnx::has_batch(weight->dims)) {
    return linear(*data, onnx::turned(*weight), nullptr);
  }
  const auto view_of = [&](const Value& value) -> Result<View> {
    const auto* constant = std::get_if<Constant>(&value);
    return constant != nullptr ? to_view(*constant) : Result<View>(std::get<View>(value));
  };
  // (a b)^T = b^T a^T: where the batch is among the columns of b, they become rows.
  const auto* right = std::get_if<View>(&b);
  if (right != nullptr && holds_batch(right->dims.back())) {
    if (const auto* matrix = std::get_if<Constant>(&a);
        matrix != nullptr && rank_a == 2 && matrix->is_float && !matrix->is_splat) {
      ASSIGN_OR_RETURN(const View y, linear(turned(*right), *matrix, nullptr));
      return turned(y);
    }
    ASSIGN_OR_RETURN(const View left, view_of(a));
    if (!holds_batch(left.dims[rank_a - 2])) {
      ASSIGN_OR_RETURN(const View y, mat_mul(turned(*right), turned(left)));
      return turned(y);
    }
  }
  ASSIGN_OR_RETURN(View va, view_of(a));
  ASSIGN_OR_RETURN(View vb, view_of(b));
  const size_t rank = std::max(rank_a, rank_b);
  for (View* v : {&va, &vb}) v->dims.insert(v->dims.begin(), rank - v->dims.size(), {});
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (Status s = align(va, vb, i); !s.ok()) return std::move(s).error();
  }
  const std::vector<int>&rows = va.dims[rank - 2], &inner_a = va.dims[rank - 1];
  const std::vector<int>&inner_b = vb.dims[rank - 2], &columns = vb.dims[rank - 1];
  if (va.extent(inner_a) != vb.extent(inner_b)) {
    return misfit("a product of " + to_string(va.extents()) + " and " + to_string(vb.extents()));
  }
  if (holds_batch(inner_a) || holds_batch(columns) || (holds_batch(rows) && has_batch(vb.layer))) {
    return misfit("a product of " + to_string(va.extents()) + " and " + to_string(vb.extents()) +
                  " mixes samples");
  }
  Joint joint = join(va, vb, rank - 2);
  const std::vector<int> axis_a = axis_of_atoms(va), axis_b = axis_of_atoms(vb);
  const Axes axes = Axes::of(joint.atoms, &axis_a, &axis_b);
  auto groups_a = axes.of_operand(true), groups_b = axes.of_operand(false);
  groups_a.push_back(without_batch(rows));
  groups_a.push_back(inner_a);
  groups_b.push_back(inner_b);
  groups_b.push_back(columns);
  ASSIGN_OR_RETURN(const std::string first, arrange(va, groups_a));
  ASSIGN_OR_RETURN(const std::string second, arrange(vb, groups_b));
  View y;
  for (const JointAtom& j : joint.atoms) y.atoms.push_back(j.size);
  push_dims(joint, y);
  for (const auto& [v, dim] : {std::pair(&va, &rows), std::pair(&vb, &columns)}) {
    auto& atoms = y.dims.emplace_back();
    for (const int atom : *dim) {
      atoms.push_back(atom == 0 ? 0 : static_cast<int>(y.atoms.size()));
      if (atom != 0) y.atoms.push_back(v->atoms[static_cast<size_t>(atom)]);
    }
  }
  ASSIGN_OR_RETURN(y.layer, add_layer("MatMul", {}, {first, second}));
  return y;
}

Result<View> Importer::reshape(View x, const std::vector<Extent>& dims) {
  const auto refuse = [&] {
    return misfit("from " + to_string(x.extents()) + " to " + to_string(dims) + " mixes samples");
  };
  std::vector<int> order;
  for (const auto& dim : x.dims) order.insert(order.end(), dim.begin(), dim.end());
  View y = x;
  y.dims.clear();
  size_t next = 0;  // in `order`
  bool fits = true;
  for (size_t i = 0; i < dims.size() && fits; ++i) {
    auto& atoms = y.dims.emplace_back();
    Extent left = dims[i];
    while (fits && (left.batch || left.count > 1)) {
      if (next == order.size()) {
        fits = false;
        break;
      }
      const int atom = order[next];
      // A file with a fixed batch says it as a number.
      if (atom == 0 && !left.batch && fixed_batch_ && left.count % *fixed_batch_ == 0) {
        left = {left.count / *fixed_batch_, true};
      }
      if (atom == 0) {
        fits = left.batch;
        left.batch = false;
      } else {
        const int64_t size = y.atoms[static_cast<size_t>(atom)];
        if (left.count % size == 0) {
          left.count /= size;
        } else if (left.count > 1 && size % left.count == 0) {
          y.split(atom, left.count);
          for (int& later : order) later += later > atom ? 1 : 0;
          order.insert(order.begin() + static_cast<std::ptrdiff_t>(next) + 1, atom + 1);
          left.count = 1;
        } else {
          fits = false;
        }
      }
      if (fits) atoms.push_back(atom), ++next;
    }
    // With a fixed batch of 1, "1" may be the batch.
    if (fits && atoms.empty() && next < order.size() && order[next] == 0 && fixed_batch_ == 1) {
      atoms.push_back(order[next++]);
    }
  }
  if (fits && next == order.size()) return y;
  // Sizes that do not divide each other: all of a sample in one axis, cut anew.
  std::vector<Extent> wanted = dims;
  if (!wanted.empty() && !wanted[0].batch && fixed_batch_ == wanted[0].count) {
    wanted[0] = {1, true};
  }
  const bool is_batched = !x.dims.empty() && x.dims[0] == std::vector<int>{0};
  const bool stays_batched = !wanted.empty() && wanted[0] == Extent{1, true};
  if (is_batched != stays_batched ||
      std::ranges::count_if(order, [](int atom) { return atom == 0; }) != (is_batched ? 1 : 0)) {
    return refuse();
  }
  std::erase(order, 0);
  int64_t elements = product_of(x, order), wanted_elements = 1;
  for (const Extent& e : wanted) {
    if (e.batch && &e != &wanted[0]) return refuse();
    if (!Shape(std::vector<int64_t>{wanted_elements, e.count}).fits()) return refuse();
    wanted_elements *= e.count;
  }
  if (elements != wanted_elements) return refuse();
  ASSIGN_OR_RETURN(const std::string flat, arrange(x, {order}));
  View cut;
  if (stays_batched) cut.push_batch();
  for (size_t i = stays_batched ? 1 : 0; i < wanted.size(); ++i) cut.push_dim(wanted[i].count);
  cut.layer = flat;
  return cut;
}

}  // namespace trainyard::onnx
