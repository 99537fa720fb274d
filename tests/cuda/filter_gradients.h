// tests/cuda/filter_gradients.h: gradients of filters at the shapes of real networks. They are sums
// of thousands of products by engines that small cases never reach.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/passes/passes.h"
#include "src/runtime/backend.h"

namespace trainyard::testing {

/// A convolution of x [N, C, H, H] by filters [K, C, R, R], with as many pads as keep the middle.
struct FilterCase {
  std::string name;  // "resnet50 conv1"
  int64_t N, C, H, K, R, stride;
};
/// Of ResNet-50, VGG16, ViT and LeNet-5; C and K multiples of 8 and not.
std::span<const FilterCase> real_filter_cases();
/// The same kinds, as small as an emulator needs them.
std::span<const FilterCase> small_filter_cases();

/// dw and the bias's gradient on `cuda`, in both layouts, beside the cpu backend's of the same
/// precision. Both multiply the same numbers and sum in F32, so what may lie between them is what
/// an engine rounds: dw to the operands' type, once (half a unit in its last place, 2^-9 in bf16,
/// 2^-12 in fp16), each factor to TF32's 11 bits, or sums in F32 in another order. Twice that is
/// allowed of the whole tensor, norm by norm, and 8 times as much of its root mean square for one
/// element.
void expect_filter_gradients(Backend& cuda, std::span<const FilterCase> cases, Precision precision);

}  // namespace trainyard::testing
