// src/runtime/common/elementwise_kernels.h: copies, casts, changes of memory layout and dropout,
// for every backend (adapter.h). The backend provides make_copy(context, graph, node), which copies
// input 0 to output 0, each in its stored type.
#pragma once

#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layout.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/op_params.h"

namespace trainyard {

enum class Transposition : uint8_t { kToChannelsLast, kToRowMajor };

/// Makes a kernel that copies input 0 to output 0, an image of the shape of `image`, and changes
/// its layout.
template <typename Context>
std::unique_ptr<Kernel> make_transposed(Context& context, const Graph& g, const Node& n,
                                        const TensorInfo& image, Transposition how) {
  return with_operands(context, g, n, image, [&](auto o) -> std::unique_ptr<Kernel> {
    const kernels::ImageDims d = image_dims(image.type.shape);
    if (how == Transposition::kToChannelsLast) {
      return make_kernel(
          [o, d](const KernelArgs& a) { nchw_to_nhwc(d, o.in(a, 0), o.out(a, 0), o.run(a)); });
    }
    return make_kernel(
        [o, d](const KernelArgs& a) { nhwc_to_nchw(d, o.in(a, 0), o.out(a, 0), o.run(a)); });
  });
}

template <typename Context>
std::unique_ptr<Kernel> make_reorder(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  return make_transposed(context, g, n, y,
                         y.layout == Layout::kChannelsLast ? Transposition::kToChannelsLast
                                                           : Transposition::kToRowMajor);
}

template <typename Context>
std::unique_ptr<Kernel> make_cast(Context& context, const Graph& g, const Node& n) {
  if (output_info(g, n, 0).type.dtype != DType::kI32) return make_copy(context, g, n);
  const TensorInfo& x = input_info(g, n, 0);
  return with_operands(context, g, n, x, [&](auto o) {
    return make_kernel([o, count = x.type.shape.elements()](const KernelArgs& a) {
      to_index(count, o.in(a, 0), a.out<int32_t>(0), o.run(a));
    });
  });
}

/// Returns whether the memory order of an image differs from its logical order. False if both
/// orders are the same bytes.
inline bool is_transposed(const TensorInfo& t) {
  if (t.type.shape.rank() != 4 || t.layout != Layout::kChannelsLast) return false;
  const kernels::ImageDims d = image_dims(t.type.shape);
  return d.C > 1 && d.pixels() > 1;
}

// Flatten reads an image in logical order, and its gradient writes one; otherwise they are copies.
template <typename Context>
std::unique_ptr<Kernel> make_flatten(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  return is_transposed(x) ? make_transposed(context, g, n, x, Transposition::kToRowMajor)
                          : make_copy(context, g, n);
}

template <typename Context>
std::unique_ptr<Kernel> make_flatten_grad(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  return is_transposed(dx) ? make_transposed(context, g, n, dx, Transposition::kToChannelsLast)
                           : make_copy(context, g, n);
}

// A channels-last image has the memory order of a sequence of its positions.
template <typename Context>
std::unique_ptr<Kernel> make_image_to_sequence(Context& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  return x.layout == Layout::kChannelsLast
             ? make_copy(context, g, n)
             : make_transposed(context, g, n, x, Transposition::kToChannelsLast);
}

template <typename Context>
std::unique_ptr<Kernel> make_image_to_sequence_grad(Context& context, const Graph& g,
                                                    const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  return dx.layout == Layout::kChannelsLast
             ? make_copy(context, g, n)
             : make_transposed(context, g, n, dx, Transposition::kToRowMajor);
}

template <typename Context>
std::unique_ptr<Kernel> make_dropout(Context& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    return make_kernel([o, p = dropout_params(g, n)](const KernelArgs& a) {
      dropout(p, a.in<int64_t>(1), o.in(a, 0), o.out(a, 0), o.run(a));
    });
  });
}

/// Returns the table entries for a backend.
template <typename Context>
std::span<const KernelEntry<Context>> elementwise_kernels() {
  using C = Context;
  static constexpr KernelEntry<C> kEntries[] = {
      {"Reorder", make_reorder<C>},
      {"Cast", make_cast<C>},
      {"Flatten", make_flatten<C>},
      {"FlattenGrad", make_flatten_grad<C>},
      {"Reshape", make_flatten<C>},  // always row-major, so a copy
      {"ReshapeGrad", make_flatten_grad<C>},
      {"ImageToSequence", make_image_to_sequence<C>},
      {"ImageToSequenceGrad", make_image_to_sequence_grad<C>},
      {"Dropout", make_dropout<C>},
      {"DropoutGrad", make_dropout<C>},
  };
  return kEntries;
}

}  // namespace trainyard
