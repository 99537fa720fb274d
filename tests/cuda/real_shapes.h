// tests/cuda/real_shapes.h: convolutions and products with the shapes of real networks. They sum
// thousands of products, by engines that small cases never use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/passes/passes.h"
#include "src/runtime/backend.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

class FirstProposal;  // nth_candidate.h

/// A convolution or a product, forward and backward. Its operands are computed by other nodes, as
/// in a network, and are therefore stored in the precision.
struct ShapeCase {
  std::string name;  // such as "resnet50 conv1"
  std::function<CaseGraph()> build;
};
/// Shapes of ResNet-50, VGG16, ViT, GPT-2 and LeNet-5; channel counts that are multiples of 8, and
/// others.
const std::vector<ShapeCase>& real_shapes();
/// Convolutions and products of the same kinds, but small enough for the emulator.
const std::vector<ShapeCase>& small_shapes();

/// kFirst: the backend's choice, in both layouts. kAll: each algorithm that timing may pick
/// (nth_candidate.h), in channels-last, which image networks use, and in workspaces that start as
/// NaN, so that an engine which reads its workspace before writing it gives NaN.
enum class Candidates : uint8_t { kFirst, kAll };

/// Compares the result and all gradients on `cuda` with the cpu backend's in the same precision;
/// returns a sentence for each tensor that is wrong. Both multiply the same numbers and sum in F32,
/// so they differ only by an engine's roundings: an F32 operand and each result to the operands'
/// type (half a unit in its last place, 2^-9 in bf16, 2^-12 in fp16), each factor to TF32's 11
/// bits, or F32 sums in another order. The bound is twice that for the norm of the whole tensor,
/// and 8 times as much of its root mean square for a single element.
std::vector<std::string> find_wrong(Backend& cuda, const std::vector<ShapeCase>& cases,
                                    Precision precision, Candidates which,
                                    FirstProposal* choices = nullptr);
/// Reports each sentence as a failure. `choices`, if the backend uses it, has the engines of a case
/// of kFirst that is wrong, which the sentence then names.
void expect_right(Backend& cuda, const std::vector<ShapeCase>& cases, Precision precision,
                  Candidates which = Candidates::kFirst, FirstProposal* choices = nullptr);

}  // namespace trainyard::testing
