// src/onnx/import_value.h: what a value of an ONNX graph is while it is imported: a constant, or a
// view of what a layer computes.
//
// In a layer list axis 0 is the batch and stays there; in ONNX it may stand anywhere, be open, or
// be merged with another dimension ("heads times batch"). A view bridges the two: it says which
// parts of the layer's axes, in which order, are the dimensions of the ONNX value. Transpose,
// Reshape, Squeeze and their relatives change the view alone; a layer that moves elements is made
// when an operation needs them in another order (importer.h, arrange).
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace trainyard::onnx {

/// A size, or a number computed from sizes: `count`, times the batch if `batch`.
struct Extent {
  int64_t count = 1;
  bool batch = false;
  bool operator==(const Extent&) const = default;
};
std::string to_string(const std::vector<Extent>& extents);  // [N, 3, 2N]
bool has_batch(const std::vector<Extent>& extents);
std::vector<int64_t> counts_of(const std::vector<Extent>& extents);
std::vector<Extent> extents_of(const std::vector<int64_t>& counts);

/// Numbers of the file's trained parameters are counted through: this is each one's own. Only files
/// that name their parameters have them (trained_parameters.h).
using Origin = uint32_t;
constexpr Origin kFixed = ~Origin{0};  // of a number that is not part of a trained parameter

/// Numbers that do not depend on the input: floats, or whole numbers (and truth).
struct Constant {
  std::vector<Extent> dims;
  bool is_float = true;
  bool is_splat = false;  // one number stands for all: the only way to fill dims with a batch
  std::shared_ptr<const std::vector<float>> floats;
  std::shared_ptr<const std::vector<Extent>> ints;
  bool trainable = false;   // comes from an initializer that a model learns
  std::string initializer;  // whose values these are as they are, or turned if `transposed`
  bool transposed = false;
  /// Of each stored float. Null: all are fixed, or the file does not name its parameters.
  std::shared_ptr<const std::vector<Origin>> origins;

  /// Elements, of static dims.
  int64_t elements() const;
  int64_t stored() const { return is_float ? std::ssize(*floats) : std::ssize(*ints); }
  /// True if it has no elements: nothing that a layer computes is like it.
  bool empty() const;
  /// True if all elements are one number.
  bool uniform() const;
};
/// A matrix of static sizes with rows and columns exchanged.
Constant turned(const Constant& matrix);

/// What a layer's weight is made of.
struct Numbers {
  std::vector<float> values;
  std::vector<Origin> origins;  // of each; empty: as Constant::origins
};
/// All elements of a constant of floats and static sizes.
Numbers numbers_of(const Constant& c);
/// `count` elements: number i is element from(i).
Numbers numbers_of(const Constant& c, int64_t count, const std::function<int64_t(int64_t)>& from);
Constant float_constant(std::vector<int64_t> dims, std::vector<float> values);
Constant int_constant(std::vector<int64_t> dims, std::vector<Extent> values);

/// Axis 0 of every layer, the batch, is atom 0. The other atoms are factors of the layer's other
/// axes, in their order; none is 1.
struct View {
  std::string layer;                   // "input", "conv1", "lstm1.1"
  std::vector<int64_t> atoms = {0};    // sizes; that of atom 0 is open
  std::vector<std::vector<int>> dims;  // atoms of each ONNX dimension; none: its size is 1

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  Extent extent(const std::vector<int>& dim) const;
  std::vector<Extent> extents() const;
  /// Adds a dimension behind the others, and the atom that it is unless its size is 1.
  void push_dim(int64_t size);
  void push_batch() { dims.push_back({0}); }
  /// Makes two atoms of one: `first` times the rest.
  void split(int atom, int64_t first);
};

using Value = std::variant<Constant, View>;
std::vector<Extent> dims_of(const Value& value);

}  // namespace trainyard::onnx
