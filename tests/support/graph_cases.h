// tests/support/graph_cases.h: small graphs, at least one for every op. The gradient check, the
// comparison of backends and the registry test all iterate over this table.
//
// To add a case, write a builder in graph_cases.cc (or image_cases.cc) and add its row. Choose
// awkward sizes: 1, odd numbers, one more than a vector.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace trainyard::testing {

/// A graph and the values of every tensor that no node computes, row-major, whatever its dtype.
struct CaseGraph {
  Graph graph;
  TensorId loss = kNoTensor;  // [1]; kNoTensor in update cases, which are not differentiated
  std::map<TensorId, std::vector<double>> values;
};

struct GraphCase {
  std::string name;  // such as "Gemm/no_bias"
  std::function<CaseGraph(DType)> build;
  /// True for a size at which kernels use separate code. Such a case has too many elements for
  /// central differences.
  bool is_large = false;
};

/// Returns all cases. Their names are unique.
const std::vector<GraphCase>& graph_cases();

/// Builds a case. Values are drawn by tensor name from [-1, -0.1] and [0.1, 1]: far from the kinks
/// of Relu, and all different within a tensor.
class CaseBuilder {
 public:
  explicit CaseBuilder(DType dtype) : dtype_(dtype) {}

  TensorId parameter(const std::string& name, Shape shape);
  /// Returns an activation [N, C, H, W] whose gradient is checked: a parameter [N, C*H*W],
  /// reshaped. Parameters are always row-major, so only an activation can become channels-last.
  TensorId image(const std::string& name, const Shape& shape);
  TensorId state(const std::string& name, Shape shape, double value);
  TensorId cache(const std::string& name, Shape shape);
  /// Returns an I32 input with these values.
  TensorId indices(const std::string& name, Shape shape, std::vector<double> values);
  TensorId optimizer_state(const std::string& name, Shape shape);  // values in [0.1, 1]
  TensorId input(const std::string& name, Shape shape, Spread spread = Spread::kOwn);
  TensorId input_f32(const std::string& name, double value);                 // [1]
  TensorId labels(const std::string& name, int64_t N, int64_t K);            // I32
  TensorId gathered_labels(const std::string& name, int64_t N, int64_t K);   // from all ranks
  TensorId class_statistics(const std::string& name, int64_t rows);          // from all ranks
  TensorId tokens(const std::string& name, Shape shape, int64_t vocabulary,  // I32, any rank
                  Spread spread = Spread::kOwn);
  /// Returns row numbers of a table, I32, which a node keeps from one micro-batch to the next.
  TensorId kept_rows(const std::string& name, std::vector<double> values);
  TensorId step(int64_t value);                              // I64 [1]
  TensorId counter(const std::string& name, int64_t value);  // I64 [1], owned by the optimizer

  /// Appends a node and returns its outputs; outputs are named "name", "name.1", ...
  std::vector<TensorId> node(const std::string& name, const std::string& op, Attributes attributes,
                             std::vector<TensorId> inputs, size_t output_count = 1,
                             Phase phase = Phase::kForward);
  /// Appends a node with one output and returns the output.
  TensorId one(const std::string& name, const std::string& op, Attributes attributes,
               std::vector<TensorId> inputs) {
    return node(name, op, std::move(attributes), std::move(inputs))[0];
  }

  const Graph& graph() const { return c_.graph; }

  /// Appends MeanSquaredError of y against a random target, so that every element has its own
  /// gradient.
  CaseGraph finish(TensorId y);
  CaseGraph finish_with_loss(TensorId loss);
  CaseGraph finish_update();

 private:
  TensorId add(const std::string& name, TensorType type, Role role, std::vector<double> values,
               Spread spread = Spread::kOwn);

  DType dtype_;
  CaseGraph c_;
};

/// Returns the case with labels of -1, tokens that are not predicted, in some rows of its input
/// "labels".
CaseGraph with_uncounted(CaseGraph c);

/// Appends the rows of tests/support/image_cases.cc: convolution, pooling, normalization.
void append_image_cases(std::vector<GraphCase>& cases);
/// Appends the rows of tests/support/sequence_cases.cc: normalization of positions, embeddings,
/// attention.
void append_sequence_cases(std::vector<GraphCase>& cases);

/// Appends the rows of tests/support/basic_cases.cc: movement, arithmetic, activations, reductions,
/// losses.
void append_basic_cases(std::vector<GraphCase>& cases);
/// Appends the rows of tests/support/sampled_head_cases.cc: a loss over sampled classes.
void append_sampled_head_cases(std::vector<GraphCase>& cases);
/// Appends the rows of tests/support/split_head_cases.cc: a head whose classes are split over
/// several ranks.
void append_split_head_cases(std::vector<GraphCase>& cases);
/// Appends the rows of tests/support/text_cases.cc: recurrent layers, bags of tokens.
void append_text_cases(std::vector<GraphCase>& cases);

}  // namespace trainyard::testing
