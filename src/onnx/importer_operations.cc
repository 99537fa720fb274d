// The operations that several rows of the import table use.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/onnx/constant_elements.h"
#include "src/onnx/importer_axes.h"

namespace trainyard::onnx {
namespace {

std::vector<int> without_batch(std::vector<int> dim) {
  std::erase(dim, 0);
  return dim;
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

/// A value, and its view. A constant has the elements of one sample.
struct Operand {
  Value value;
  View view;
};

/// Returns the operand of an operation whose other operand is `other`.
Result<Operand> operand_of(const Value& value, const Value& other,
                           std::optional<int64_t> fixed_batch) {
  const auto* given = std::get_if<Constant>(&value);
  if (given == nullptr) return Operand{value, std::get<View>(value)};
  if (given->empty()) return misfit("a constant without elements");
  Constant constant = with_open_batch(*given, dims_of(other), fixed_batch);
  View view = shape_view(constant);
  ASSIGN_OR_RETURN(Constant one, one_sample(std::move(constant)));
  return Operand{std::move(one), std::move(view)};
}

}  // namespace

Result<View> Importer::unary(std::string_view op, Attributes attributes, const View& x) {
  View y = x;
  ASSIGN_OR_RETURN(y.layer, add_layer(op, std::move(attributes), {x.layer}));
  return y;
}

Result<View> Importer::binary(std::string_view op, const Value& first, const Value& second) {
  if (std::holds_alternative<Constant>(first) && std::holds_alternative<Constant>(second)) {
    ASSIGN_OR_RETURN(const View view, to_view(std::get<Constant>(first)));
    const Constant& other = std::get<Constant>(second);
    // Beside a layer's output, equal numbers are one number, which would not enlarge the output.
    if (!other.trainable && other.uniform() && shape_view(other).atoms.size() > 1) {
      ASSIGN_OR_RETURN(const View whole, to_view(other));
      return binary(op, view, whole);
    }
    return binary(op, view, second);
  }
  ASSIGN_OR_RETURN(Operand left_operand, operand_of(first, second, fixed_batch_));
  ASSIGN_OR_RETURN(Operand right_operand, operand_of(second, first, fixed_batch_));
  const Value &a = left_operand.value, &b = right_operand.value;
  View &va = left_operand.view, &vb = right_operand.view;
  const size_t rank = std::max(va.dims.size(), vb.dims.size());
  for (View* v : {&va, &vb}) v->dims.insert(v->dims.begin(), rank - v->dims.size(), {});
  for (size_t i = 0; i < rank; ++i) {
    if (Status s = align(va, vb, i); !s.ok()) return std::move(s).error();
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
  if (Status s = check_batch_is_one(y); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(y.layer, add_layer(op, {}, {left, right}));
  return y;
}

Result<View> Importer::linear(const View& x, const Constant& weight, const Constant* bias) {
  const int64_t units = weight.dims[0].count, features = weight.dims[1].count;
  if (bias != nullptr && is_no_bias(*bias)) bias = nullptr;
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
  const std::string tied =
      !weight.transposed && weight.trainable ? layer_to_tie(weight.initializer) : "";
  Attributes attributes;
  if (tied.empty()) {
    attributes.set("units", units);
  } else {
    attributes.set("tied_to", tied);
  }
  if (bias == nullptr) attributes.set("bias", int64_t{0});
  ASSIGN_OR_RETURN(y.layer,
                   add_layer(is_matrix && tied.empty() ? "Gemm" : "Linear", attributes, {from},
                             name_hint(weight).empty() && bias != nullptr ? name_hint(*bias)
                                                                          : name_hint(weight)));
  if (tied.empty()) {
    set_weight(y.layer, "weight", numbers_of(weight));
    if (!weight.transposed) remember_weight(weight.initializer, y.layer);
  }
  if (bias != nullptr) {
    set_weight(y.layer, "bias", numbers_of(*bias));
    remember_weight(bias->initializer, y.layer);
  }
  for (size_t i = 0; i + 1 < x.dims.size(); ++i) {
    auto& dim = y.dims.emplace_back();
    for (const int atom : x.dims[i]) dim.push_back(moved[static_cast<size_t>(atom)]);
  }
  y.push_dim(units);
  return y;
}

Result<View> Importer::mat_mul(const Value& a, const Value& b) {
  const size_t rank_a = dims_of(a).size(), rank_b = dims_of(b).size();
  if (rank_a == 0 || rank_b == 0) return misfit("a product of scalars");
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
      !onnx::has_batch(weight->dims)) {
    return linear(*data, onnx::turned(*weight), nullptr);
  }
  const auto view_of = [&](const Value& value) -> Result<View> {
    const auto* constant = std::get_if<Constant>(&value);
    return constant != nullptr ? to_view(*constant) : Result<View>(std::get<View>(value));
  };
  // (a b)^T = b^T a^T: if the batch is among the columns of b, this makes them rows.
  const auto* right = std::get_if<View>(&b);
  if (right != nullptr && holds_batch(right->dims.back())) {
    if (const auto* matrix = std::get_if<Constant>(&a);
        matrix != nullptr && rank_a == 2 && matrix->is_float && !onnx::has_batch(matrix->dims)) {
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
  if (Status s = check_batch_is_one(y); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(y.layer, add_layer("MatMul", {}, {first, second}));
  return y;
}

Result<View> Importer::reshape(View x, const std::vector<Extent>& dims) {
  const auto refuse = [&] {
    return misfit("from " + to_string(x.extents()) + " to " + to_string(dims) + " mixes samples");
  };
  std::vector<int> x_order;
  for (const auto& dim : x.dims) x_order.insert(x_order.end(), dim.begin(), dim.end());
  View y = x;
  std::vector<int> order = x_order;  // atoms in y's order; y's atoms are split below
  y.dims.clear();
  size_t next = 0;  // index in `order`
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
      // A file with a fixed batch gives the batch as a number.
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
    // With a fixed batch of 1, a size of 1 may be the batch.
    if (fits && atoms.empty() && next < order.size() && order[next] == 0 && fixed_batch_ == 1) {
      atoms.push_back(order[next++]);
    }
  }
  if (fits && next == order.size()) return y;
  // Some sizes do not divide each other: join all axes of a sample, and split the result again.
  std::vector<Extent> wanted = dims;
  if (!wanted.empty() && !wanted[0].batch && fixed_batch_ == wanted[0].count) {
    wanted[0] = {1, true};
  }
  const bool is_batched = !x.dims.empty() && x.dims[0] == std::vector<int>{0};
  const bool stays_batched = !wanted.empty() && wanted[0] == Extent{1, true};
  if (is_batched != stays_batched ||
      std::ranges::count_if(x_order, [](int atom) { return atom == 0; }) != (is_batched ? 1 : 0)) {
    return refuse();
  }
  std::erase(x_order, 0);
  int64_t elements = product_of(x, x_order), wanted_elements = 1;
  for (const Extent& e : wanted) {
    if (e.batch && &e != &wanted[0]) return refuse();
    if (!Shape(std::vector<int64_t>{wanted_elements, e.count}).fits()) return refuse();
    wanted_elements *= e.count;
  }
  if (elements != wanted_elements) return refuse();
  ASSIGN_OR_RETURN(const std::string flat, arrange(x, {x_order}));
  View cut;
  if (stays_batched) cut.push_batch();
  for (size_t i = stays_batched ? 1 : 0; i < wanted.size(); ++i) cut.push_dim(wanted[i].count);
  cut.layer = flat;
  return cut;
}

}  // namespace trainyard::onnx
