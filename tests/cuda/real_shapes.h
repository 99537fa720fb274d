// tests/cuda/real_shapes.h: convolutions and products at the shapes of real networks. They are sums
// of thousands of products by engines that small cases never reach.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/passes/passes.h"
#include "src/runtime/backend.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

/// A convolution or a product, forward and backward, of operands that are computed, as in a
/// network, and so stored as the precision says.
struct ShapeCase {
  std::string name;  // "resnet50 conv1"
  std::function<CaseGraph()> build;
};
/// Of ResNet-50, VGG16, ViT, GPT-2 and LeNet-5; channels that are multiples of 8 and others.
const std::vector<ShapeCase>& real_shapes();
/// The same kinds, as small as an emulator needs them.
const std::vector<ShapeCase>& small_shapes();

/// kFirst: what the backend takes, in both layouts. kAll: in channels-last, which networks of
/// images run in, each algorithm that timing may pick (nth_candidate.h), in workspaces that begin
/// with NaN: what an engine reads of them before it writes it shows.
enum class Candidates : uint8_t { kFirst, kAll };

/// The result and all gradients on `cuda` beside the cpu backend's of the same precision; a
/// sentence for each tensor that is wrong. Both multiply the same numbers and sum in F32, so what
/// may lie between them is what an engine rounds: an F32 operand, and each result, to the operands'
/// type (half a unit in its last place, 2^-9 in bf16, 2^-12 in fp16), each factor to TF32's 11
/// bits, or sums in F32 in another order. Twice that is allowed of the whole tensor, norm by norm,
/// and 8 times as much of its root mean square for one element.
std::vector<std::string> find_wrong(Backend& cuda, const std::vector<ShapeCase>& cases,
                                    Precision precision, Candidates which);
/// Each sentence is a failure.
void expect_right(Backend& cuda, const std::vector<ShapeCase>& cases, Precision precision,
                  Candidates which = Candidates::kFirst);

}  // namespace trainyard::testing
