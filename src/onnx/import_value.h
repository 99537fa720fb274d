// src/onnx/import_value.h: values of an ONNX graph during the import. A value is a constant, or a
// view of the output of a layer.
//
// In a layer list, axis 0 is always the batch. In ONNX, the batch may be at any position, have an
// open size, or be merged with another dimension ("heads times batch"). A view bridges this
// difference: it maps the dimensions of the ONNX value to parts of the layer's axes. Transpose,
// Reshape, Squeeze and similar operations only change the view. A layer that moves elements is
// created when an operation needs them in another order (importer.h, arrange).
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace trainyard::onnx {

/// A size, or a number computed from sizes: `count`, multiplied by the batch size if `batch`.
struct Extent {
  int64_t count = 1;
  bool batch = false;
  bool operator==(const Extent&) const = default;
};
std::string to_string(const std::vector<Extent>& extents);  // [N, 3, 2N]
bool has_batch(const std::vector<Extent>& extents);
std::vector<int64_t> counts_of(const std::vector<Extent>& extents);
std::vector<Extent> extents_of(const std::vector<int64_t>& counts);

constexpr int64_t kProbeSamples = 2;
/// Returns the sizes for a batch of kProbeSamples samples; -1 for one beyond 64 bits.
std::vector<int64_t> stored_sizes(const std::vector<Extent>& extents);

/// Identifies one number of the file's trained parameters, which are numbered consecutively. Only
/// used in files that name their parameters (trained_parameters.h).
using Origin = uint32_t;
// The origin of a number that belongs to no trained parameter.
constexpr Origin kFixed = ~Origin{0};

/// Numbers that do not depend on the input: floats, or integers (including booleans).
///
/// If `dims` includes the batch, whose size is not known, the elements of kProbeSamples samples are
/// stored. Thus masks that a file computes from the numbers of the samples are computed as for any
/// other size. An operation that takes no such constant takes the elements of one sample, if they
/// are the same in all (constant_elements.h, one_part).
struct Constant {
  std::vector<Extent> dims;
  bool is_float = true;
  bool is_splat = false;  // one stored number for all elements
  std::shared_ptr<const std::vector<float>> floats;
  std::shared_ptr<const std::vector<Extent>> ints;
  bool trainable = false;   // comes from an initializer that is trained
  std::string initializer;  // the initializer that has exactly these values, or their transpose if
                            // `transposed`
  bool transposed = false;
  /// The origin of each stored float. Null: all are fixed, or the file does not name its
  /// parameters.
  std::shared_ptr<const std::vector<Origin>> origins;

  /// Returns the number of elements; `dims` must not include the batch.
  int64_t elements() const;
  int64_t stored() const { return is_float ? std::ssize(*floats) : std::ssize(*ints); }
  /// Returns true if the constant has no elements, which no output of a layer can have.
  bool empty() const;
  /// Returns true if all elements are equal.
  bool uniform() const;
};
/// Returns the transpose of a matrix of static sizes.
Constant turned(const Constant& matrix);

/// The values of a layer's weight.
struct Numbers {
  std::vector<float> values;
  // The origin of each value; empty: all are fixed (as in Constant::origins).
  std::vector<Origin> origins;
};
/// Returns all elements of a constant of floats; `dims` must not include the batch.
Numbers numbers_of(const Constant& c);
/// Returns `count` elements of `c`, of which number i is element from(i).
Numbers numbers_of(const Constant& c, int64_t count, const std::function<int64_t(int64_t)>& from);
/// A masked score is this or less, so that its probability is 0 in float32.
inline constexpr float kMaskedMax = -1e4f;
Constant float_constant(std::vector<int64_t> dims, std::vector<float> values);
Constant int_constant(std::vector<int64_t> dims, std::vector<Extent> values);

/// A view of a layer's output. The layer's axes are factored into atoms. Atom 0 is axis 0, the
/// batch. The other atoms are the factors of the other axes, in their order; no factor is 1.
struct View {
  std::string layer;                   // "input", "conv1", "lstm1.1"
  std::vector<int64_t> atoms = {0};    // sizes of the atoms; that of atom 0 is not used
  std::vector<std::vector<int>> dims;  // the atoms of each ONNX dimension; none: the size is 1

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  Extent extent(const std::vector<int>& dim) const;
  std::vector<Extent> extents() const;
  /// Appends a dimension, and an atom for it unless its size is 1.
  void push_dim(int64_t size);
  void push_batch() { dims.push_back({0}); }
  /// Splits an atom into two: `first`, and the rest.
  void split(int atom, int64_t first);
};

using Value = std::variant<Constant, View>;
std::vector<Extent> dims_of(const Value& value);

}  // namespace trainyard::onnx
